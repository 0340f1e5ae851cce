"""The files that an end expects: it receives no other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from layers.network.errors import UnexpectedFile

MAX_WAITING = 64
"""How many offers of a connection may wait until it is known which files are expected."""


@dataclass(frozen=True)
class ExpectedFile:
    """A file that may be received: only with this name, size in bytes and SHA-256 (32 bytes)."""

    name: str
    size: int
    sha256: bytes


class ExpectedFiles:
    """The expected files by name, as soon as they are known."""

    def __init__(self) -> None:
        self._files: dict[str, ExpectedFile] | None = None

    def replace(self, files: Iterable[ExpectedFile]) -> None:
        """Expect these files and no other."""
        self._files = {file.name: file for file in files}

    def admits(self, offered: ExpectedFile, waiting: int) -> bool:
        """Return whether a file may be received now; if not, its offer must wait.

        Args:
            offered: what a peer offers.
            waiting: how many offers of this peer wait already.

        Raises:
            UnexpectedFile: it may never be received.
        """
        if self._files is None and waiting < MAX_WAITING:
            return False
        if (self._files or {}).get(offered.name) == offered:
            return True
        raise UnexpectedFile(
            f"the file {offered.name[:80]!r} of {offered.size} bytes with SHA-256 "
            f"{offered.sha256.hex()[:16]}... is offered, which was not announced"
        )
