"""Workers that are processes of this machine: started once, with jobs over pipes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, NoReturn

import msgpack
import numpy as np

from fedmx.simulation.executors.executor import ExecutorFailed
from fedmx.simulation.executors.parallel import Part, WorkerDied
from fedmx.simulation.executors.shared_memory import (
    REPLY_FILES,
    Block,
    Place,
    ReplyFiles,
    SharedArrays,
    SharedMemory,
    map_arrays,
    read,
)

MAX_EARLY_DEATHS = 3  # deaths of workers without a job before no more are started
EXIT_TIMEOUT_S = 5.0  # in which a process must exit after its pipe was closed

# A terminal interrupts all of its processes; the parent alone decides which ones end.
START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); sys.path[:] = sys.argv[5:]; "
    "from fedmx.simulation.executors.processes import main; main(*map(int, sys.argv[1:5]))"
)
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(eq=False)
class _Process:
    """One process, and this end of its pipe."""

    process: subprocess.Popen[bytes]
    pipe: Connection
    replies: ReplyFiles
    given: int = 0  # jobs without a reply
    broken: bool = False  # a message was interrupted in the middle


class ProcessBackend:
    """Worker processes with one thread each; they import MXNet first.

    They end when this process ends, however it ends, and also during a job.
    """

    depth = REPLY_FILES

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory = SharedMemory()
        self._build: bytes | None = None
        self._data: list[SharedArrays] = []  # of the last experiment
        self._early_deaths = 0
        self._processes: list[_Process] = []
        self._end = weakref.finalize(self, _end, self._processes, self._memory, self._data)
        for _ in range(size):
            self._processes.append(_start(self._memory))

    @property
    def shared_bytes(self) -> int:
        """Size of the memory that is shared with the processes."""
        return self._memory.size

    def open(self, build: bytes, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Let every process make an experiment's parts; all of them map one file of the arrays."""
        try:
            data = SharedArrays(arrays)
        except OSError as error:
            raise ExecutorFailed(
                f"there is no room for the data set that processes share ({error.strerror})"
            ) from error
        _close(self._data)
        self._data.append(data)
        self._build = msgpack.packb({"build": build, "arrays": data.places})
        for one in self._processes:
            _send(one, self._build, data.descriptor)
        return map_arrays(data.descriptor, data.places)

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
        one = self._processes[worker]
        one.given += 1
        _send(one, msgpack.packb([*parts]))

    def wait(self) -> tuple[int, bytes | WorkerDied | None]:
        """Wait for a reply, or replace a dead process by a new one."""
        number = self._next(None)
        assert number is not None
        return self._reply(number)

    def poll(self) -> tuple[int, bytes | WorkerDied | None] | None:
        """Return what `wait` would return now; None: it would have to wait."""
        number = self._next(0.0)
        return None if number is None else self._reply(number)

    def _next(self, timeout_s: float | None) -> int | None:
        """Return the number of a process that has replied or died; None: none has in time."""
        for number, one in enumerate(self._processes):
            if one.broken:
                return number
        pipes = [one.pipe for one in self._processes]
        ready = wait(pipes, timeout_s)
        return next((i for i, pipe in enumerate(pipes) if pipe in ready), None)

    def _reply(self, number: int) -> tuple[int, bytes | WorkerDied]:
        reply = _receive(self._processes[number])
        if isinstance(reply, WorkerDied):
            self._replace(number, reply)
        else:
            self._early_deaths = 0
        return number, reply

    def close(self) -> None:
        """End all processes, also during a job."""
        self._end()

    def _replace(self, number: int, death: WorkerDied) -> None:
        if not self._processes[number].given:
            self._early_deaths += 1
            if self._early_deaths > MAX_EARLY_DEATHS:
                raise ExecutorFailed(
                    f"worker processes end before they have any work; the last one {death.how}"
                )
        self._processes[number] = _start(self._memory)
        if self._build is not None:
            _send(self._processes[number], self._build, self._data[-1].descriptor)


def _start(memory: SharedMemory) -> _Process:
    ours, theirs = Pipe()
    with theirs:
        replies = ReplyFiles()
        given = [theirs.fileno(), memory.descriptor, *replies.descriptors]
        process = subprocess.Popen(
            [sys.executable, "-c", START, *map(str, given), *sys.path],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **ONE_THREAD},
            pass_fds=given,
        )
    return _Process(process, ours, replies)


def _send(one: _Process, message: bytes, descriptor: int | None = None) -> None:
    try:
        one.pipe.send_bytes(message)
        if descriptor is not None:
            send_handle(one.pipe, descriptor, one.process.pid)
    except OSError:
        one.broken = True  # it died; `wait` reports it
    except BaseException:
        one.broken = True
        raise


def _receive(one: _Process) -> bytes | WorkerDied:
    try:
        if not one.broken:
            reply = one.replies.read(one.pipe.recv_bytes())
            one.given -= 1
            return reply
    except (EOFError, OSError):
        pass
    except BaseException:
        one.broken = True
        raise
    one.pipe.close()
    one.replies.close()
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


def _end(processes: list[Any], memory: SharedMemory, data: list[SharedArrays]) -> None:
    for one in processes:
        one.pipe.close()  # a worker notices it, also during a job
    for one in processes:
        _exit_code(one.process)
        one.replies.close()
    processes.clear()
    memory.close()
    _close(data)


def _close(data: list[SharedArrays]) -> None:
    while data:
        data.pop().close()


def main(pipe: int, memory: int, *replies: int) -> None:
    """Do the jobs that come through a pipe, until its other end is closed.

    Args:
        pipe: descriptor of this end of the pipe.
        memory: descriptor of the shared memory.
        replies: descriptors of the files for replies.
    """
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    sys.breakpointhook = no_breakpoint
    from fedmx.simulation.executors.worker import Worker  # MXNet takes two seconds

    connection, files = Connection(pipe), ReplyFiles(replies)
    try:
        worker = Worker()
        while True:
            message = msgpack.unpackb(connection.recv_bytes())
            if isinstance(message, dict):
                worker.open(message["build"], _arrays(connection, message["arrays"]))
                continue
            reply = worker.do(_parts(message, memory))
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            connection.send_bytes(files.write(reply))
    except (EOFError, OSError):
        os._exit(0)


def _arrays(connection: Connection, places: Sequence[Place]) -> list[np.ndarray]:
    """Return the data; the descriptor of their file comes after the message."""
    descriptor = recv_handle(connection)
    try:
        return map_arrays(descriptor, places)
    finally:
        os.close(descriptor)


def _parts(message: Sequence[Any], memory: int) -> Iterable[bytes | bytearray]:
    for part in message:
        if isinstance(part, bytes):
            yield part
        else:
            block = Block(*part)
            found = bytearray(block.size)
            read(memory, block, memoryview(found))
            yield found


def _end_with(pipe: int) -> None:
    """End this process when the other end of its pipe is closed, also during a job."""
    waiting = select.poll()
    waiting.register(pipe, 0)  # a hang-up is reported without asking for it
    waiting.poll()
    os._exit(0)


def no_breakpoint(*args: object, **keywords: object) -> NoReturn:
    """Refuse a breakpoint in a worker, which has no terminal.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("a breakpoint needs this process's terminal: run with executor: serial")
