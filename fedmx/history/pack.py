"""Packs: a run in one file, whole, sealed and readable without running anything of it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import struct
import sys
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedmx.errors import FedmxError
from fedmx.run import RunError, RunFolder
from fedmx.run.durable import PRIVATE_FOLDER
from fedmx.run.identity import Identity


class PackError(FedmxError):
    """A pack cannot be made, read or verified, or its content has changed."""


FEDMX = ("fedmx", "layers")

MANIFEST = "manifest.json"
RUN_FILES = (
    "run.json",
    "experiment.yaml",
    "status.json",
    "rounds.jsonl",
    "clients.jsonl",
    "evaluations.jsonl",
    "journal.jsonl",
    "model.safetensors",
    "start.safetensors",
    "labels.json",
    "words.json",
)
"""The files of a run folder that a pack can hold."""

MODULES = "modules/"
MODULE = re.compile(r"modules/(?:[A-Za-z_][A-Za-z0-9_]*/){0,20}[A-Za-z_][A-Za-z0-9_]*\.py")
"""The name of the member that holds a module of the user's own."""

CHECKPOINT = re.compile(r"checkpoints/round-\d{6}\.safetensors")
"""The name of the member that holds the checkpoint with which a fork begins."""

MOST_MEMBERS = 1000
LONGEST_NAME = 200
MOST_BYTES = 1 << 30

_UNIX = 3
_MODE = 0o100644
_SEAL = re.compile(rb"fedmx pack ([0-9a-f]{64})")


def is_name(name: str) -> bool:
    """Return whether a pack can have a member of this name; no other is written anywhere."""
    if name == MANIFEST or name in RUN_FILES or CHECKPOINT.fullmatch(name):
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
            entry = zipfile.ZipInfo(name)
            entry.create_system = _UNIX
            entry.external_attr = _MODE << 16
            archive.writestr(entry, members[name])
        archive.comment = b"fedmx pack " + sha256(members[MANIFEST]).encode()
    return file.getvalue()


def members_of(content: bytes) -> dict[str, bytes]:
    """Return the members in the file of a pack, the manifest among them, whose seal is right.

    Raises:
        PackError: it is not a pack, or is damaged; the text has no file name.
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
    """Return the place of a member: the manifest, the run's files, then the modules by name."""
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


