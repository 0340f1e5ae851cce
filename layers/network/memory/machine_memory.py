"""How much memory this process may use: the machine's, or its control group's if that is less."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")


def usable_memory_bytes(groups: Path = GROUPS, own_group: Path = OWN_GROUP) -> int:
    """Return the memory of this machine, or the limit of a control group of this process."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in _limit_files(groups, own_group):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(int(file.read_text()))
    return min(limits)


def _limit_files(groups: Path, own_group: Path) -> list[Path]:
    """Return where limits of this process's groups may be: of its own one, and of those around."""
    try:
        lines = own_group.read_text().splitlines()
    except OSError:  # no control groups
        return []
    files = []
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds == "":  # version 2
            top, name = groups, "memory.max"
        elif "memory" in kinds.split(","):
            top, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        inner = top / path.lstrip("/")
        files += [folder / name for folder in (inner, *inner.parents) if folder.is_relative_to(top)]
    return files
