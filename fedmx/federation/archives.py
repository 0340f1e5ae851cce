"""The archives of run folders, which operators fetch: each is made once, outside of the loop."""

from __future__ import annotations

import os
import tarfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from fedmx.errors import FedmxError
from fedmx.run.durable import read_document, sha256_of, write_document
from fedmx.run.secret_file import SECRET


class Archives:
    """Makes the archives of jobs that are over, one at a time, in a thread."""

    def __init__(self) -> None:
        self._waiting: dict[Path, set[str]] = {}  # who waits for it, the first one is being made
        self._made: SimpleQueue[Mapping[str, Any] | Exception] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def ask(self, folder: Path, peer: str) -> Mapping[str, Any] | None:
        """Return what identifies the archive of a job; None: `made` gives it later.

        Args:
            folder: of the job.
            peer: who asks.

        Raises:
            DamagedError: the file that has it is damaged.
        """
        archive = archive_of(folder)
        if archive.exists():
            return read_document(archive.with_suffix(".json")).values
        self._waiting.setdefault(folder, set()).add(peer)
        self._make_next()
        return None

    def made(self) -> Iterator[tuple[str, Mapping[str, Any] | Exception]]:
        """Yield who waited for an archive that is ready, and what identifies it, or the error."""
        while not self._made.empty():
            found = self._made.get()
            self._thread = None
            for peer in self._waiting.pop(next(iter(self._waiting))):
                yield peer, found
            self._make_next()

    def _make_next(self) -> None:
        if self._waiting and self._thread is None:
            words = (next(iter(self._waiting)),)
            self._thread = threading.Thread(target=self._make, args=words, daemon=True)
            self._thread.start()

    def _make(self, folder: Path) -> None:
        try:
            self._made.put(_written(folder))
        except (OSError, tarfile.TarError, FedmxError) as error:
            self._made.put(error)


def archive_of(folder: Path) -> Path:
    """Return the file of the archive of a job, in its folder."""
    return folder / f"{folder.name}.tar"


def _written(folder: Path) -> Mapping[str, Any]:
    archive = archive_of(folder)
    temporary = archive.with_suffix(".part")
    try:
        with temporary.open("wb") as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                for one in sorted((folder / "runs").glob("*")):
                    tar.add(one, one.name, filter=_plain)
            file.flush()
            os.fsync(file.fileno())
        size, digest = temporary.stat().st_size, sha256_of(temporary)
        found = {"file": archive.name, "bytes": size, "sha256": digest}
        write_document(archive.with_suffix(".json"), found)
        os.replace(temporary, archive)
    finally:
        temporary.unlink(missing_ok=True)
    return found


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    secret = Path(member.name).name in (SECRET, "lock")
    return member if (member.isfile() and not secret) or member.isdir() else None
