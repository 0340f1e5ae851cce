"""A worker as a Ray actor; nothing but bytes goes in and out."""

from __future__ import annotations

import os
import socket
import sys

from fedmx.simulation.executors.worker_main import no_breakpoint


class Actor:
    """One worker, on whichever node Ray gave it a core.

    Args:
        folder: the working directory of the simulation, used here if there is one of this name.
    """

    def __init__(self, folder: str) -> None:
        from fedmx.simulation.executors.worker import Worker  # MXNet takes two seconds

        sys.breakpointhook = no_breakpoint
        if os.path.isdir(folder):
            os.chdir(folder)
        self._worker = Worker()

    def open(self, build: bytes) -> str:
        """Make an experiment's parts; return what this worker is called."""
        self._worker.do([build])
        return f"worker process {os.getpid()} on {socket.gethostname()}"

    def do(self, *parts: bytes) -> bytes:
        """Do one job."""
        reply = self._worker.do(parts)
        return b"" if reply is None else bytes(reply)