FORMAT = 1
MOST_MANIFEST_BYTES = 16 << 20
"""Of a manifest: a million clients' sizes take about five of them."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
WholeNumber = Annotated[int, Field(ge=0, lt=2**63)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Member(_Part):
    """A member: its length in bytes, and its SHA-256 (hex)."""

    bytes: WholeNumber
    sha256: Sha256


class Data(_Part):
    """The data of the run, by which they are known where they are at hand.

    Attributes:
        name: what messages call the data set.
        sha256: of the samples and labels as they were loaded; see `fedmx.assembly.data`.
        partition_sha256: of each client's rows; None: the samples come client by client.
        sizes: each client's number of training samples; or one number for all.
        test: the number of test samples.
    """

    name: str
    sha256: Sha256
    partition_sha256: Sha256 | None
    sizes: tuple[WholeNumber, ...] | WholeNumber
    test: WholeNumber


class Manifest(_Part):
    """What is in a pack.

    Attributes:
        format: of the pack.
        run: the name of the run folder.
        members: all other members, by name.
        data: the data of the run.
        weights: the names of the model's parameters, in the order of the flat vector.
        buffers: the names of its non-trainable tensors, in the order of theirs.
        packages: the installed package of each module that the experiment names and that is not in
            the pack, with its version, as ``name version``.
    """

    format: int = FORMAT
    run: str
    members: dict[str, Member]
    data: Data
    weights: tuple[str, ...]
    buffers: tuple[str, ...]
    packages: dict[str, str]

    def to_bytes(self) -> bytes:
        """Return the manifest as its member holds it."""
        return (json.dumps(self.model_dump(), indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def of_bytes(cls, content: bytes) -> Manifest:
        """Return the manifest that a member holds.

        Raises:
            PackError: it is none, or a newer fedmx wrote it.
        """
        if len(content) > MOST_MANIFEST_BYTES:
            raise PackError(
                f"its manifest has {len(content)} bytes; at most {MOST_MANIFEST_BYTES} are read"
            )
        try:
            found = _Format.model_validate_json(content).format
            if found > FORMAT:
                raise PackError(
                    f"the pack has format {found}, this fedmx reads up to {FORMAT}; "
                    "use the version that made it, or a newer one"
                )
            return cls.model_validate_json(content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(part)[:60] for part in first["loc"])
            text = " ".join(f"{where}: {first['msg']}".split())
            raise PackError(f"not a pack: its manifest is wrong ({text})") from None


class _Format(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    format: int


_NEEDED = ("run.json", "experiment.yaml", "status.json", "rounds.jsonl", "clients.jsonl")


@dataclass(frozen=True)
class PackFile:
    """A pack whose seal, manifest and members fit together.

    Attributes:
        manifest: the list of its content.
        members: the content of all members but the manifest, by name.
        sha256: of the whole file (hex), as ``sha256sum`` prints it.
    """

    manifest: Manifest
    members: Mapping[str, bytes]
    sha256: str

    @classmethod
    def of_bytes(cls, content: bytes) -> PackFile:
        """Return the pack that a file holds.

        Raises:
            PackError: it is not a pack, or is damaged; the text has no file name.
        """
        members = members_of(content)
        manifest = Manifest.of_bytes(members.pop(MANIFEST))
        for name, member in manifest.members.items():
            if name not in members:
                raise PackError(f"damaged: its member {name[:60]!r} is missing")
            if (len(members[name]), sha256(members[name])) != (member.bytes, member.sha256):
                raise PackError(
                    f"damaged: the SHA-256 of its member {name} is not the recorded one"
                )
        for name in (*members, *_NEEDED):
            if name not in manifest.members:
                raise PackError(f"not a pack: {name} is not in its manifest")
        for root in roots_of(members):
            check_root(root)
        return cls(manifest, members, sha256(content))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> PackFile:
        """Read a pack.

        Raises:
            PackError: it cannot be read, is not a pack, or is damaged.
        """
        path = Path(path)
        try:
            size = path.stat().st_size
            if size > 2 * MOST_BYTES:
                raise PackError(f"it has {size} bytes; a pack has at most {MOST_BYTES}")
            return cls.of_bytes(path.read_bytes())
        except OSError as error:
            raise PackError(f"{path}: cannot read it ({error.strerror})") from None
        except PackError as error:
            raise PackError(f"{path}: {error}") from None

    @property
    def modules(self) -> dict[str, str]:
        """The text of each module of the user's own, by its file's name."""
        return {
            name.removeprefix(MODULES): content.decode(errors="replace")
            for name, content in self.members.items()
            if name.startswith(MODULES)
        }

    def unpack(self, folder: str | os.PathLike[str]) -> RunFolder:
        """Write the pack as a run folder; the modules are in its folder ``modules``.

        Args:
            folder: the new folder.

        Raises:
            PackError: the folder exists or cannot be written, or the pack has no run folder.
        """
        folder = Path(folder)
        if folder.exists():
            raise PackError(f"{folder}: it exists; give the name of a new folder")
        temporary = folder.with_name(f".unpacking-{os.getpid()}-{folder.name}")
        try:
            temporary.mkdir(PRIVATE_FOLDER)
            for name, content in self.members.items():
                path = temporary / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            identity = Identity.read(temporary)
            fork_round(identity.facts)
            facts = of_any_machine(identity.facts)
            if self.modules:
                facts["modules"] = MODULES.rstrip(
                    "/"
                )  # beside run.json, so that the folder can be moved
            if facts != identity.facts:
                Identity(facts, identity.files).write(temporary)
            RunFolder.open(temporary)
            os.rename(temporary, folder)
        except OSError as error:
            raise PackError(f"{folder}: cannot write it ({error.strerror})") from None
        except RunError as error:
            text = str(error).replace(f"{temporary}{os.sep}", "")
            raise PackError(f"the pack holds no run: {text}") from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return RunFolder.open(folder)


def fork_round(facts: Mapping[str, Any]) -> int:
    """Return the last round that a packed fork shares with its parent; 0: it shares none.

    Raises:
        PackError: the facts of the fork are not those that fedmx writes.
    """
    if "fork" not in facts:
        return 0
    fork = facts["fork"]
    round, name = (fork.get("round"), fork.get("run")) if isinstance(fork, dict) else (None, None)
    if type(round) is not int or not 0 <= round < 1_000_000 or not isinstance(name, str):
        raise PackError("its run is a fork, and run.json names no run and round that it comes from")
    return round


def of_any_machine(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a run without those that have no meaning on another machine."""
    kept = {key: one for key, one in facts.items() if key not in ("modules", "address")}
    if isinstance(fork := kept.get("fork"), dict):
        kept["fork"] = {**fork, "folder": fork.get("run", "")}
    return kept


def packed(manifest: Manifest, members: Mapping[str, bytes]) -> bytes:
    """Return the file of a pack; the manifest gets the table of its members.

    Raises:
        PackError: a pack cannot hold them.
    """
    table = {name: Member(bytes=len(one), sha256=sha256(one)) for name, one in members.items()}
    sealed = manifest.model_copy(update={"members": table})
    return to_bytes({MANIFEST: sealed.to_bytes(), **members})


def roots_of(names: Iterable[str]) -> frozenset[str]:
    """Return the modules whose text is in a pack, from the names of its members."""
    inside = (name.removeprefix(MODULES) for name in names if name.startswith(MODULES))
    return frozenset(name.partition("/")[0].removesuffix(".py") for name in inside)


def check_root(root: str) -> None:
    """Check that a module does not replace one that fedmx itself uses.

    Raises:
        PackError: it does.
    """
    if root in sys.stdlib_module_names or root in FEDMX:
        raise PackError(f"the module {root} has the name of one of Python's or fedmx's; rename it")
