"""Rejected connections and messages: bounded, so that a flood does not fill memory or records."""

from __future__ import annotations

from collections import Counter

MOST_REASONS = 100  # different reasons in the record of a round
MOST_VIOLATIONS = 10  # of one client in a round, before its connection is closed


class Rejections:
    """The reasons of a round with their counts, and each client's protocol violations."""

    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()
        self._more = 0
        self._violations: Counter[int] = Counter()

    def add(self, reason: str) -> None:
        """Add a reason."""
        reason = reason[:500]
        if reason in self._reasons or len(self._reasons) < MOST_REASONS:
            self._reasons[reason] += 1
        else:
            self._more += 1

    def count_violation(self, client: int) -> bool:
        """Count a protocol violation; return whether the client has had too many in this round."""
        self._violations[client] += 1
        return self._violations[client] > MOST_VIOLATIONS

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
