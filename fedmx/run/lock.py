"""The lock of a run folder: one writing process at a time; the lock ends with its process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from fedmx.run.durable import PRIVATE, RunError, advice_on

TRIES, PAUSE_S = 10, 0.01

_held: set[int] = set()


def _close_in_child() -> None:
    """Close the lock files in a forked worker, so that it does not keep a dead server's lock."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold a lock file inside a with statement.

    Raises:
        RunError: another process or this one holds it (the text has the process id), or the file
            cannot be locked.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    except OSError as error:
        raise RunError(_cannot_lock(path, error)) from None
    try:
        _lock(descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        holder = _recorded(path)
        os.close(descriptor)
        raise RunError(
            f"{path.parent}: in use by process {holder or '(unknown)'}; "
            "wait until it ends, or end it"
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise RunError(_cannot_lock(path, error)) from None
    _held.add(descriptor)
    try:
        yield
    finally:
        if descriptor in _held:  # false in a forked child that leaves the with statement
            _held.discard(descriptor)
            with contextlib.suppress(OSError):  # it must not hide the error that ends the run
                os.ftruncate(descriptor, 0)
            os.close(descriptor)


def holder(path: Path) -> int | None:
    """Return the id of the process that holds a lock file, or None.

    The id alone proves nothing: after a kill, another process can have it (in containers, each
    server is process 1). So this tries the lock for a moment, shared with other readers.
    """
    pid = _recorded(path)
    if pid is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return pid
    finally:
        os.close(descriptor)
    return None


def _cannot_lock(path: Path, error: OSError) -> str:
    return f"{path}: cannot lock the run folder ({error.strerror}){advice_on(error)}"


def _lock(descriptor: int) -> None:
    """Lock a file, even while `holder` tries its lock.

    Raises:
        BlockingIOError: a process holds it.
    """
    for _ in range(TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(PAUSE_S)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _recorded(path: Path) -> int | None:
    """Return the process id in a lock file, or None."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() and int(text) > 0 else None
