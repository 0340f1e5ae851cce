"""The file of an end's secret: drawn once, for its owner alone, and never sent or packed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from fedmx.run.durable import PRIVATE_FOLDER, RunError, cannot_write, write_bytes_durably
from layers.logic.secrets import KEY_BYTES

SECRET = "secret.key"
"""The file in a run folder."""


def read_key(path: Path) -> bytes:
    """Return the key in a file.

    Raises:
        RunError: it is gone or damaged.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(
            f"{path}: cannot read the secret of the run ({error.strerror}); restore it from a "
            "copy, or start a new run"
        ) from None
    key = content[:KEY_BYTES]
    if content != _with_checksum(key):
        raise RunError(f"{path}: the secret is damaged; restore it from a copy, or start a new run")
    return key


def kept_key(path: Path) -> bytes:
    """Return the key in a file; draw and keep one if there is no such file.

    Raises:
        RunError: the file cannot be read or written, or is damaged.
    """
    if path.exists():
        return read_key(path)
    key = os.urandom(KEY_BYTES)
    try:
        path.parent.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        write_bytes_durably(path, _with_checksum(key), private=True)
    except OSError as error:
        raise RunError(cannot_write(path, error)) from None
    return key


def _with_checksum(key: bytes) -> bytes:
    return key + hashlib.sha256(key).digest()[:8]
