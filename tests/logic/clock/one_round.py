"""A clock and the deadline of its rounds, as a round and its carrier drive them."""

from __future__ import annotations

from typing import Any

from layers.logic.clock import ClockEvent, VirtualClock


class Rounds:
    """Takes the events of a clock until no client is left, or the deadline has passed."""

    def __init__(self, clock: VirtualClock, deadline_s: float | None = None) -> None:
        self.clock, self.deadline_s = clock, deadline_s
        self.outstanding: dict[int, None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.clock, name)

    def restore(self, run_s: float) -> None:
        self.clock.restore({"run_s": run_s})

    def begin(self, round: int, turns: Any = None) -> None:
        self.outstanding.clear()
        self.round = round
        self.clock.begin(turns)
        self.clock.set_timer("deadline", self.deadline_s)

    def ask(self, client: int, *what: Any) -> None:
        self.outstanding[client] = None
        self.clock.ask(client, *what, self.round)

    def decide(self, client: int, granted: bool, dated_s: float | None = None) -> None:
        if not granted:
            self.outstanding.pop(client, None)
        self.clock.decide(client, granted, dated_s)

    def next(self) -> ClockEvent | None:
        event = self.clock.next() if self.outstanding else None
        if event is None or event.reason == "deadline":
            for client in self.outstanding:
                self.clock.cancel(client)
            self.clock.close()
            self.outstanding.clear()
            return None
        if event.kind == "trained":
            self.clock.trained(event.client)
        elif event.kind != "timer":
            del self.outstanding[event.client]
        return event
