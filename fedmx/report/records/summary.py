"""The figures of one run, read from its folder: curves, totals, and what a target took."""

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
    """One round: its own measures, and what the run had used up when it ended.

    ``seconds`` are those of the process, evaluation included; ``clock_s`` those of the experiment's
    clock, which is ``virtual`` in a simulation with devices, and None in a run that does not tell.
    ``round_s`` is this round alone by that clock. ``client_accuracy`` is the mean over clients of
    the accuracy on a client's own test samples.
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
        """Real time: by the clock, or else of the process; None where time is virtual."""
        if self.virtual:
            return None
        return self.seconds if self.clock_s is None else self.clock_s

    @property
    def virtual_s(self) -> float | None:
        """Virtual time; None where time is real."""
        return self.clock_s if self.virtual else None

    @property
    def client_deviation(self) -> float | None:
        """The standard deviation over the clients."""
        return None if self.client_variance is None else max(self.client_variance, 0.0) ** 0.5


@dataclass(frozen=True)
class RunSummary:
    """One run as a report shows it. ``bytes`` are up and down together; control bytes are apart."""

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
        """Virtual time of the rounds; None where time is real."""
        return self.points[-1].virtual_s if self.points else None

    @property
    def planned_rounds(self) -> int | None:
        """How many rounds the experiment asks for."""
        rounds = self.settings.get("rounds")
        return rounds if isinstance(rounds, int) else None

    @property
    def evaluated(self) -> list[Point]:
        """The rounds after which the model was evaluated."""
        return [p for p in self.points if p.accuracy is not None]

    def best(self) -> Point | None:
        """The first of the rounds with the highest accuracy."""
        return max(self.evaluated, key=lambda p: (p.accuracy or 0.0, -p.round), default=None)

    def final(self) -> Point | None:
        """The last round that was evaluated."""
        return self.evaluated[-1] if self.evaluated else None

    def final_loss(self) -> float | None:
        """The last loss that was evaluated."""
        return next((p.loss for p in reversed(self.points) if p.loss is not None), None)

    def reached(self, accuracy: float) -> Point | None:
        """The first round with at least this accuracy."""
        return next((p for p in self.evaluated if (p.accuracy or 0.0) >= accuracy), None)

    def final_by_client(self) -> Point | None:
        """The last round after which each client's own test samples were evaluated."""
        return next((p for p in reversed(self.points) if p.client_accuracy is not None), None)

    def reached_by_clients(self, accuracy: float) -> Point | None:
        """The first round in which the mean over clients is at least this accuracy."""
        return next((p for p in self.points if (p.client_accuracy or 0.0) >= accuracy), None)


def summarise(run: RunFolder) -> RunSummary:
    """Read one run. Values of a wrong type count as not measured. Raises RunError."""
    points: list[Point] = []
    totals = dict.fromkeys(("up_bytes", "down_bytes", "control_bytes", "file_bytes"), 0.0)
    elapsed_s = clock_s = 0.0
    records = list(run.rounds())
    # A clock that was not there from the beginning does not tell how long the run took.
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
        **totals,
    )


def common_target(runs: Sequence[RunSummary], given: float | None = None) -> float | None:
    """The accuracy to measure all runs by: the one given, or the lowest that one stops at."""
    if given is not None:
        return given
    return _lowest(runs, "stop.accuracy")


def common_client_target(runs: Sequence[RunSummary], given: float | None = None) -> float | None:
    """As ``common_target``, for the mean over clients; None when no run has measured it."""
    if not any(run.final_by_client() for run in runs):
        return None
    return _lowest(runs, "stop.client_accuracy") if given is None else given


def comparison(
    runs: Sequence[RunSummary], target: float | None, client_target: float | None = None
) -> list[tuple[str, list[str]]]:
    """The headline figures: a label, and a text for each run."""
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
    for way, told in (("up", [run.up for run in runs]), ("down", [run.down for run in runs])):
        if any(told):
            place = 1 + [label for label, _ in rows].index(f"Bytes {way}")
            rows[place:place] = _against_float32(f"{way.capitalize()} a round", told)
    if target is not None:
        hits = [run.reached(target) for run in runs]
        rows += _used(f"To {target_percent(target)}", hits)
    if client_target is not None:
        hits = [run.reached_by_clients(client_target) for run in runs]
        rows += _used(f"To {target_percent(client_target)}, mean over clients", hits)
    return rows


def _used(label: str, hits: Sequence[Point | None]) -> list[tuple[str, list[str]]]:
    """What had been used when a target was reached, by whichever clocks the runs have."""
    rows = [
        (f"{label}: rounds", [str(hit.round) if hit else "not reached" for hit in hits]),
        (f"{label}: bytes", [mebibytes(hit.bytes) if hit else NOTHING for hit in hits]),
    ]
    clocks = {
        "time": [hit.time_s if hit else None for hit in hits],
        "virtual time": [hit.virtual_s if hit else None for hit in hits],
    }
    told = {name: times for name, times in clocks.items() if any(t is not None for t in times)}
    for name, times in (told or {"time": clocks["time"]}).items():
        rows.append((f"{label}: {name}", [duration(time) for time in times]))
    return rows


def _against_float32(label: str, told: Sequence[Compression | None]) -> list[tuple[str, list[str]]]:
    """What a direction takes in a round, and would take in float32."""
    return [
        (label, [one.a_round if one else NOTHING for one in told]),
        (
            f"{label} in float32",
            [f"{one.in_float32}, {one.ratio:,.3g} x as much" if one else NOTHING for one in told],
        ),
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
