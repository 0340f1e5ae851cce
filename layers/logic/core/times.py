"""When a client did what in a round, by the clock of whatever carried its task."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """Moments in seconds since the round began; None: it did not come to that.

    Attributes:
        asked_s: its task was sent.
        trained_s: it had trained, as far as that is known.
        decided_s: the verdict on its offer was given.
        sending_s: its update began to travel.
        ended_s: its update had arrived, or it was given up.
    """

    asked_s: float
    trained_s: float | None = None
    decided_s: float | None = None
    sending_s: float | None = None
    ended_s: float | None = None
