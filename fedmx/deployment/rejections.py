"""What was refused besides updates: bounded, so that no flood of it fills memory or records."""

from __future__ import annotations

from collections import Counter

MOST_REASONS = 100  # different ones that a round's record has
MOST_OFFENCES = 10  # of one client in a round, before its connection is closed


class Rejections:
    """The reasons of a round, each once with how often, and the offences of each client."""

    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()
        self._more = 0
        self._offences: Counter[int] = Counter()

    def add(self, reason: str) -> None:
        """Note a reason."""
        reason = reason[:500]
        if reason in self._reasons or len(self._reasons) < MOST_REASONS:
            self._reasons[reason] += 1
        else:
            self._more += 1

    def offend(self, client: int) -> bool:
        """Count an offence; return whether this client has had its share."""
        self._offences[client] += 1
        return self._offences[client] > MOST_OFFENCES

    def take(self) -> tuple[str, ...]:
        """Return the reasons since the last call."""
        said = [
            reason if times == 1 else f"{reason} ({times} times)"
            for reason, times in self._reasons.items()
        ]
        if self._more:
            said.append(f"and {self._more} more")
        self._reasons.clear()
        self._offences.clear()
        self._more = 0
        return tuple(said)
