"""Durable files: a power cut leaves the old file or the new one, and a checksum shows any damage.

A JSON document or record keeps its checksum in the key ``checksum``: the CRC-32 (8 hexadecimal
digits) of all other keys, as JSON without blanks and with sorted keys. Whole files have a SHA-256,
recorded in another file.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedmx.errors import FedmxError

DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""The error numbers of a write beyond the disk, a quota or a limit of file sizes."""
READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}
"""The error numbers of a write that is not allowed."""


class RunError(FedmxError):
    """A run folder cannot be created, opened, used or written."""


class CheckpointError(RunError):
    """A checkpoint cannot be written, or all existing ones are damaged."""


class DamagedError(RunError):
    """A file of a run folder is damaged; the caller adds what to do to the text."""


def cannot_write(path: Path, error: OSError, what: str = "") -> str:
    """Return the text of a write error, and what to do.

    Args:
        path: the file or folder.
        error: the reason.
        what: the content that cannot be written; empty: the path is enough.
    """
    return f"{path}: cannot write{what and f' {what}'} ({error.strerror}){advice_on(error)}"


def advice_on(error: OSError) -> str:
    """Return what to do about a write error, as the end of a line; empty: nothing is known."""
    if error.errno in DISK_FULL:
        return "; free disk space"
    return "; make it writable" if error.errno in READ_ONLY else ""


TEMPORARY_PREFIX = ".writing-"
PRIVATE, PRIVATE_FOLDER = 0o600, 0o700
"""Modes of files that depend on private data: run folders, and the memory of clients."""


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to the disk; a rename alone does not survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def mode_in(folder: Path) -> int:
    """Return the mode of a new file: a folder that only its owner can open has private files."""
    return 0o666 if folder.stat().st_mode & 0o077 else PRIVATE


def write_durably(path: Path, write: Callable[[Path], None], *, private: bool = False) -> None:
    """Write a temporary file beside ``path``, sync it, and rename it to ``path``.

    On failure, ``path`` is unchanged and the temporary file is removed. A killed process leaves at
    most a file whose name starts with `TEMPORARY_PREFIX`.

    Args:
        path: the file to replace.
        write: fills the temporary file at the path that it is given.
        private: whether only the owner can read the file, whatever the umask and its folder.

    Raises:
        OSError: the file cannot be written, or ``write`` raised it.
    """
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{path.name}")
    try:
        temporary.touch(PRIVATE if private else mode_in(path.parent))
        mode = temporary.stat().st_mode
        write(temporary)
        descriptor = os.open(temporary, os.O_RDONLY)
        try:
            os.fchmod(descriptor, mode)  # safetensors makes a file that only its owner can read
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_bytes_durably(path: Path, content: bytes, *, private: bool = False) -> None:
    """Replace a file by bytes, atomically.

    Raises:
        OSError: the file cannot be written.
    """

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    write_durably(path, write, private=private)


def write_text_durably(path: Path, text: str) -> None:
    """Replace a file by a text in UTF-8, atomically.

    Raises:
        OSError: the file cannot be written.
    """
    write_bytes_durably(path, text.encode())


CHECKSUM = "checksum"


class Document(NamedTuple):
    """A JSON document that was read.

    Attributes:
        values: its keys, without the checksum.
        checked: whether it had a checksum, and it matches.
    """

    values: dict[str, Any]
    checked: bool


def sealed(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a mapping with the checksum of its keys as its last key.

    Args:
        values: values of strict JSON.
        name: of the file, for the message.

    Raises:
        RunError: there is a key ``checksum`` already.
    """
    if CHECKSUM in values:
        raise RunError(f"{name}: {CHECKSUM} is a key of fedmx itself; choose another name")
    return {**values, CHECKSUM: _crc(values)}


def unsealed(found: object) -> Document | None:
    """Check a sealed mapping and return its values; None if it is damaged."""
    if not isinstance(found, dict):
        return None
    if CHECKSUM not in found:
        return Document(found, False)
    values = {**found}
    return Document(values, True) if values.pop(CHECKSUM) == _crc(values) else None


def write_document(path: Path, values: Mapping[str, Any]) -> None:
    """Replace a file by a JSON document with its checksum, atomically.

    Raises:
        RunError: there is a key ``checksum`` already.
        OSError: the file cannot be written.
    """
    write_bytes_durably(path, document_text(values, path.name).encode(), private=True)


def document_text(values: Mapping[str, Any], name: str) -> str:
    """Return the text of a JSON document with its checksum; see `sealed`."""
    return json.dumps(sealed(values, name), indent=2) + "\n"


def read_document(path: Path) -> Document:
    """Read a JSON document.

    Raises:
        DamagedError: it cannot be read, or its checksum does not match.
    """
    try:
        found = json.loads(path.read_bytes().decode())
        document = unsealed(found)
    except json.JSONDecodeError as error:
        raise DamagedError(f"{path}:{error.lineno}: damaged ({error.msg})") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DamagedError(f"{path}:{line}: damaged ({error.reason})") from None
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: damaged ({error})") from None
    except OSError as error:
        raise DamagedError(f"{path}: cannot read it ({error.strerror})") from None
    if not isinstance(found, dict):
        raise DamagedError(f"{path}: not written by fedmx")
    if document is None:
        raise DamagedError(f"{path}: damaged (its checksum does not match)")
    return document


def sha256_of(path: Path) -> str:
    """Return the SHA-256 (hex) of a file.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_file(path: Path, recorded: str | None) -> None:
    """Check the content of a file by its SHA-256 (hex); None: none was recorded.

    Raises:
        RunError: it has other content, or cannot be read.
    """
    try:
        if recorded is None or sha256_of(path) == recorded:
            return
    except OSError as error:
        raise RunError(f"{path}: cannot read it ({error.strerror})") from None
    raise RunError(f"{path}: damaged (its SHA-256 is not the recorded one); restore the file")


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def _crc(values: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(_ENCODER.encode(values).encode('ascii')):08x}"
