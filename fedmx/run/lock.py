"""The right to write to a run folder: one process at a time, given up when it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from fedmx.run.errors import RunError

_held: set[int] = set()


def _forget_in_child() -> None:
    # A forked worker must not keep the lock of a server that died.
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` inside a with statement.

    Raises RunError, with the process id of the holder, when it is held already (by this process,
    too).
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise RunError(f"{path}: cannot lock the run folder ({error.strerror})") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        holder = _recorded(path)
        os.close(descriptor)
        raise RunError(
            f"{path.parent}: the run is in use by process {holder or '(unknown)'}; "
            "wait until it ends, or end it"
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise RunError(f"{path}: cannot lock the run folder ({error.strerror})") from None
    _held.add(descriptor)
    try:
        yield
    finally:
        if descriptor in _held:  # not so in a forked child that leaves the with statement
            _held.discard(descriptor)
            os.ftruncate(descriptor, 0)
            os.close(descriptor)


def holder(path: Path) -> int | None:
    """The id of the living process that says it holds ``path``, without touching the lock."""
    pid = _recorded(path)
    if pid is None:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return pid


def _recorded(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() and int(text) > 0 else None
