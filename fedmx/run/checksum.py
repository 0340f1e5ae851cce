"""Checksums: of a record or a JSON document, inside it, and of a whole file, beside it.

The key ``checksum`` holds the CRC-32 (8 hexadecimal digits) of all other keys, whatever they are,
as JSON without blanks and with sorted keys. So any single flipped bit that changes a value is seen.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedmx.run.durable import write_text_durably
from fedmx.run.errors import DamagedError, RunError

CHECKSUM = "checksum"


class Document(NamedTuple):
    """A JSON document that was read.

    Attributes:
        values: its keys, without the checksum.
        checked: whether it had a checksum, which is right.
    """

    values: dict[str, Any]
    checked: bool


def sealed(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a mapping with the checksum of its keys as its last key.

    Args:
        values: what strict JSON can hold.
        name: of the file, for the message.

    Raises:
        RunError: there is a key ``checksum`` already.
    """
    if CHECKSUM in values:
        raise RunError(f"{name}: {CHECKSUM} is a key of fedmx itself; choose another name")
    return {**values, CHECKSUM: _crc(values)}


def unsealed(found: object) -> Document | None:
    """Return what was sealed, after a check; None if it is damaged."""
    if not isinstance(found, dict):
        return None
    if CHECKSUM not in found:
        return Document(found, False)
    values = {key: value for key, value in found.items() if key != CHECKSUM}
    return Document(values, True) if found[CHECKSUM] == _crc(values) else None


def write_document(path: Path, values: Mapping[str, Any]) -> None:
    """Replace a file by a JSON document with its checksum, whole or not at all.

    Raises:
        RunError: there is a key ``checksum`` already.
        OSError: the disk refuses.
    """
    write_text_durably(path, document_text(values, path.name))


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
        RunError: its content is another one, or it cannot be read.
    """
    try:
        if recorded is None or sha256_of(path) == recorded:
            return
    except OSError as error:
        raise RunError(f"{path}: cannot read it ({error.strerror})") from None
    raise RunError(f"{path}: damaged (its SHA-256 is not the recorded one); restore the file")


def _crc(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode('ascii')):08x}"
