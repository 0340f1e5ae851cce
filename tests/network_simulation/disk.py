"""Real files whose unsynced changes a power cut may undo."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fedmx.run.checkpoint
from tests.network_simulation.scheduler import Process, Scheduler

SLOW_S = 0.05  # the longest duration of a disk operation
GIVES_WAY = 0.3
Names = dict[str, int]


@dataclass(eq=False)
class Folder:
    """The state of a folder.

    Attributes:
        listings: the names with their inodes, from the last synced listing to the current one.
    """

    listings: list[Names] = field(default_factory=list)


class Disk:
    """The folders of all processes under `root`; each process owns those with its name.

    `os` functions are watched while `installed`. A process can be killed at each of them.
    """

    def __init__(self, root: Path, scheduler: Scheduler) -> None:
        self.root = root
        self.full: set[str] = set()  # names of processes whose disk is full
        self._scheduler = scheduler
        self._synced: dict[int, bytes] = {}  # by inode
        self._folders: dict[Path, Folder] = {}
        self._open: dict[int, tuple[Process, Path]] = {}

    def add(self, folder: Path) -> None:
        """Add a folder; its content counts as synced."""
        for path in [folder, *sorted(folder.rglob("*"))]:
            if path.is_dir():
                self._folders[path] = Folder([_names(path)])
            else:
                self._synced[path.stat().st_ino] = path.read_bytes()

    def open_files(self, process: Process) -> list[str]:
        """Return the open files of a process."""
        return [path.name for owner, path in self._open.values() if owner is process]

    # The end of a process

    def killed(self, process: Process, folder: Path) -> None:
        """Close the files of a killed process; after a power cut, undo unsynced changes."""
        for descriptor, (owner, _) in list(self._open.items()):
            if owner is process:
                del self._open[descriptor]
                _close(descriptor)
        if process.power:
            for path in sorted(self._folders):
                if path == folder or folder in path.parents:
                    self._take_back(path)

    def _take_back(self, folder: Path) -> None:
        """Reset a folder to its state at some moment since its last sync."""
        draw = self._scheduler.draw
        known = self._folders[folder]
        contents = {
            path.stat().st_ino: path.read_bytes() for path in folder.iterdir() if path.is_file()
        }
        left = draw.choice(known.listings)
        for path in sorted(folder.iterdir()):
            if path.is_file():
                _unlink(path)
        for name, inode in sorted(left.items()):
            synced, now = self._synced.get(inode), contents.get(inode)
            content = synced or b""
            if now is not None and now != synced:
                how, content = self._damage(synced or b"", now)
                self._scheduler.note(f"{name}: {how}")
            (folder / name).write_bytes(content)
            self._synced[(folder / name).stat().st_ino] = content
        self._folders[folder] = Folder([_names(folder)])

    def _damage(self, synced: bytes, now: bytes) -> tuple[str, bytes]:
        """Return the remains of a file with unsynced bytes."""
        draw = self._scheduler.draw
        same = next((at for at, (a, b) in enumerate(zip(synced, now, strict=False)) if a != b), -1)
        same = min(len(synced), len(now)) if same < 0 else same
        how = draw.choice(("kept", "lost", "short", "damaged"))
        if how == "kept" or same == len(now):
            return how, now
        if how == "lost":
            return how, synced
        cut = draw.randint(same, len(now))
        if how == "short":
            return how, now[:cut]
        return how, now[:cut] + bytes(len(now) - cut)

    # Operations

    def _ours(self, path: Any) -> Path | None:
        """Return an absolute path if a simulated process uses a file of this disk."""
        if self._scheduler.process is None or isinstance(path, int):
            return None
        whole = Path(path)
        return whole if self.root in whole.parents else None

    def _point(self, what: str, path: Path) -> None:
        process = self._scheduler.process
        assert process is not None
        self._scheduler.note(f"{process.name} {what} {path.name}")
        self._scheduler.point(SLOW_S, GIVES_WAY)

    def _check_room(self, path: Path) -> None:
        process = self._scheduler.process
        if process is not None and process.name in self.full:
            self._scheduler.note(f"{process.name} finds no room for {path.name}")
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    def _changed(self, folder: Path) -> None:
        known = self._folders.setdefault(folder, Folder([{}]))
        names = _names(folder)
        if names != known.listings[-1]:
            known.listings.append(names)

    def open(self, path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        whole = self._ours(path)
        if whole is None:
            return _open(path, flags, mode, **more)
        new = bool(flags & os.O_CREAT) and not whole.exists()
        if new:
            self._point("creates", whole)
            self._check_room(whole)
        descriptor = _open(path, flags, mode, **more)
        if new:
            self._synced.pop(os.fstat(descriptor).st_ino, None)
            self._changed(whole.parent)
        assert self._scheduler.process is not None
        self._open[descriptor] = self._scheduler.process, whole
        return descriptor

    def close(self, descriptor: int) -> None:
        if descriptor in self._open:
            del self._open[descriptor]
            _close(descriptor)
        elif self._scheduler.process is None or self._scheduler.process.alive:
            _close(descriptor)

    def fsync(self, descriptor: int) -> None:
        if self._scheduler.process is None:
            return
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if self.root not in path.parents:
            return _fsync(descriptor)
        self._point("syncs", path)
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            self._folders[path] = Folder([_names(path)])
        else:
            self._synced[found.st_ino] = path.read_bytes()

    def replace(self, source: Any, target: Any) -> None:
        whole = self._ours(target)
        if whole is None:
            return _replace(source, target)
        self._point("renames to", whole)
        _replace(source, target)
        self._changed(whole.parent)

    def unlink(self, path: Any, **more: Any) -> None:
        whole = self._ours(path)
        if whole is None:
            return _unlink(path, **more)
        self._point("removes", whole)
        _unlink(path, **more)
        self._changed(whole.parent)

    def pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        if descriptor not in self._open:
            return _pwrite(descriptor, data, offset)
        path = self._open[descriptor][1]
        draw, process = self._scheduler.draw, self._scheduler.process
        size = len(data)
        if process is not None and process.name in self.full:
            size = draw.randint(0, size - 1)
            if not size:
                self._check_room(path)
        elif draw.random() < 0.3:
            size = draw.randint(1, size)
        written = _pwrite(descriptor, data[:size], offset)
        self._point(f"writes {size} bytes of", path)
        return written

    def ftruncate(self, descriptor: int, size: int) -> None:
        if descriptor in self._open:
            self._point(f"truncates at {size}", self._open[descriptor][1])
        _ftruncate(descriptor, size)

    def save_file(self, arrays: Any, path: Any, metadata: Any = None) -> None:
        """Write a safetensors file like `safetensors.numpy.save_file`."""
        whole = self._ours(path)
        if whole is None:
            return _save_file(arrays, path, metadata=metadata)
        self._check_room(whole)
        _save_file(arrays, path, metadata=metadata)
        self._synced.pop(whole.stat().st_ino, None)
        self._changed(whole.parent)
        content = whole.read_bytes()
        half = self._scheduler.draw.randint(0, len(content))
        whole.write_bytes(content[:half])
        self._point(f"has written {half} bytes of", whole)
        whole.write_bytes(content)

    def write_bytes(self, path: Path, content: bytes) -> int:
        whole = self._ours(path)
        if whole is not None:
            self._check_room(whole)
            half = self._scheduler.draw.randint(0, len(content))
            _write_bytes(path, content[:half])
            self._point(f"has written {half} bytes of", whole)
        return _write_bytes(path, content)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Intercept the file operations of this process."""
        with ExitStack() as stack:
            for name in ("open", "close", "fsync", "replace", "unlink", "pwrite", "ftruncate"):
                stack.enter_context(patch.object(os, name, getattr(self, name)))
            disk = self

            def write_bytes(path: Path, content: bytes) -> int:
                return disk.write_bytes(path, content)

            def glob(path: Path, pattern: str, **more: Any) -> Iterator[Path]:
                return iter(
                    sorted(_glob(path, pattern, **more))
                )  # whatever the file system's order

            stack.enter_context(patch.object(Path, "write_bytes", write_bytes))
            stack.enter_context(patch.object(Path, "glob", glob))
            stack.enter_context(patch.object(fedmx.run.checkpoint, "save_file", self.save_file))
            yield


def _names(folder: Path) -> Names:
    return {path.name: path.stat().st_ino for path in folder.iterdir() if path.is_file()}


_open: Callable[..., int] = os.open
_close, _fsync, _replace, _unlink = os.close, os.fsync, os.replace, os.unlink
_pwrite, _ftruncate = os.pwrite, os.ftruncate
_save_file, _write_bytes = fedmx.run.checkpoint.save_file, Path.write_bytes
_glob = Path.glob
