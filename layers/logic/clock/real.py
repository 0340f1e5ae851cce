"""Real time: monotonic, from the moment at which a round begins."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from layers.logic.clock.timesheet import Stamp, Timesheet
from layers.logic.core.report import Times


class RealClock:
    """Measures the real seconds of a round, and the times of its clients."""

    virtual = False
    waited_s = 0.0  # a real run does not count its waiting for clients

    def __init__(self) -> None:
        self._began: float | None = None
        self._ended_s: float | None = None
        self._sheet = Timesheet()

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

    def begin(self, in_flight: Collection[int] = ()) -> None:
        """Begin a round, in which the tasks of these clients continue."""
        now = time.monotonic()
        self._sheet = self._sheet.later(in_flight, now - (self._began or now))
        self._began, self._ended_s = now, None

    def end(self) -> None:
        """End the round; later notes get its last moment as their time."""
        if self.running:
            self._ended_s = self.elapsed_s

    def ask(self, client: int, again: bool = False) -> None:
        """Record that a task was sent to a client; `again`: another one has ended before."""
        if again:
            self._sheet.forget(client)
        self._sheet.ask(client, self.elapsed_s)

    def note(self, client: int, stamp: Stamp) -> None:
        """Record that a moment of a client has come."""
        self._sheet.note(client, stamp, self.elapsed_s)

    def times(self) -> Mapping[int, Times]:
        """Return the times of the clients that had a task in the round."""
        return self._sheet.later(self._sheet.since(0.0), 0.0).times()
