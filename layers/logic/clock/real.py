"""Real time: monotonic, from the moment at which a round begins."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from layers.logic.clock.timesheet import Moment, Timesheet
from layers.logic.core.report import Times


class RealClock:
    """Measures the real seconds of a round, and the times of its clients."""

    virtual = False
    waited_s = 0.0  # a real run does not count its waiting for clients

    def __init__(self) -> None:
        self._began: float | None = None
        self._ended_s: float | None = None
        self._sheet = Timesheet()
        self._deadline_s = math.inf

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began; its duration once it has ended."""
        if self._ended_s is not None:
            return self._ended_s
        return 0.0 if self._began is None else time.monotonic() - self._began

    @property
    def running(self) -> bool:
        """Whether a round is under way."""
        return self._began is not None and self._ended_s is None

    def begin(self, deadline_s: float | None = None) -> None:
        """Begin a round that may take `deadline_s` seconds; None: any time."""
        self._began, self._ended_s, self._sheet = time.monotonic(), None, Timesheet()
        self._deadline_s = math.inf if deadline_s is None else deadline_s

    @property
    def left_s(self) -> float:
        """Seconds until the deadline of the round under way; infinite without one."""
        return self._deadline_s - self.elapsed_s

    def end(self) -> None:
        """End the round; later notes get its last moment as their time."""
        if self.running:
            self._ended_s = self.elapsed_s

    def ask(self, client: int) -> None:
        """Record that a task was sent to a client."""
        self._sheet.ask(client, self.elapsed_s)

    def note(self, client: int, moment: Moment) -> None:
        """Record that a moment of a client has come."""
        self._sheet.note(client, moment, self.elapsed_s)

    def times(self) -> Mapping[int, Times]:
        """Return the times of each client of the round."""
        return self._sheet.times()
