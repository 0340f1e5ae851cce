"""Real time: monotonic, from the moment that a round begins."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from layers.logic.clock.timesheet import Moment, Timesheet
from layers.logic.core.report import Times


class RealClock:
    """The seconds of a round as they pass, and who did what when."""

    virtual = False
    waited_s = 0.0  # a real run does not count the time in which it waits for clients

    def __init__(self) -> None:
        self._began: float | None = None
        self._ended_s: float | None = None
        self._sheet = Timesheet()
        self._deadline_s = math.inf

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began, or that it took once it has ended."""
        if self._ended_s is not None:
            return self._ended_s
        return 0.0 if self._began is None else time.monotonic() - self._began

    @property
    def running(self) -> bool:
        """Whether a round is under way."""
        return self._began is not None and self._ended_s is None

    def begin(self, deadline_s: float | None = None) -> None:
        """Begin a round that may take `deadline_s`."""
        self._began, self._ended_s, self._sheet = time.monotonic(), None, Timesheet()
        self._deadline_s = math.inf if deadline_s is None else deadline_s

    @property
    def left_s(self) -> float:
        """Seconds until the deadline of the round under way; inf without one."""
        return self._deadline_s - self.elapsed_s

    def end(self) -> None:
        """End the round; what is noted after that counts for it with its last moment."""
        if self.running:
            self._ended_s = self.elapsed_s

    def ask(self, client: int) -> None:
        """A task was sent."""
        self._sheet.ask(client, self.elapsed_s)

    def note(self, client: int, moment: Moment) -> None:
        """Something has happened."""
        self._sheet.note(client, moment, self.elapsed_s)

    def times(self) -> Mapping[int, Times]:
        """Return who did what when."""
        return self._sheet.times()
