"""The page of a run that still goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

from fedmx.log import Log
from fedmx.run import RunError

log = Log("fedmx.report")

_TIMES_ITS_COST = 100
_COST_S = 0.2  # of the first page, before it is known
_LEAST_ROUNDS = 2  # before that, a curve is a point


def write_elsewhere(run: Path) -> None:
    """Write the page of a run in a process of its own, and wait for it.

    In a thread, drawing would share Python's interpreter lock with the rounds and connections.

    Raises:
        RunError: it was not written.
    """
    done = subprocess.run(
        [sys.executable, "-m", "fedmx", "report", str(run)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C is for the run
    )
    if done.returncode:
        raise RunError(done.stderr.strip() or f"fedmx report ended with code {done.returncode}")


class LivePage:
    """Rewrites a run's page while the run goes on, which does not wait for it.

    An error is logged once, and does not end the run. Leaving the context waits for a page that is
    being written.

    Args:
        write: writes the page; it is called in a thread.
        every: rounds from one writing to the next; None: from the second round on, as often as
            writing takes at most a hundredth of the time.
    """

    def __init__(self, write: Callable[[], None], every: int | None = None) -> None:
        self._write, self._every = write, every
        self._cost_s, self._written_s = _COST_S, time.monotonic()
        self._warned = False
        self._thread: Thread | None = None

    def __enter__(self) -> LivePage:
        return self

    def __exit__(self, *error: object) -> None:
        self.wait()

    def wait(self) -> None:
        """Wait for a page that is being written."""
        if self._thread is not None:
            self._thread.join()

    def show(self, round: int) -> None:
        """Begin to write the page after a round, if it is due."""
        if self._every is not None:
            due = round % self._every == 0
            if due:
                self.wait()
        else:
            due = round >= _LEAST_ROUNDS and not (self._thread and self._thread.is_alive())
            due = due and time.monotonic() - self._written_s >= _TIMES_ITS_COST * self._cost_s
        if due:
            self._thread = Thread(target=self._draw, daemon=True)
            self._thread.start()

    def _draw(self) -> None:
        began_s = time.monotonic()
        try:
            self._write()
        except Exception as error:  # noqa: BLE001 - the run is worth more than its page
            if not self._warned:
                log.warning(
                    "page_not_written",
                    "the page of the run was not written, and the run goes on: {reason}",
                    reason=error,
                )
            self._warned = True
        self._written_s = time.monotonic()
        self._cost_s = self._written_s - began_s
