"""The errors of a run folder."""

from __future__ import annotations

import errno
import re
from pathlib import Path

from fedmx.errors import FedmxError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class RunError(FedmxError):
    """A run folder cannot be created, opened, used or written."""


class CheckpointError(RunError):
    """A checkpoint cannot be written, or all existing ones are damaged."""


class DamagedError(RunError):
    """A file of a run folder is not what was written; the text has no word on what to do."""


def is_full(error: Exception) -> bool:
    """Return whether a write failed since a disk, a quota or a limit of file sizes is full.

    Args:
        error: an OSError, or that of safetensors, which has the number in its text.
    """
    if isinstance(error, OSError):
        return error.errno in _FULL
    number = re.search(r"os error (\d+)", str(error))
    return number is not None and int(number[1]) in _FULL


def cannot_write(path: Path, error: OSError, what: str = "") -> str:
    """Return the text of an error: a file or a folder cannot be written, and what to do.

    Args:
        path: the file or folder.
        error: why.
        what: of it cannot be written; empty: the path says it.
    """
    advice = "; free disk space" if is_full(error) else ""
    return f"{path}: cannot write{what and f' {what}'} ({error.strerror}){advice}"
