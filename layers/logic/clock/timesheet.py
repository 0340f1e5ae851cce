"""The times of a round as a clock records them, for each client."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from layers.logic.core.report import Times

Stamp = Literal["trained_s", "decided_s", "sending_s", "ended_s"]


class Timesheet:
    """The times of the clients of one round."""

    def __init__(self) -> None:
        self._times: dict[int, dict[str, float]] = {}  # by client, the moments that are known

    def ask(self, client: int, at_s: float) -> None:
        """Record when a client was asked; its other times are unknown until they are recorded.

        In a lane of several passes a client is asked several times: the first moment stays, and of
        all others the last one counts. `forget` comes before the times of a further task.
        """
        self._times.setdefault(client, {"asked_s": at_s})

    def forget(self, client: int) -> None:
        """Forget the times of a client that gets another task."""
        self._times.pop(client, None)

    def since(self, at_s: float) -> list[int]:
        """Return the clients that were asked since this time, or have ended."""
        return [
            client
            for client, known in self._times.items()
            if known["asked_s"] >= at_s or "ended_s" in known
        ]

    def later(self, clients: Collection[int], by_s: float) -> Timesheet:
        """Return the times of these clients in a round that began `by_s` seconds later."""
        sheet = Timesheet()
        sheet._times = {
            client: {stamp: at_s - by_s for stamp, at_s in self._times[client].items()}
            for client in clients
            if client in self._times
        }
        return sheet

    def tree(self) -> dict[int, dict[str, float]]:
        """Return the times as named numbers."""
        return {client: dict(times) for client, times in self._times.items()}

    @classmethod
    def of_tree(cls, tree: Mapping[int, Mapping[str, float]]) -> Timesheet:
        """Return the sheet that `tree` was made from."""
        sheet = cls()
        sheet._times = {client: dict(times) for client, times in tree.items()}
        return sheet

    def note(self, client: int, stamp: Stamp, at_s: float) -> None:
        """Record the time of a moment, for a client that was asked."""
        known = self._times.get(client)
        if known is not None:
            known[stamp] = at_s

    @property
    def last_end_s(self) -> float:
        """Time at which the last client ended, in seconds; 0 if none did."""
        return max(
            (one["ended_s"] for one in self._times.values() if "ended_s" in one), default=0.0
        )

    def times(self) -> Mapping[int, Times]:
        """Return the times of each client that was asked."""
        return {client: Times(**known) for client, known in self._times.items()}
