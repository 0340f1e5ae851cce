"""Worker processes on this machine: started once, with jobs over pipes.

`ProcessBackend` runs in the simulation, `main` in each worker process. Data and large messages are
in shared memory.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Sequence
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
    ReplyFiles,
    SharedArrays,
    SharedMemory,
    map_arrays,
    read,
)
from fedmx.simulation.executors.worker import Worker

MAX_EARLY_DEATHS = 3  # deaths of workers without a job before the backend gives up
EXIT_TIMEOUT_S = 5.0  # in which a process must exit after its pipe was closed

# A terminal interrupts all of its processes; the parent alone decides which ones end.
START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); sys.path[:] = sys.argv[5:]; "
    "from fedmx.simulation.executors.processes import main; main(*map(int, sys.argv[1:5]))"
)
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class ProcessBackend:
    """Worker processes with one thread each.

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
            self._processes.append(_Process(self._memory))

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
            one.send(self._build, data.descriptor)
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
        self._processes[worker].jobs += 1
        self._processes[worker].send(msgpack.packb([*parts]))

    def wait(self) -> tuple[int, bytes | WorkerDied | None]:
        """Wait for a reply, or replace a dead process."""
        event = self._event(None)
        assert event is not None
        return event

    def poll(self) -> tuple[int, bytes | WorkerDied | None] | None:
        """Return what `wait` would return now; None: it would have to wait."""
        return self._event(0.0)

    def close(self) -> None:
        """End all processes, also during a job."""
        self._end()

    def _event(self, timeout_s: float | None) -> tuple[int, bytes | WorkerDied] | None:
        processes = self._processes
        number = next((i for i, one in enumerate(processes) if one.broken), None)
        if number is None:
            ready = wait([one.pipe for one in processes], timeout_s)
            number = next((i for i, one in enumerate(processes) if one.pipe in ready), None)
        if number is None:
            return None
        reply = processes[number].receive()
        if isinstance(reply, WorkerDied):
            self._replace(number, reply)
        else:
            self._early_deaths = 0
        return number, reply

    def _replace(self, number: int, death: WorkerDied) -> None:
        if not self._processes[number].jobs:
            self._early_deaths += 1
            if self._early_deaths > MAX_EARLY_DEATHS:
                raise ExecutorFailed(
                    f"worker processes end before they have any work; the last one {death.how}"
                )
        self._processes[number] = _Process(self._memory)
        if self._build is not None:
            self._processes[number].send(self._build, self._data[-1].descriptor)


class _Process:
    """One worker process, and this end of its pipe.

    Attributes:
        jobs: number of its jobs without a reply.
        broken: whether it died while it was sent a message, or a message was interrupted.
    """

    def __init__(self, memory: SharedMemory) -> None:
        self.jobs = 0
        self.broken = False
        self.pipe, theirs = Pipe()
        with theirs:
            self.replies = ReplyFiles()
            given = [theirs.fileno(), memory.descriptor, *self.replies.descriptors]
            self.process = subprocess.Popen(
                [sys.executable, "-c", START, *map(str, given), *sys.path],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **ONE_THREAD},
                pass_fds=given,
            )

    def send(self, message: bytes, descriptor: int | None = None) -> None:
        try:
            self.pipe.send_bytes(message)
            if descriptor is not None:
                send_handle(self.pipe, descriptor, self.process.pid)
        except OSError:
            self.broken = True  # it died; `receive` reports it
        except BaseException:
            self.broken = True
            raise

    def receive(self) -> bytes | WorkerDied:
        try:
            if not self.broken:
                reply = self.replies.read(self.pipe.recv_bytes())
                self.jobs -= 1
                return reply
        except (EOFError, OSError):
            pass
        except BaseException:
            self.broken = True
            raise
        self.pipe.close()
        self.replies.close()
        return WorkerDied(f"worker process {self.process.pid}", _exit_text(self.exit_code()))

    def exit_code(self) -> int:
        """Wait until the process exits, after its pipe was closed."""
        try:
            return self.process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", perhaps for lack of memory" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"


def _end(processes: list[_Process], memory: SharedMemory, data: list[SharedArrays]) -> None:
    for one in processes:
        one.pipe.close()  # a worker notices it, also during a job
    for one in processes:
        one.exit_code()
        one.replies.close()
    processes.clear()
    memory.close()
    _close(data)


def _close(data: list[SharedArrays]) -> None:
    while data:
        data.pop().close()


# --- in the worker process -------------------------------------------------------------------


def main(pipe: int, memory: int, *replies: int) -> None:
    """Do the jobs that come through a pipe, until its other end is closed.

    Args:
        pipe: descriptor of this end of the pipe.
        memory: descriptor of the shared memory.
        replies: descriptors of the files for replies.
    """
    threading.Thread(target=_exit_with, args=(pipe,), daemon=True).start()
    sys.breakpointhook = no_breakpoint
    connection, files, worker = Connection(pipe), ReplyFiles(replies), Worker()
    try:
        while True:
            message = msgpack.unpackb(connection.recv_bytes())
            if isinstance(message, dict):
                descriptor = recv_handle(connection)  # of the arrays
                arrays = map_arrays(descriptor, message["arrays"])
                os.close(descriptor)
                worker.open(message["build"], arrays)
                continue
            reply = worker.do(_parts(message, memory))
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            connection.send_bytes(files.write(reply))
    except (EOFError, OSError):
        os._exit(0)


def _parts(message: Sequence[Any], memory: int) -> Iterable[bytes | bytearray]:
    for part in message:
        yield part if isinstance(part, bytes) else read(memory, Block(*part))


def _exit_with(pipe: int) -> None:
    """Exit when the other end of the pipe is closed, also during a job."""
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
