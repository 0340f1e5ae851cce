"""The figures of a run from its folder: curves, totals, and the costs up to a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmx.report.records.compression import Compression, compression
from fedmx.report.records.participation import Participation, tally
from fedmx.report.records.points import (
    Point,
    best_of,
    evaluated,
    first_with,
    points_of,
)
from fedmx.report.records.quantities import (
    finite,
)
from fedmx.report.records.settings import read_settings
from fedmx.run import RunFolder


@dataclass(frozen=True)
class RunSummary:
    """One run as a report shows it; ``bytes`` of a point are without control and file bytes.

    What is damaged in its folder (``damage``, a line each) is missing in the figures.
    """

    name: str
    status: str
    reason: str
    facts: Mapping[str, Any]
    experiment_yaml: str
    settings: Mapping[str, Any]
    points: Sequence[Point]
    up_bytes: float
    down_bytes: float
    control_bytes: float
    file_bytes: float
    participation: Participation
    up: Compression | None = None
    down: Compression | None = None
    damage: Sequence[str] = ()

    @property
    def seconds(self) -> float | None:
        """Wall-clock time of the rounds, evaluation included."""
        return self.points[-1].seconds if self.points else None

    @property
    def virtual(self) -> bool:
        """Whether the rounds' clock is virtual."""
        return bool(self.points) and self.points[-1].virtual

    @property
    def virtual_s(self) -> float | None:
        """Virtual time of the rounds; None if time is real."""
        return self.points[-1].virtual_s if self.points else None

    @property
    def planned_rounds(self) -> int | None:
        """The number of rounds in the experiment."""
        rounds = self.settings.get("rounds")
        return rounds if isinstance(rounds, int) else None

    @property
    def evaluated(self) -> list[Point]:
        """The rounds after which the model was evaluated."""
        return evaluated(self.points)

    def best(self) -> Point | None:
        """Return the first round with the highest accuracy, or None."""
        return best_of(self.points)

    def final(self) -> Point | None:
        """Return the last evaluated round, or None."""
        return self.evaluated[-1] if self.evaluated else None

    def final_loss(self) -> float | None:
        """Return the last evaluated loss, or None."""
        return next((p.loss for p in reversed(self.points) if p.loss is not None), None)

    def reached(self, accuracy: float) -> Point | None:
        """Return the first round with at least this accuracy, or None."""
        return first_with(self.points, accuracy)

    def final_by_client(self) -> Point | None:
        """Return the last round after which clients' own test samples were evaluated, or None."""
        return next((p for p in reversed(self.points) if p.client_accuracy is not None), None)

    def reached_by_clients(self, accuracy: float) -> Point | None:
        """Return the first round whose mean accuracy over clients is at least this, or None."""
        return next((p for p in self.points if (p.client_accuracy or 0.0) >= accuracy), None)


def summarise(run: RunFolder) -> RunSummary:
    """Return the figures of a run; a value of a wrong type counts as not measured.

    Raises:
        RunError: the run cannot be read.
    """
    records = run.rounds()
    points = points_of(records)
    totals = {
        key: sum(finite(record.get(key)) or 0.0 for record in records)
        for key in ("up_bytes", "down_bytes", "control_bytes", "file_bytes")
    }
    return RunSummary(
        name=run.name,
        status=run.status,
        reason=run.reason,
        facts=run.facts,
        experiment_yaml=run.experiment_yaml,
        settings=read_settings(run.experiment_yaml),
        points=points,
        participation=tally(run.clients()),
        up=compression(run.facts, records, "up_bytes", "updates"),
        down=compression(run.facts, records, "down_bytes", "tasks"),
        damage=run.damage,
        **totals,
    )
