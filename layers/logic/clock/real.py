"""Real time: monotonic, from the moment that a round begins."""

from __future__ import annotations

import time
from collections.abc import Mapping

from layers.logic.clock.timesheet import Moment, Timesheet
from layers.logic.core.times import Times


class RealClock:
    """The seconds of a round as they pass, and who did what when."""

    virtual = False

    def __init__(self) -> None:
        self._began: float | None = None
        self._ended_s: float | None = None
        self._sheet = Timesheet()

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

    def begin(self) -> None:
        """Begin a round."""
        self._began, self._ended_s, self._sheet = time.monotonic(), None, Timesheet()

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
