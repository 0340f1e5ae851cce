"""A pack that was read: whole, sealed, and as it was made. No code of it runs, nothing is written.

`PackFile.unpack` makes a run folder of it, for `fedmx report` and all else that reads one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmx.pack.container import (
    MANIFEST,
    MODULES,
    MOST_BYTES,
    members_of,
    sha256,
    to_bytes,
)
from fedmx.pack.errors import PackError
from fedmx.pack.manifest import Manifest, Member
from fedmx.pack.own_modules import check_root, roots_of
from fedmx.run import RunError, RunFolder
from fedmx.run.identity import Identity

_NEEDED = ("run.json", "experiment.yaml", "status.json", "rounds.jsonl", "clients.jsonl")


@dataclass(frozen=True)
class PackFile:
    """A pack whose seal, manifest and members fit together.

    Attributes:
        manifest: what is in it.
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
            PackError: it is no pack, or is damaged; the text has no file's name.
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
            PackError: it cannot be read, is no pack, or is damaged.
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
            PackError: the folder exists or cannot be written, or what was packed is no run folder,
                or that of a fork.
        """
        folder = Path(folder)
        if folder.exists():
            raise PackError(f"{folder}: it exists; give the name of a new folder")
        temporary = folder.with_name(f".unpacking-{os.getpid()}-{folder.name}")
        try:
            temporary.mkdir()
            for name, content in self.members.items():
                path = temporary / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            identity = Identity.read(temporary)
            check_no_fork(identity.facts)
            facts = of_any_machine(identity.facts)
            if self.modules:
                facts["modules"] = MODULES.rstrip(
                    "/"
                )  # beside run.json, so that the folder can be moved
            if facts != identity.facts:
                Identity(facts, identity.files, identity.format).write(temporary)
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


def check_no_fork(facts: Mapping[str, Any]) -> None:
    """Check that the facts of a packed run are not those of a fork.

    Raises:
        PackError: they are.
    """
    if "fork" in facts:
        raise PackError(
            "its run is a fork, whose first rounds had other settings, so that it cannot be run "
            "again from the start; pack the run that it is a fork of"
        )


def of_any_machine(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a run without those that mean nothing, or another thing, elsewhere."""
    return {key: one for key, one in facts.items() if key not in ("modules", "address")}


def packed(manifest: Manifest, members: Mapping[str, bytes]) -> bytes:
    """Return the file of a pack; the manifest gets the table of its members.

    Raises:
        PackError: a pack cannot hold them.
    """
    table = {name: Member(bytes=len(one), sha256=sha256(one)) for name, one in members.items()}
    sealed = manifest.model_copy(update={"members": table})
    return to_bytes({MANIFEST: sealed.to_bytes(), **members})
