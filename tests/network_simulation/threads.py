"""Threads as greenlets: one runs at a time, until it waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import greenlet

if TYPE_CHECKING:
    from tests.network_simulation.scheduler import Process, Scheduler


class Killed(BaseException):
    """The process of this code has ended; handlers must let it pass."""


class Thread:
    """A thread of a simulated process."""

    def __init__(self, scheduler: Scheduler, process: Process, main: Callable[[], None]) -> None:
        self.process = process
        self.locks = 0
        self.readings = 0
        self._scheduler = scheduler
        self._main = main
        self._greenlet = greenlet.greenlet(self._run, parent=scheduler.hub)
        self._waits = 0
        self._woken = False

    def _run(self) -> None:
        try:
            if self.process.alive:
                self._main()
        except Killed:
            pass

    def go_on(self) -> None:
        """Run until it waits or ends; called by the scheduler."""
        self._scheduler.thread = self
        try:
            self._greenlet.switch()
        finally:
            self._scheduler.thread = None

    def end(self) -> None:
        """Unwind a killed thread; its remaining actions have no effect."""
        if self._greenlet and not self._greenlet.dead:
            before = self._scheduler.process
            self._scheduler.thread, self._scheduler.process = self, self.process
            try:
                self._greenlet.throw(Killed)
            finally:
                self._scheduler.thread, self._scheduler.process = None, before

    def wait(self, timeout_s: float | None, register: Callable[[Callable[[], None]], None]) -> bool:
        """Wait until the callback given to `register` is called; return False on timeout.

        Raises:
            Killed: its process has ended.
        """
        scheduler, self._waits, self.readings = self._scheduler, self._waits + 1, 0
        if not self.process.alive:
            raise Killed
        number = self._waits
        woken: list[bool] = []

        def wake(in_time: bool) -> None:
            if number == self._waits and not woken:
                woken.append(in_time)
                scheduler.soon(self.process, "wakes" if in_time else "has waited", self.go_on)

        register(lambda: wake(True))
        if timeout_s is not None:
            ends_s = scheduler.now_s + max(timeout_s, 0.0)
            scheduler.at(ends_s, self.process, "timeout", lambda: wake(False))
        scheduler.hub.switch()
        if not self.process.alive:
            raise Killed
        return woken[0]

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self.wait(seconds, lambda wake: None)


class Condition:
    """`threading.Condition` for simulated threads."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: list[Callable[[], None]] = []

    def __enter__(self) -> Condition:
        if self._scheduler.thread is not None:
            self._scheduler.thread.locks += 1
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._scheduler.thread is not None:
            self._scheduler.thread.locks -= 1

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a notification."""
        thread = self._scheduler.thread
        if thread is None:
            raise RuntimeError("a loop's thread waits for another thread")
        locks, thread.locks = thread.locks, 0
        try:
            return thread.wait(timeout, self._waiting.append)
        finally:
            thread.locks = locks

    def notify(self, n: int = 1) -> None:
        """Wake `n` waiting threads."""
        woken, self._waiting = self._waiting[:n], self._waiting[n:]
        for wake in woken:
            wake()

    def notify_all(self) -> None:
        """Wake all waiting threads."""
        self.notify(len(self._waiting))
