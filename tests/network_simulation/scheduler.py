"""Virtual time: the order of all processes' steps, drawn from one seed, and simulated threads."""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import greenlet


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


LATENCY_S = 2e-4  # the most that a wake-up takes
PREEMPTED = 0.02  # probability of a preemption when a thread reads the clock
MOST_READINGS = 5_000  # of the clock, before a thread that never waits must sleep
EPOCH_S = 1.8e9


class Stuck(Exception):
    """The simulation has not ended within its limits."""


@dataclass(eq=False)
class Process:
    """A process of the simulated deployment.

    Attributes:
        name: such as client-3.
        pid: its number.
        alive: whether it was not killed.
        over: whether its main function has returned.
        stalled_until_s: when it may run again.
        wall_offset_s: the error of its wall clock.
        ahead_s: by how much its monotonic clock has jumped.
        fuse: number of points until it is killed, None for never.
        loops: its asyncio loops.
        threads: its threads.
        on_kill: called when it is killed.
    """

    name: str
    pid: int
    alive: bool = True
    over: bool = False
    stalled_until_s: float = 0.0
    wall_offset_s: float = 0.0
    ahead_s: float = 0.0
    fuse: int | None = None
    power: bool = False
    loops: list[Any] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    on_kill: list[Callable[[], None]] = field(default_factory=list)

    def jump(self, seconds: float) -> None:
        """Let its monotonic clock jump; its loops' timers may be due."""
        self.ahead_s += seconds
        for loop in self.loops:
            loop.jumped()


class Scheduler:
    """Runs steps in the order of their virtual times, one at a time, in one thread."""

    def __init__(self, seed: int, verbose: bool = False) -> None:
        self.draw = random.Random(f"{seed}/schedule")
        self.now_s = 0.0
        self.process: Process | None = None
        self.thread: Thread | None = None
        self.steps = 0
        self.errors: list[str] = []
        self.lines: list[str] = []
        self.processes: list[Process] = []
        self._verbose = verbose
        self._digest = hashlib.sha256()
        self._steps: list[tuple[float, int, Process | None, str, Callable[[], object]]] = []
        self._number = 0
        self.hub = greenlet.getcurrent()
        self._killed: list[Process] = []

    # The trace

    def note(self, text: str) -> None:
        """Add a line to the trace, which depends only on the seed."""
        line = f"{self.now_s:.6f} {text}"
        self._digest.update(line.encode() + b"\n")
        if self._verbose:
            self.lines.append(line)

    @property
    def trace(self) -> str:
        """The SHA-256 of the trace so far."""
        return self._digest.hexdigest()

    def error(self, text: str) -> None:
        """Report a violation."""
        self.note(f"ERROR {text}")
        self.errors.append(text)

    # Steps

    def at(
        self, when_s: float, process: Process | None, label: str, call: Callable[[], object]
    ) -> None:
        """Schedule `call` as a step of `process` (None: of the world)."""
        self._number += 1
        heapq.heappush(self._steps, (max(when_s, self.now_s), self._number, process, label, call))

    def soon(self, process: Process | None, label: str, call: Callable[[], object]) -> None:
        """Schedule `call` after the latency of a wake-up."""
        self.at(self.now_s + self.draw.random() * LATENCY_S, process, label, call)

    def run(self, done: Callable[[], bool], limit_s: float, most_steps: int) -> None:
        """Take steps until `done`.

        Raises:
            Stuck: a limit is exceeded, or there are no more steps.
        """
        while not done():
            if not self._steps:
                raise Stuck("nothing is left to do")
            when_s, _, process, label, call = heapq.heappop(self._steps)
            if process is not None:
                if not process.alive:
                    continue
                if process.stalled_until_s > when_s:
                    self.at(process.stalled_until_s, process, label, call)
                    continue
            if when_s > limit_s or self.steps > most_steps:
                raise Stuck(f"not over after {self.now_s:.0f} s and {self.steps} steps")
            self.steps += 1
            self.now_s = max(self.now_s, when_s)
            self.note(f"{process.name if process else '-'} {label}")
            self.process = process
            try:
                call()
            except Killed:
                pass
            finally:
                self.process = None
            self._bury()

    def forget(self) -> None:
        """Release all processes; call it at the end."""
        self._steps.clear()
        for process in self.processes:
            process.loops.clear()
            process.threads.clear()
            process.on_kill.clear()

    # Processes

    def spawn(self, name: str, main: Callable[[], None]) -> Process:
        """Start a process."""
        process = Process(name, 1000 + len(self.processes))
        self.processes.append(process)

        def run() -> None:
            main()
            process.over = True

        self.start_thread(process, run)
        return process

    def start_thread(self, process: Process, main: Callable[[], None]) -> Thread:
        """Start a thread of a process."""
        thread = Thread(self, process, main)
        process.threads.append(thread)
        self.soon(process, "starts", thread.go_on)
        return thread

    def kill(self, process: Process, power: bool) -> None:
        """End a process at once, as by SIGKILL or, with `power`, by a power cut.

        Raises:
            Killed: it is the running process.
        """
        if process.alive:
            self.note(f"{process.name} {'loses power' if power else 'is killed'}")
            process.alive, process.power = False, power
            self._killed.append(process)
        if self.process is process:
            raise Killed
        if self.process is None:
            self._bury()

    def _bury(self) -> None:
        while self._killed:
            process = self._killed.pop()
            for loop in process.loops:
                loop.drop()
            for thread in process.threads:
                thread.end()
            for call in process.on_kill:
                call()

    # Points at which the running process may be preempted or killed

    def point(self, slow_s: float = 0.0, often: float = PREEMPTED) -> None:
        """Let other threads run, or be killed.

        Args:
            slow_s: the longest duration, besides the latency.
            often: probability that others run.
        """
        process = self.process
        if process is None:
            return
        if not process.alive:
            raise Killed
        if process.fuse is not None:
            process.fuse -= 1
            if process.fuse <= 0:
                process.fuse = None
                self.kill(process, process.power)
        thread = self.thread
        if thread is not None and not thread.locks and self.draw.random() < often:
            thread.sleep(self.draw.random() * max(slow_s, LATENCY_S))

    def monotonic(self) -> float:
        """Return the monotonic time of the running process."""
        thread = self.thread
        if thread is not None:
            thread.readings += 1
            if thread.readings > MOST_READINGS:
                thread.sleep(1e-3)
        self.point()
        return self.now_s + (self.process.ahead_s if self.process else 0.0)

    def wall(self) -> float:
        """Return the wall clock of the running process."""
        offset_s = self.process.wall_offset_s if self.process else 0.0
        return EPOCH_S + self.now_s + offset_s
