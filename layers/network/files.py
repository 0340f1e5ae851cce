"""Files on disk: those to send, and those that are being received."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

from layers.network.errors import NotWanted, TransferError

PART = ".part"
BLOCK_BYTES = 1 << 20
MAX_NAME_BYTES = 200


@dataclass(frozen=True)
class Outgoing:
    """A file to send, with the size and SHA-256 that it had when it was measured."""

    path: Path
    name: str
    size: int
    sha256: bytes

    @classmethod
    def measure(cls, path: Path, name: str | None = None) -> Outgoing:
        """Read a file for its size and SHA-256.

        Raises:
            TransferError: it cannot be read, or its name is not allowed.
        """
        name = check_name(path.name if name is None else name)
        with _explained(path, "read"), open(path, "rb") as file:
            digest, size = _digest(file, None), file.tell()
        return cls(path, name, size, digest)

    def start(self, offset: int, sha256: bytes, wanted: Callable[[], bool] = lambda: True) -> int:
        """Return `offset` if the bytes before it have this SHA-256, otherwise 0.

        Raises:
            TransferError: the file cannot be read.
            NotWanted: `wanted` became false.
        """
        with _explained(self.path, "read"), open(self.path, "rb", buffering=0) as file:
            same = 0 <= offset <= self.size and _digest(file, offset, wanted) == sha256
        return offset if same else 0

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes at `offset`.

        The file is opened for each read: a server would otherwise need a descriptor per client.

        Raises:
            TransferError: the file cannot be read, or has become shorter.
        """
        with _explained(self.path, "read"), open(self.path, "rb", buffering=0) as file:
            block = os.pread(file.fileno(), size, offset)
        if len(block) != size:
            raise TransferError(f"{self.path} became shorter while it was being sent")
        return block


class Incoming:
    """A file that is received into NAME.part; it is renamed to NAME when complete and verified.

    Methods raise TransferError if the file cannot be read or written, or the sender breaks a rule.
    Hashing raises NotWanted when `wanted`, which any thread may call, returns False.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        size: int,
        sha256: bytes,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.path = folder / check_name(name)
        self.size = size
        self.sha256 = sha256
        self.offset = 0
        self.restarted = False
        self._wanted = wanted
        self._part = folder / (name + PART)
        self._file: IO[bytes] | None = None
        self._may_begin = False
        self._may_write = False
        self._hash = hashlib.sha256()
        self._kept = hashlib.sha256()

    def resume(self) -> tuple[int, bytes]:
        """Return the number of bytes that an earlier attempt left, and their SHA-256."""
        with _explained(self.path, "written"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _open_part(self._part)
            self.offset = os.fstat(self._file.fileno()).st_size
            if self.offset > self.size:
                self._restart()
            _feed(self._file, self.offset, self._kept, self._wanted)
            free = shutil.disk_usage(self.path.parent).free
        if free < self.size - self.offset:
            raise TransferError(
                f"{self.path} needs {self.size - self.offset} more bytes, the disk has {free} free"
            )
        self._may_begin = True
        return self.offset, self._kept.digest()

    def is_stored(self) -> bool:
        """Return whether the folder already has the offered file."""
        try:
            with open(self.path, "rb") as file:
                if os.fstat(file.fileno()).st_size != self.size:
                    return False
                return _digest(file, None, self._wanted) == self.sha256
        except OSError:
            return False

    def begin(self, offset: int) -> bool:
        """Start at the offset from `resume`, or at 0; return whether the file is complete."""
        if self._file is None or not self._may_begin or offset not in (0, self.offset):
            raise TransferError(f"{self.path.name}: unexpected start at {offset}")
        with _explained(self.path, "written"):
            if offset == 0:
                self._restart()
            self._file.seek(offset)
        self._hash = self._kept.copy()
        return self._progress()

    def write(self, data: memoryview) -> bool:
        """Append bytes; return whether the file is complete."""
        if self._file is None or not self._may_write or len(data) > self.size - self.offset:
            raise TransferError(f"{self.path.name}: unexpected bytes")
        with _explained(self.path, "written"):
            left = data
            while len(left):
                written = self._file.write(left)
                self._hash.update(left[:written])
                self.offset += written
                left = left[written:]
        return self._progress()

    def finish(self) -> bool:
        """Rename a complete file and return True; empty it if its SHA-256 is wrong."""
        assert self._file is not None
        with _explained(self.path, "written"):
            if self._hash.digest() != self.sha256:
                self._restart()
                self._may_begin = True
                return False
            os.fsync(self._file.fileno())
            self.close()
            os.replace(self._part, self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        return True

    def _progress(self) -> bool:
        self._may_begin = False
        self._may_write = self.offset < self.size
        return not self._may_write

    def close(self) -> None:
        """Close the file; its bytes are kept for another attempt."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def discard(self) -> None:
        """Close and delete the file."""
        self.close()
        self._part.unlink(missing_ok=True)

    def _restart(self) -> None:
        assert self._file is not None
        self._file.seek(0)
        self._file.truncate(0)
        self.offset = 0
        self._kept = hashlib.sha256()


