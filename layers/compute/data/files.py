"""The files of data sets: in the user's data folder, in the cache, or downloaded into the cache.

A download resumes where it stopped, tries several addresses, and is checked for its length and its
SHA-256 before it gets its final name.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import http.client
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from layers.compute.errors import DataError, DownloadError, one_line

Progress = Callable[[str, int, int], None]
"""Called with a file's name, its bytes so far, and its bytes in all."""

_PIECE_BYTES = 1 << 17


def damaged(path: Path | str, what: str) -> DataError:
    """Return the error for a file that must be replaced."""
    return DataError(f"{path}: {what}; delete it and fetch it again")


@dataclass(frozen=True)
class Remote:
    """A file that can be downloaded: its name, addresses, SHA-256 and length in bytes."""

    name: str
    urls: tuple[str, ...]
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Files:
    """The folders in which data sets are searched, each in a folder of its own.

    Attributes:
        root: the user's folder, which is searched first and never written to; None: `FEDMX_DATA`,
            if it is set.
        cache: the folder for downloads; None: `FEDMX_CACHE`, or `fedmx` in the user's cache folder.
        download: whether to download a file that is in neither folder.
        named: whether a data set may name a file outside of these folders; not for an experiment
            that comes from somebody else.
        progress: called while a file is downloaded.
    """

    root: Path | None = None
    cache: Path | None = None
    download: bool = True
    named: bool = True
    progress: Progress | None = None

    def chosen(self, data_set: str, path: str) -> Path:
        """Return the path of a user's own file or folder, which an experiment names.

        Raises:
            DataError: the experiment comes from somebody else, or there is no such file or folder.
        """
        if not self.named:
            raise DataError(
                f"{data_set}: the path of a file cannot come from a server; give your own file "
                "with --data FILE, or a part of it with --data FILE --partition I/N"
            )
        found = Path(path).expanduser()
        if not found.exists():
            raise DataError(f"{found}: there is no such file; correct compute.data.path")
        return found

    def folders(self, data_set: str) -> tuple[Path, ...]:
        """Return the folders in which `data_set` is searched; the last is in the cache.

        Raises:
            DataError: the user's folder is not a folder.
        """
        root, named = self.root, "the data folder"
        if root is None and os.environ.get("FEDMX_DATA"):
            root, named = Path(os.environ["FEDMX_DATA"]), "FEDMX_DATA"
        cache = self.cache_of(data_set)
        if root is None:
            return (cache,)
        if not root.is_dir():
            raise DataError(f"{named} is {root}, which is not a folder; correct it or leave it out")
        return (root / data_set, cache)

    def cache_of(self, data_set: str) -> Path:
        """Return the folder of `data_set` in the cache, which may be written to."""
        return (self.cache or default_cache()) / data_set

    def places(self, data_set: str) -> str:
        """Return the folders in which `data_set` is searched, for messages."""
        return " or ".join(str(folder) for folder in self.folders(data_set))

    def existing(self, data_set: str, names: Sequence[str]) -> Path | None:
        """Return the path of the first of `names` that exists in `folders`, or None."""
        for folder in self.folders(data_set):
            for name in names:
                if (folder / name).exists():
                    return folder / name
        return None

    def find(self, data_set: str, names: Sequence[str], remote: Remote) -> Path:
        """Return the path of the first of `names` that exists; if none does, download `remote`.

        Raises:
            DataError: none exists, and `remote` must not or cannot be downloaded.
        """
        path = self.existing(data_set, names)
        if path is not None:
            return path
        if not self.download:
            raise DataError(
                f"{data_set}: no {' or '.join(names)} in {self.places(data_set)}; put it there, "
                "or allow the download"
            )
        return fetch(remote, self.cache_of(data_set), progress=self.progress)


