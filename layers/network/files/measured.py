"""The sizes and SHA-256s of files to send, each read once for as long as its file is the same."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import TypeAlias

from layers.network.errors import TransferError
from layers.network.files.folders import Outgoing, check_name

MOST_FILES = 256  # of which the measures are remembered
TICK_NS = 100_000_000  # two writes within it may leave the same time on a file

Stamp: TypeAlias = "tuple[int, int, int, int, int]"
"""What changes when a file is replaced or written: device, inode, size, and its two times."""


class Measured:
    """Measures files to send; may be used in any thread."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[Stamp, Outgoing]] = {}  # the oldest first

    def measure(self, path: Path, name: str | None = None) -> Outgoing:
        """Return a file's size and SHA-256; read it only if it is not the one from before.

        Raises:
            TransferError: it cannot be read, or its name is not allowed at the other end.
        """
        name = check_name(path.name if name is None else name)
        began_ns = time.time_ns()
        before = _stamp(path)
        known = self._known.get(path)
        if known is not None and known[0] == before:
            return dataclasses.replace(known[1], name=name)
        self._known.pop(path, None)
        outgoing = Outgoing.measure(path, name)
        # A file that was written a moment ago may be written again without a newer time.
        if _stamp(path) == before and before[3] <= began_ns - TICK_NS:
            for oldest in list(self._known)[: 1 - MOST_FILES]:  # there is room for one more
                self._known.pop(oldest, None)
            self._known[path] = before, outgoing
        return outgoing


def _stamp(path: Path) -> Stamp:
    try:
        found = os.stat(path)
    except OSError as error:
        raise TransferError(f"{path} cannot be sent: {error.strerror}") from None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
