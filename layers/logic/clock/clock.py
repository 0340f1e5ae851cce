"""What a virtual and a real clock have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from layers.logic.core.report import Times


class Clock(Protocol):
    """The time of a round; all numbers are seconds since the round began."""

    @property
    def virtual(self) -> bool:
        """Whether its time is virtual."""

    @property
    def waited_s(self) -> float:
        """Seconds that passed before the round while no client was there, and that count."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began, or that it took once it has ended."""

    def times(self) -> Mapping[int, Times]:
        """Return who did what when in the round under way, or just over."""