def default_cache() -> Path:
    """Return the folder for downloads: `FEDMX_CACHE`, or `fedmx` in the XDG cache folder."""
    if os.environ.get("FEDMX_CACHE"):
        return Path(os.environ["FEDMX_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fedmx"


def fetch(
    remote: Remote,
    folder: Path,
    *,
    progress: Progress | None = None,
    rounds: int = 3,
    pause_s: float = 2.0,
    timeout_s: float = 30.0,
) -> Path:
    """Download a file into `folder` from the first address that gives the right bytes.

    Received bytes are kept in a file that ends in ".part", and a later call resumes from there.
    Only a complete file with the right SHA-256 gets its final name; wrong bytes are discarded. The
    addresses are tried in turn, `rounds` times, with pauses of `pause_s` in between. An address
    that gave a wrong file is not tried again. If several processes ask for the same file at once,
    one downloads it and the others wait.

    Returns:
        The path of the file.

    Raises:
        DownloadError: no address gave the file, or it cannot be written. The message has the reason
            for each address, and where to put a file from another source.
    """
    path = folder / remote.name
    if path.exists():
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = _open_part(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    problems: dict[str, str] = {}
    hopeless: set[str] = set()
    with part:
        if path.exists():  # Another process was faster.
            _part_of(path).unlink(missing_ok=True)
            return path
        for round_ in range(rounds):
            untried = [url for url in remote.urls if url not in hopeless]
            if round_ and untried:
                time.sleep(pause_s)
            for url in untried:
                resumed = part.seek(0, os.SEEK_END) > 0
                try:
                    _Transfer(url, part, path, remote.size_bytes, progress, timeout_s).run()
                    _check(part, remote.sha256)
                except _RefusedError as problem:
                    problems[url] = str(problem)
                    # An address that sent all bytes of a wrong file would send them again.
                    if isinstance(problem, _WrongFileError) and not resumed:
                        hopeless.add(url)
                else:
                    os.fsync(part.fileno())
                    os.replace(_part_of(path), path)
                    return path
        if not os.fstat(part.fileno()).st_size:
            _part_of(path).unlink(missing_ok=True)
    reasons = "; ".join(f"{url}: {problem}" for url, problem in problems.items())
    raise DownloadError(
        f"{path.name} could not be downloaded ({reasons}); try again, or put {path.name} into "
        f"{folder} by hand"
    )


def _unwritable(path: Path, error: OSError) -> DownloadError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return DownloadError(
        f"{path.name}: cannot write into {path.parent} ({error.strerror}); "
        f"{'make room' if full else 'check it'}, or choose another cache folder with FEDMX_CACHE"
    )


class _RefusedError(Exception):
    """An address did not give the file; another address, or a later attempt, may succeed."""


class _WrongFileError(_RefusedError):
    """An address gave another file."""


@dataclass(frozen=True)
class _Transfer:
    """One request to one address; received bytes are appended to the part file."""

    url: str
    part: BinaryIO
    path: Path
    size_bytes: int
    progress: Progress | None
    timeout_s: float

    def run(self) -> None:
        here = self.part.seek(0, os.SEEK_END)
        if here > self.size_bytes:
            here = self.part.truncate(0)
        if here == self.size_bytes:
            return
        request = urllib.request.Request(self.url, headers={"User-Agent": "fedmx"})
        if here:
            request.add_header("Range", f"bytes={here}-")
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                self._receive(response, here)
        except urllib.error.HTTPError as error:
            raise _RefusedError(f"HTTP {error.code} {error.reason}") from error
        except urllib.error.URLError as error:
            raise _RefusedError(str(error.reason)) from error
        except (OSError, http.client.HTTPException) as error:
            raise _RefusedError(one_line(error)) from error

    def _receive(self, response: Any, here: int) -> None:
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:
            announced = _total_of_range(response.headers.get("Content-Range", ""), here)
        else:  # The server does not support ranges: start again.
            here = self.part.truncate(0)
            length = response.headers.get("Content-Length", "")
            announced = int(length) if length.isdigit() else None
        if announced not in (None, self.size_bytes):
            raise _WrongFileError(f"its length is {announced} bytes, not {self.size_bytes}")
        missing, free = self.size_bytes - here, shutil.disk_usage(self.path.parent).free
        if missing > free:
            raise DownloadError(
                f"{self.path.name} needs {missing} bytes more in {self.path.parent}, which "
                f"has {free} free; make room or choose another cache folder with FEDMX_CACHE"
            )
        while piece := response.read(_PIECE_BYTES):
            here += len(piece)
            if here > self.size_bytes:
                self.part.truncate(0)
                raise _WrongFileError(f"it has more than its {self.size_bytes} bytes")
            self._write(piece)
            if self.progress is not None:
                self.progress(self.path.name, here, self.size_bytes)
        if here < self.size_bytes:
            raise _RefusedError(f"the connection ended after {here} of {self.size_bytes} bytes")

    def _write(self, piece: bytes) -> None:
        try:
            rest = memoryview(piece)
            while rest:  # An unbuffered file may write less than it is given.
                rest = rest[self.part.write(rest) :]
        except OSError as error:
            raise _unwritable(self.path, error) from error


def _open_part(path: Path) -> BinaryIO:
    """Open the part file of `path` for appending, unbuffered, and lock it."""
    while True:
        part = open(_part_of(path), "a+b", buffering=0)  # noqa: SIM115
        fcntl.flock(part, fcntl.LOCK_EX)
        try:
            if os.path.samestat(os.fstat(part.fileno()), os.stat(_part_of(path))):
                return part
        except FileNotFoundError:
            pass
        # Another process renamed or removed the file while this one waited for the lock.
        part.close()


def _part_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _check(part: BinaryIO, sha256: str) -> None:
    part.seek(0)
    digest = hashlib.sha256()
    while piece := part.read(_PIECE_BYTES):
        digest.update(piece)
    if digest.hexdigest() != sha256:
        part.truncate(0)
        raise _WrongFileError(f"its SHA-256 is {digest.hexdigest()}, not {sha256}")


def _total_of_range(content_range: str, here: int) -> int | None:
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", content_range.strip())
    if match is None or int(match[1]) != here:
        raise _RefusedError(
            f"it answered with the range {content_range!r}, not with bytes from {here}"
        )
    return None if match[2] == "*" else int(match[2])
