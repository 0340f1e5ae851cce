"""A clock together with what a round keeps: who is outstanding, and its deadline."""

from __future__ import annotations

from typing import Any

from layers.logic.clock import ClockEvent, VirtualClock


class Rounds:
    """Takes clients off the outstanding ones when their events come, as `run_round` does."""

    def __init__(self, clock: VirtualClock, deadline_s: float | None = None) -> None:
        self.clock, self.deadline_s = clock, deadline_s
        self.outstanding: dict[int, None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.clock, name)

    def begin(self, round: int, turns: Any = None) -> None:
        self.outstanding.clear()
        self.clock.begin(round, self.outstanding, self.deadline_s, turns)

    def ask(self, client: int, *what: Any) -> None:
        self.outstanding[client] = None
        self.clock.ask(client, *what)

    def decide(self, client: int, granted: bool, dated_s: float | None = None) -> None:
        if not granted:
            self.outstanding.pop(client, None)
        self.clock.decide(client, granted, dated_s)

    def next(self) -> ClockEvent | None:
        event = self.clock.next()
        if event is None:
            self.outstanding.clear()
        elif event.kind == "trained":
            self.clock.trained(event.client)
        elif event.kind != "timer":
            del self.outstanding[event.client]
        return event
