"""A program and its descendant processes: their sampled memory, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

MARK = "PEERS_CONTENDER"


class Family:
    """A running program and its descendants, known by a mark in their environment.

    A child inherits the mark, also one that leaves the process group or outlives its parent, as
    Ray's daemons do.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.peak_bytes = 0
        self._mark = f"{MARK}={uuid.uuid4().hex}".encode()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            env={**environment, MARK: self._mark.decode().partition("=")[2]},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit code, or None if the program has not ended in time; sample memory.

        `peak_bytes` is then the greatest sum of all processes' proportional set sizes, in which
        shared pages count once. Sampling takes 5% of a core at most.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            began = time.monotonic()
            held = sum(_held_bytes(process) for process in self._living())
            self.peak_bytes = max(self.peak_bytes, held)
            pause_s = max(0.2, 20 * (time.monotonic() - began))
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(pause_s)
        return None

    def output(self) -> str:
        """Return the output of the processes."""
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def end(self) -> None:
        """End every remaining process, so that the next run has the machine to itself."""
        began = time.monotonic()
        while left := self._living():
            patient = time.monotonic() < began + 5
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGTERM if patient else signal.SIGKILL)
            time.sleep(0.2)
            self._process.poll()
            if time.monotonic() > began + 15:
                raise RuntimeError(f"processes {left} cannot be ended")

    def _living(self) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and self._mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found


def _held_bytes(process: int) -> int:
    with contextlib.suppress(psutil.Error):  # it has ended
        return int(psutil.Process(process).memory_full_info().pss)
    return 0
