"""The program of a worker process."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import NoReturn

import msgpack

from fedmx.simulation.executors.shared_memory import Block, read


def main(pipe: int, memory: int) -> None:
    """Do the jobs that come through a pipe, until its other end is closed.

    Args:
        pipe: descriptor of this end of the pipe.
        memory: descriptor of the shared memory.
    """
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    sys.breakpointhook = no_breakpoint
    from fedmx.simulation.executors.worker import Worker  # MXNet takes two seconds

    connection = Connection(pipe)
    try:
        worker = Worker()
        while True:
            reply = worker.do(_parts(connection.recv_bytes(), memory))
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            if reply is not None:
                connection.send_bytes(bytes(reply))
    except (EOFError, OSError):
        os._exit(0)


def _parts(message: bytes, memory: int) -> Iterable[bytes | bytearray]:
    for part in msgpack.unpackb(message):
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
