"""The figures of a run from its folder: curves, totals, and the costs up to a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmx.report.records.compression import Compression, compression
from fedmx.report.records.participation import Participation, tally
from fedmx.report.records.quantities import (
    NOTHING,
    duration,
    finite,
    mebibytes,
    number,
    percent,
    target_percent,
)
from fedmx.report.records.settings import read_settings
from fedmx.run import RunFolder


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
        return [p for p in self.points if p.accuracy is not None]

    def best(self) -> Point | None:
        """Return the first round with the highest accuracy, or None."""
        return max(self.evaluated, key=lambda p: (p.accuracy or 0.0, -p.round), default=None)

    def final(self) -> Point | None:
        """Return the last evaluated round, or None."""
        return self.evaluated[-1] if self.evaluated else None

    def final_loss(self) -> float | None:
        """Return the last evaluated loss, or None."""
        return next((p.loss for p in reversed(self.points) if p.loss is not None), None)

    def reached(self, accuracy: float) -> Point | None:
        """Return the first round with at least this accuracy, or None."""
        return next((p for p in self.evaluated if (p.accuracy or 0.0) >= accuracy), None)

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
    points: list[Point] = []
    totals = dict.fromkeys(("up_bytes", "down_bytes", "control_bytes", "file_bytes"), 0.0)
    elapsed_s = clock_s = 0.0
    records = list(run.rounds())
    # A clock that some rounds do not have does not give the duration of the run.
    clocked = all(finite(record.get("clock_s")) is not None for record in records)
    for record in records:
        for key in totals:
            totals[key] += finite(record.get(key)) or 0.0
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
                bytes=totals["up_bytes"] + totals["down_bytes"],
                seconds=elapsed_s,
                client_accuracy=finite(record.get("client_accuracy_mean")),
                client_variance=finite(record.get("client_accuracy_variance")),
                clock_s=clock_s if clocked else None,
                round_s=round_s,
                virtual=clocked and record.get("virtual") is True,
            )
        )
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


def common_target(runs: Sequence[RunSummary], given: float | None = None) -> float | None:
    """Return the target of all runs: the given one, or the lowest ``stop.accuracy``."""
    if given is not None:
        return given
    return _lowest(runs, "stop.accuracy")


def common_client_target(runs: Sequence[RunSummary], given: float | None = None) -> float | None:
    """Return the target of the mean over clients; None if no run has measured that mean."""
    if not any(run.final_by_client() for run in runs):
        return None
    return _lowest(runs, "stop.client_accuracy") if given is None else given


def comparison(
    runs: Sequence[RunSummary], target: float | None, client_target: float | None = None
) -> list[tuple[str, list[str]]]:
    """Return the main figures: a label, and a text for each run."""
    rows = [
        ("Status", [run.status for run in runs]),
        ("Rounds", [_rounds(run) for run in runs]),
        (
            "Final accuracy",
            [percent(p.accuracy) if (p := run.final()) else NOTHING for run in runs],
        ),
        ("Best accuracy", [_best(run) for run in runs]),
        ("Final loss", [number(run.final_loss()) for run in runs]),
        ("Bytes up", [mebibytes(run.up_bytes) for run in runs]),
        ("Bytes down", [mebibytes(run.down_bytes) for run in runs]),
        ("Control bytes", [mebibytes(run.control_bytes) for run in runs]),
        ("Time", [duration(run.seconds) for run in runs]),
    ]
    if any(run.damage for run in runs):
        rows.append(("Damaged, left out", [str(len(run.damage)) for run in runs]))
    if any(run.file_bytes for run in runs):
        rows.insert(8, ("File bytes", [mebibytes(run.file_bytes) for run in runs]))
    if any(run.virtual for run in runs):
        rows.append(("Virtual time", [duration(run.virtual_s) for run in runs]))
    by_client = [run.final_by_client() for run in runs]
    if any(by_client):
        rows[4:4] = [
            (
                "Final accuracy by client, mean",
                [percent(p.client_accuracy if p else None) for p in by_client],
            ),
            (
                "Final accuracy by client, variance",
                [number(p.client_variance if p else None) for p in by_client],
            ),
        ]
    for way, sizes in (("up", [run.up for run in runs]), ("down", [run.down for run in runs])):
        if any(sizes):
            place = 1 + [label for label, _ in rows].index(f"Bytes {way}")
            rows[place:place] = _compression_rows(f"{way.capitalize()} a round", sizes)
    if target is not None:
        points = [run.reached(target) for run in runs]
        rows += _target_rows(f"To {target_percent(target)}", points)
    if client_target is not None:
        points = [run.reached_by_clients(client_target) for run in runs]
        rows += _target_rows(f"To {target_percent(client_target)}, mean over clients", points)
    return rows


def _target_rows(label: str, points: Sequence[Point | None]) -> list[tuple[str, list[str]]]:
    """Return the rounds, bytes and time up to a target, by the clocks that the runs have."""
    rows = [
        (f"{label}: rounds", [str(p.round) if p else "not reached" for p in points]),
        (f"{label}: bytes", [mebibytes(p.bytes) if p else NOTHING for p in points]),
    ]
    clocks = {
        "time": [p.time_s if p else None for p in points],
        "virtual time": [p.virtual_s if p else None for p in points],
    }
    known = {name: times for name, times in clocks.items() if any(t is not None for t in times)}
    for name, times in (known or {"time": clocks["time"]}).items():
        rows.append((f"{label}: {name}", [duration(time) for time in times]))
    return rows


def _compression_rows(
    label: str, sizes: Sequence[Compression | None]
) -> list[tuple[str, list[str]]]:
    """Return the bytes of a direction in a round, and the bytes in float32."""
    in_float32 = [
        f"{one.float32_per_round}, {one.ratio:,.3g} x as much" if one else NOTHING for one in sizes
    ]
    return [
        (label, [one.per_round if one else NOTHING for one in sizes]),
        (f"{label} in float32", in_float32),
    ]


def _lowest(runs: Sequence[RunSummary], setting: str) -> float | None:
    named = [finite(run.settings.get(setting)) for run in runs]
    return min((target for target in named if target is not None), default=None)


def _rounds(run: RunSummary) -> str:
    done = run.points[-1].round if run.points else 0
    return f"{done} of {run.planned_rounds}" if run.planned_rounds is not None else str(done)


def _best(run: RunSummary) -> str:
    best = run.best()
    return NOTHING if best is None else f"{percent(best.accuracy)} (round {best.round})"
