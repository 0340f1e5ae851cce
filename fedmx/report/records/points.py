"""The rounds of a run as points of its curves: what was measured, and the totals until then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmx.report.records.quantities import finite


@dataclass(frozen=True)
class Point:
    """One round: its own measures, and the run's totals at its end.

    Attributes:
        round: from 1.
        accuracy: of the global model on the test split, 0 to 1; None: not evaluated.
        loss: of the global model on the test split; None: not evaluated.
        train_loss: mean over the participants.
        bytes: up and down, since the run began.
        seconds: of the process since the run began, evaluation included.
        client_accuracy: mean over clients of the accuracy on a client's own test samples.
        client_variance: variance over clients of the same.
        clock_s: by the experiment's clock since the run began; None: not recorded.
        round_s: of this round, by the experiment's clock.
        virtual: whether that clock is virtual, as in a simulation with devices.
    """

    round: int
    accuracy: float | None
    loss: float | None
    train_loss: float | None
    bytes: float
    seconds: float
    client_accuracy: float | None = None
    client_variance: float | None = None
    clock_s: float | None = None
    round_s: float | None = None
    virtual: bool = False

    @property
    def time_s(self) -> float | None:
        """Real time by the clock, else of the process; None if time is virtual."""
        if self.virtual:
            return None
        return self.seconds if self.clock_s is None else self.clock_s

    @property
    def virtual_s(self) -> float | None:
        """Virtual time; None if time is real."""
        return self.clock_s if self.virtual else None

    @property
    def client_deviation(self) -> float | None:
        """The standard deviation of the accuracy over the clients."""
        return None if self.client_variance is None else max(self.client_variance, 0.0) ** 0.5


def points_of(records: Sequence[Mapping[str, Any]]) -> list[Point]:
    """Return a point for each record of a round; a value of a wrong type was not measured."""
    points: list[Point] = []
    sent_bytes = elapsed_s = clock_s = 0.0
    # A clock that some rounds do not have does not give the duration of the run.
    clocked = all(finite(record.get("clock_s")) is not None for record in records)
    for record in records:
        for key in ("up_bytes", "down_bytes"):
            sent_bytes += finite(record.get(key)) or 0.0
        elapsed = finite(record.get("elapsed_s"))
        elapsed_s = (
            elapsed_s + (finite(record.get("seconds")) or 0.0) if elapsed is None else elapsed
        )
        round_s = finite(record.get("clock_s"))
        clock_s = finite(record.get("clock_elapsed_s")) or clock_s + (round_s or 0.0)
        points.append(
            Point(
                round=int(finite(record.get("round")) or len(points) + 1),
                accuracy=finite(record.get("accuracy")),
                loss=finite(record.get("loss")),
                train_loss=finite(record.get("train_loss")),
                bytes=sent_bytes,
                seconds=elapsed_s,
                client_accuracy=finite(record.get("client_accuracy_mean")),
                client_variance=finite(record.get("client_accuracy_variance")),
                clock_s=clock_s if clocked else None,
                round_s=round_s,
                virtual=clocked and record.get("virtual") is True,
            )
        )
    return points


def evaluated(points: Iterable[Point]) -> list[Point]:
    """Return the rounds after which the model was evaluated."""
    return [p for p in points if p.accuracy is not None]


def best_of(points: Iterable[Point]) -> Point | None:
    """Return the first round with the highest accuracy, or None."""
    return max(evaluated(points), key=lambda p: (p.accuracy or 0.0, -p.round), default=None)


def first_with(points: Iterable[Point], accuracy: float) -> Point | None:
    """Return the first round with at least this accuracy, or None."""
    return next((p for p in evaluated(points) if (p.accuracy or 0.0) >= accuracy), None)
