"""The memory of a process, as the system counts it."""

from __future__ import annotations

import os
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(pid: int | None = None) -> int | None:
    """Return the resident memory of this process, or of another; None if that has ended."""
    try:
        text = Path(f"/proc/{pid or 'self'}/statm").read_text(encoding="ascii")
    except OSError:
        return None
    return int(text.split()[1]) * PAGE_BYTES
