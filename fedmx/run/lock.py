"""The lock of a run folder: one process at a time may write; the lock ends with the process."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from fedmx.run.errors import RunError

_held: set[int] = set()


def _close_in_child() -> None:
    """Close the lock files in a forked worker, which must not keep a dead server's lock."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold a lock file inside a with statement.

    Raises:
        RunError: a process holds it already, perhaps this one; the text has the process id. Or the
            file cannot be locked.
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
        if descriptor in _held:  # false in a forked child that leaves the with statement
            _held.discard(descriptor)
            os.ftruncate(descriptor, 0)
            os.close(descriptor)


def holder(path: Path) -> int | None:
    """Return the id of the living process that holds a lock file, or None, without locking it."""
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
    """Return the process id in a lock file, or None."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() and int(text) > 0 else None
