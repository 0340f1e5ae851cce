"""The file of a pack: a ZIP archive in which every byte follows from its members.

The members stand in a fixed order, with one fixed time, and are stored, not compressed. So
the same members give the same bytes with every version of zlib, and a file cannot unpack to more
than its own size. Whoever reads a file makes it again from what was read, and compares: nothing is
in it beside the members, and no byte of it can change unseen.
"""

from __future__ import annotations

import hashlib
import io
import re
import struct
import zipfile
from collections.abc import Mapping

from fedmx.pack.errors import PackError

MANIFEST = "manifest.json"
RUN_FILES = (
    "run.json",
    "experiment.yaml",
    "status.json",
    "rounds.jsonl",
    "clients.jsonl",
    "course.jsonl",
    "model.safetensors",
    "start.safetensors",
    "words.json",
)
"""The files of a run folder that a pack can hold."""

MODULES = "modules/"
MODULE = re.compile(r"modules/(?:[A-Za-z_][A-Za-z0-9_]*/){0,20}[A-Za-z_][A-Za-z0-9_]*\.py")
"""The name of the member that holds a module of the user's own."""

MOST_MEMBERS = 1000
LONGEST_NAME = 200
MOST_BYTES = 1 << 30

_TIME = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_MODE = 0o100644
_SEAL = re.compile(rb"fedmx pack ([0-9a-f]{64})")


def is_name(name: str) -> bool:
    """Return whether a pack can have a member of this name: no other is ever written anywhere."""
    if name == MANIFEST or name in RUN_FILES:
        return True
    return len(name) <= LONGEST_NAME and MODULE.fullmatch(name) is not None


def to_bytes(members: Mapping[str, bytes]) -> bytes:
    """Return the file of a pack.

    Args:
        members: the manifest and all other members, by name.

    Raises:
        PackError: there are too many members, too many bytes, or a name is none of a pack's.
    """
    _check_limits(len(members), sum(map(len, members.values())))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
        for name in sorted(members, key=_place):
            if not is_name(name):
                raise PackError(f"{name!r} is no name of a pack's member")
            entry = zipfile.ZipInfo(name, _TIME)
            entry.create_system = _UNIX
            entry.external_attr = _MODE << 16
            archive.writestr(entry, members[name])
        archive.comment = b"fedmx pack " + sha256(members[MANIFEST]).encode()
    return file.getvalue()


def members_of(content: bytes) -> dict[str, bytes]:
    """Return the members in the file of a pack, the manifest among them, whose seal is right.

    Raises:
        PackError: it is not the file of a pack, or is damaged; the text has no file's name.
    """
    members: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            _check_limits(len(entries), sum(entry.file_size for entry in entries))
            seal = _SEAL.fullmatch(archive.comment)
            for entry in entries:
                name = entry.filename
                if not is_name(name) or name in members:
                    raise PackError(f"not a pack: it has the member {name[:LONGEST_NAME]!r}")
                if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > len(content):
                    raise PackError(f"damaged: its member {name} is not stored as it is")
                members[name] = archive.read(entry)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise PackError(f"not a pack, or damaged ({_one_line(error)})") from None
    except (OSError, OverflowError, ValueError, struct.error) as error:
        raise PackError(f"damaged ({_one_line(error)})") from None
    if seal is None or MANIFEST not in members:
        raise PackError("not a pack: it has no manifest, or no seal")
    if seal[1].decode() != sha256(members[MANIFEST]):
        raise PackError("damaged: its manifest is not the one that was sealed")
    if to_bytes(members) != content:
        raise PackError("damaged: there is more in the file than its members")
    return members


def sha256(content: bytes) -> str:
    """Return the SHA-256 of some bytes (hex)."""
    return hashlib.sha256(content).hexdigest()


def _place(name: str) -> tuple[int, str]:
    """Return where a member stands: the manifest, the run's files, then the modules by name."""
    if name == MANIFEST:
        return 0, name
    return (1 + RUN_FILES.index(name), name) if name in RUN_FILES else (1 + len(RUN_FILES), name)


def _check_limits(members: int, size: int) -> None:
    if members > MOST_MEMBERS:
        raise PackError(f"it has {members} members; a pack has at most {MOST_MEMBERS}")
    if size > MOST_BYTES:
        raise PackError(f"its members have {size} bytes; a pack has at most {MOST_BYTES}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
