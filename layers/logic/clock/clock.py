"""The interface that virtual and real clocks share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from layers.logic.core.report import Times


class Clock(Protocol):
    """The time of a round; all numbers are seconds since the round began."""

    @property
    def virtual(self) -> bool:
        """Whether the clock's time is virtual."""

    @property
    def waited_s(self) -> float:
        """Seconds before the round in which no client was available, as far as they count."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began; its duration once it has ended."""

    def times(self) -> Mapping[int, Times]:
        """Return the times of each client in the round under way, or in the last one."""
