"""Files that are either the old one or the new one, whole, whenever the power goes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

TEMPORARY_PREFIX = ".writing-"


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` survive a power cut (a rename alone does not)."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, sync it and rename it to ``path``.

    Whatever fails, ``path`` is unchanged and the temporary file is gone; a process that is killed
    leaves at most a file whose name starts with `TEMPORARY_PREFIX`.
    """
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{path.name}")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        write(temporary)
        descriptor = os.open(temporary, os.O_RDONLY)
        try:
            os.fchmod(descriptor, mode)  # safetensors makes files that only their owner can read
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_text_durably(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` in UTF-8, whole or not at all."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(text.encode())

    write_durably(path, write)
