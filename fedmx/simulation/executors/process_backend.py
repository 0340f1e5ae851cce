"""Workers that are processes of this machine: started once, with jobs over pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import msgpack

from fedmx.simulation.executors.backend import Part, WorkerDied
from fedmx.simulation.executors.errors import ExecutorFailed
from fedmx.simulation.executors.shared_memory import Block, SharedMemory

MAX_EARLY_DEATHS = 3  # deaths of workers without a job before no more are started
EXIT_TIMEOUT_S = 5.0  # in which a process must exit after its pipe was closed

# A terminal interrupts all of its processes; the parent alone decides which ones end.
START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); sys.path[:] = sys.argv[3:]; "
    "from fedmx.simulation.executors.worker_main import main; "
    "main(int(sys.argv[1]), int(sys.argv[2]))"
)
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(eq=False)
class _Process:
    """One process, and this end of its pipe."""

    process: subprocess.Popen[bytes]
    pipe: Connection
    broken: bool = False  # a message was interrupted in the middle


class ProcessBackend:
    """Worker processes with one thread each; they import MXNet first.

    They end when this process ends, however it ends, and also during a job.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory = SharedMemory()
        self._build: bytes | None = None
        self._early_deaths = 0
        self._processes: list[_Process] = []
        self._busy: set[int] = set()
        self._end = weakref.finalize(self, _end, self._processes, self._memory)
        for _ in range(size):
            self._processes.append(_start(self._memory))

    @property
    def shared_bytes(self) -> int:
        """Size of the memory that is shared with the processes."""
        return self._memory.size

    def open(self, build: bytes) -> None:
        """Let every process make an experiment's parts."""
        self._build = msgpack.packb([build])
        for one in self._processes:
            _send(one, self._build)

    def ready(self, worker: int) -> bool:
        """Return True, since a job waits in the pipe until the process reads it."""
        return True

    def share(self, data: memoryview) -> Block:
        """Write bytes into the shared memory."""
        return self._memory.put(data)

    def holds(self, shared: Block, data: memoryview) -> bool:
        """Return whether the shared bytes are equal to these."""
        return self._memory.holds(shared, data)

    def release(self, shared: Block) -> None:
        """Release bytes in the shared memory."""
        if self._end.alive:
            self._memory.release(shared)

    def submit(self, worker: int, parts: Sequence[Part]) -> None:
        """Send a job."""
        self._busy.add(worker)
        _send(self._processes[worker], msgpack.packb([*parts]))

    def wait(self) -> tuple[int, bytes | WorkerDied | None]:
        """Wait for a reply, or replace a dead process by a new one."""
        number = next((i for i, one in enumerate(self._processes) if one.broken), None)
        if number is None:
            pipes = [one.pipe for one in self._processes]
            ready = wait(pipes)
            number = next(i for i, pipe in enumerate(pipes) if pipe in ready)
        reply = _receive(self._processes[number])
        if isinstance(reply, WorkerDied):
            self._replace(number, reply)
        else:
            self._early_deaths = 0
        self._busy.discard(number)
        return number, reply

    def close(self) -> None:
        """End all processes, also during a job."""
        self._end()

    def _replace(self, number: int, death: WorkerDied) -> None:
        if number not in self._busy:
            self._early_deaths += 1
            if self._early_deaths > MAX_EARLY_DEATHS:
                raise ExecutorFailed(
                    f"worker processes end before they have any work; the last one {death.how}"
                )
        self._processes[number] = _start(self._memory)
        if self._build is not None:
            _send(self._processes[number], self._build)


def _start(memory: SharedMemory) -> _Process:
    ours, theirs = Pipe()
    with theirs:
        given = [theirs.fileno(), memory.descriptor]
        process = subprocess.Popen(
            [sys.executable, "-c", START, *map(str, given), *sys.path],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **ONE_THREAD},
            pass_fds=given,
        )
    return _Process(process, ours)


def _send(one: _Process, message: bytes) -> None:
    try:
        one.pipe.send_bytes(message)
    except OSError:
        one.broken = True  # it died; `wait` reports it
    except BaseException:
        one.broken = True
        raise


def _receive(one: _Process) -> bytes | WorkerDied:
    try:
        if not one.broken:
            return one.pipe.recv_bytes()
    except (EOFError, OSError):
        pass
    except BaseException:
        one.broken = True
        raise
    one.pipe.close()
    return WorkerDied(f"worker process {one.process.pid}", _exit_text(_exit_code(one.process)))


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", perhaps for lack of memory" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"


def _end(processes: list[Any], memory: SharedMemory) -> None:
    for one in processes:
        one.pipe.close()  # a worker notices it, also during a job
    for one in processes:
        _exit_code(one.process)
    processes.clear()
    memory.close()
