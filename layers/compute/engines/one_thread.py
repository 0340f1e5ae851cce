"""The context in which an engine's operators run on one thread, so that sums have the same bits."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Thread(threading.local):
    """The calling thread: how often its operators are limited, and their threads before that."""

    def __init__(self) -> None:
        self.limits = _Limits()


class _Limits:
    def __init__(self) -> None:
        self.held = 0
        self.before: list[int] = []


class OneThread(ABC):
    """A context in which operators run on one thread, and other threads run none.

    Libraries split a sum among their threads, so the number of threads changes the last bits. It is
    set when a thread enters, and restored afterwards. To enter the context again, inside of itself
    or of `kept`, takes no time.

    Attributes:
        turn: is held while operators run.
        thread: `thread.limits.held` is how often the calling thread is in the context or in `kept`.
    """

    def __init__(self) -> None:
        self.turn = threading.RLock()
        self.thread = _Thread()

    @abstractmethod
    def limit(self, before: list[int]) -> None:
        """Limit the calling thread's operators, and note in `before` what `restore` needs."""

    @abstractmethod
    def restore(self, before: list[int]) -> None:
        """Undo `limit`, which an interrupt may have ended early."""

    def __enter__(self) -> None:
        self.turn.acquire()
        limits = self.thread.limits
        limits.held += 1
        if limits.held == 1:
            try:
                limits.before.clear()
                self.limit(limits.before)
            except BaseException:
                self.__exit__()
                raise

    def __exit__(self, *_error: object) -> None:
        limits = self.thread.limits
        limits.held -= 1
        try:
            if not limits.held:
                self.restore(limits.before)
        finally:
            self.turn.release()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep this thread's operators on one thread; other threads may run theirs."""
        limits = self.thread.limits
        with self:
            limits.held += 1
        try:
            yield
        finally:
            if limits is self.thread.limits:
                with self:
                    limits.held -= 1
            else:  # a generator may end in another thread, whose limits this must not change
                limits.held -= 1


def limit_libraries(libraries: list[Any], before: list[int]) -> None:
    """Set libraries of threadpoolctl to one thread, and append their numbers to `before`."""
    for library in libraries:
        before.append(library.get_num_threads())
        library.set_num_threads(1)


def restore_libraries(libraries: list[Any], before: list[int]) -> None:
    """Give libraries their numbers of threads again; `before` may lack the last ones."""
    for library, threads in zip(libraries, before, strict=False):
        library.set_num_threads(threads)


class OneThreadOfProcess(OneThread):
    """A context for libraries whose number of threads is one for the whole process.

    It is restored when the last thread leaves.
    """

    def __init__(self) -> None:
        super().__init__()
        self._holders = 0
        self._before: list[int] = []

    @abstractmethod
    def limit_process(self, before: list[int]) -> None:
        """Limit all operators, and note in `before` what `restore_process` needs."""

    @abstractmethod
    def restore_process(self, before: list[int]) -> None:
        """Undo `limit_process`, which an interrupt may have ended early."""

    def limit(self, before: list[int]) -> None:
        """Limit all operators, if no other thread did."""
        self._holders += 1
        if self._holders == 1:
            self._before.clear()
            self.limit_process(self._before)

    def restore(self, before: list[int]) -> None:
        """Undo that, if no other thread needs it."""
        self._holders -= 1
        if not self._holders:
            self.restore_process(self._before)
