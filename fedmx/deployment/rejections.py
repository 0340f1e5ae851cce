"""Rejected connections and messages: bounded, so that a flood does not fill memory or records."""

from __future__ import annotations

from collections import Counter

from fedmx.experiment.sections import MOST_VIOLATIONS
from layers.logic.record_size import REASON_BYTES, shortened

MOST_REASONS = 100  # different reasons in the record of a round


class Rejections:
    """The reasons of a round with their counts, and each client's protocol violations.

    Args:
        violations: how many a client may have in a round before its connection is closed, and how
            many messages out of place it may send on one connection.
    """

    def __init__(self, violations: int = MOST_VIOLATIONS) -> None:
        self._most = violations
        self._out_of_place: Counter[int] = Counter()
        self._reasons: Counter[str] = Counter()
        self._more = 0
        self._violations: Counter[int] = Counter()

    def add(self, reason: str) -> None:
        """Add a reason."""
        reason = shortened(reason, REASON_BYTES)
        if reason in self._reasons or len(self._reasons) < MOST_REASONS:
            self._reasons[reason] += 1
        else:
            self._more += 1

    def count_violation(self, client: int) -> bool:
        """Count a protocol violation; return whether the client has had too many in this round."""
        self._violations[client] += 1
        return self._violations[client] > self._most

    def count_out_of_place(self, client: int) -> bool:
        """Count an unneeded message that an honest client may send a few times.

        Return whether the client has sent too many on this connection.
        """
        self._out_of_place[client] += 1
        return self._out_of_place[client] > self._most

    def joined(self, client: int) -> None:
        """Record that a client has a new connection."""
        self._out_of_place.pop(client, None)

    def take(self) -> tuple[str, ...]:
        """Return the reasons since the last call."""
        reasons = [
            reason if times == 1 else f"{reason} ({times} times)"
            for reason, times in self._reasons.items()
        ]
        if self._more:
            reasons.append(f"and {self._more} more")
        self._reasons.clear()
        self._violations.clear()
        self._more = 0
        return tuple(reasons)