def check_name(name: str) -> str:
    """Return the name if a received file may have it.

    Raises:
        TransferError: it is a path, hidden, ends in .part, is not printable, or too long.
    """
    wrong = (
        not name
        or name.startswith(".")
        or name.endswith(PART)
        or not name.isprintable()
        or any(separator in name for separator in "/\\:")
        or len(name.encode(errors="replace")) > MAX_NAME_BYTES
    )
    if wrong:
        raise TransferError(
            f"file name {name[:80]!r}: use a plain name without / \\ : or a leading dot, not "
            f"ending in {PART}, of at most {MAX_NAME_BYTES} bytes"
        )
    return name


def remove_unfinished(path: Path) -> None:
    """Remove the received part of the file at this path, unless it is being received now."""
    part = path.with_name(path.name + PART)
    with contextlib.suppress(OSError), open(part, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        part.unlink()


def _open_part(path: Path) -> IO[bytes]:
    """Open an unfinished file; its lock tells other processes that it is being received."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def _digest(file: IO[bytes], size: int | None, wanted: Callable[[], bool] = lambda: True) -> bytes:
    sha256 = hashlib.sha256()
    _feed(file, size, sha256, wanted)
    return sha256.digest()


def _feed(
    file: IO[bytes], size: int | None, sha256: hashlib._Hash, wanted: Callable[[], bool]
) -> None:
    """Hash the next `size` bytes, or all that follow, while they are wanted."""
    while size is None or size > 0:
        if not wanted():
            raise NotWanted("nobody waits for this file any more")
        block = file.read(BLOCK_BYTES if size is None else min(size, BLOCK_BYTES))
        if not block:
            return
        sha256.update(block)
        size = None if size is None else size - len(block)


@contextlib.contextmanager
def _explained(path: Path, done: str) -> Iterator[None]:
    """Turn an OSError into a TransferError that says what could not be done with a file."""
    try:
        yield
    except OSError as error:
        raise TransferError(f"{path} cannot be {done}: {error.strerror or error}") from None


MOST_FILES = 256  # remembered by `Measured`
TICK_NS = 100_000_000  # two writes within it may leave the same timestamp on a file

Stamp: TypeAlias = "tuple[int, int, int, int, int]"
"""Changes when a file is replaced or written: device, inode, size, mtime and ctime."""


class Measured:
    """Measures files to send, and remembers unchanged ones; safe in any thread."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[Stamp, Outgoing]] = {}  # the oldest first

    def measure(self, path: Path, name: str | None = None) -> Outgoing:
        """Return a file's size and SHA-256; read it only if it has changed.

        Raises:
            TransferError: it cannot be read, or its name is not allowed.
        """
        name = check_name(path.name if name is None else name)
        began_ns = time.time_ns()
        before = _stamp(path)
        known = self._known.get(path)
        if known is not None and known[0] == before:
            return dataclasses.replace(known[1], name=name)
        self._known.pop(path, None)
        outgoing = Outgoing.measure(path, name)
        # A file written a moment ago may be written again without a newer timestamp.
        if _stamp(path) == before and before[3] <= began_ns - TICK_NS:
            for oldest in list(self._known)[: 1 - MOST_FILES]:
                self._known.pop(oldest, None)
            self._known[path] = before, outgoing
        return outgoing


def _stamp(path: Path) -> Stamp:
    with _explained(path, "read"):
        found = os.stat(path)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
