"""A pack: an untrusted file, sealed or not.

Protected content is read only if the seal is right. So each input with readable members is read
twice: unchanged, and with the right seal and table.
"""

from __future__ import annotations

import encodings.cp437  # noqa: F401, zipfile loads it once, when it reads the first name
import io
import json
import zipfile

from fedmx.history.pack import MANIFEST, PackError, PackFile, is_name, sha256, to_bytes
from tests.fuzz.target import Target


def read(data: bytes) -> None:
    """Read a pack, also with the right seal."""
    sealed = _sealed(data)
    with_seal = None if sealed is None else _reason(sealed)
    reason = _reason(data)
    if with_seal is not None or reason is not None:
        raise PackError(with_seal or str(reason))


def _reason(data: bytes) -> str | None:
    try:
        pack = PackFile.of_bytes(data)
    except PackError as error:
        return str(error)
    assert all(is_name(name) for name in pack.members)
    assert sum(map(len, pack.members.values())) < len(data)
    return None


def _sealed(data: bytes) -> bytes | None:
    """Return the pack with the right table and seal, None if its members are unreadable."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
            if not stored or any(entry.file_size > len(data) for entry in entries):
                return None
            members = {entry.filename: archive.read(entry) for entry in entries}
        manifest = json.loads(members.pop(MANIFEST))
        manifest["members"] = {
            name: {"bytes": len(one), "sha256": sha256(one)} for name, one in members.items()
        }
        return to_bytes({MANIFEST: json.dumps(manifest).encode(), **members})
    except (zipfile.BadZipFile, EOFError, LookupError, PackError, RuntimeError, TypeError):
        return None
    except (OSError, ValueError):
        return None


TARGET = Target("pack", read, (PackError,))
