"""The main figures of runs and of groups of runs, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fedmx.errors import FedmxError
from fedmx.report.records.compression import TOLERANCE, Compression
from fedmx.report.records.groups import Group
from fedmx.report.records.points import Point
from fedmx.report.records.quantities import (
    NOTHING,
    duration,
    finite,
    mebibytes,
    number,
    percent,
    plain,
    target_percent,
)
from fedmx.report.records.summary import RunSummary


class Cell(NamedTuple):
    """What a table says of a group: the value, or the mean and the range over its runs."""

    text: str
    range: str = ""


@dataclass(frozen=True)
class Row:
    """One figure of several runs.

    Attributes:
        label: what it is.
        texts: of each run.
        values: of each run, where a mean says something; None: not known.
        show: the text of a value.
        missing: what is said of runs without a value.
    """

    label: str
    texts: Sequence[str]
    values: Sequence[float | None] | None = None
    show: Callable[[float | None], str] = field(default=number)
    missing: str = ""

    @property
    def empty(self) -> bool:
        """Whether it says nothing of any run."""
        return all(text in (NOTHING, mebibytes(0)) for text in self.texts)

    def cell(self, members: Sequence[int]) -> Cell:
        """Return what it says of some of the runs together, given by their places."""
        texts = [self.texts[place] for place in members]
        if self.values is None or len(members) == 1:
            times = Counter(texts)
            several = [f"{count} × {text}" for text, count in times.items()]
            return Cell(texts[0] if len(times) == 1 else ", ".join(several))
        known = [value for place in members if (value := self.values[place]) is not None]
        if not known:
            return Cell(self.missing or NOTHING)
        parts = []
        least, most = self.show(min(known)), self.show(max(known))
        if least != most:
            parts.append(f"{least} to {most}")
        if len(known) < len(members):
            parts.append(f"{len(known)} of {len(members)}")
        return Cell(self.show(sum(known) / len(known)), ", ".join(parts))


def rows_of(
    runs: Sequence[RunSummary], target: float | None, client_target: float | None = None
) -> list[Row]:
    """Return the main figures; a row that says nothing of any run is left out."""

    def row(
        label: str,
        value: Callable[[RunSummary], float | None],
        show: Callable[[float | None], str],
    ) -> Row:
        values = [value(run) for run in runs]
        return Row(label, [show(one) for one in values], values, show)

    rows = [
        Row("Status", [run.status for run in runs]),
        Row("Rounds", [_rounds(run) for run in runs]),
        row("Final accuracy", lambda run: p.accuracy if (p := run.final()) else None, percent),
        Row(
            "Best accuracy",
            [_best(run) for run in runs],
            [best.accuracy if (best := run.best()) else None for run in runs],
            percent,
        ),
    ]
    if any(run.final_by_client() for run in runs):
        rows += [
            row(
                "Final accuracy by client, mean",
                lambda run: p.client_accuracy if (p := run.final_by_client()) else None,
                percent,
            ),
            row(
                "Final accuracy by client, variance",
                lambda run: p.client_variance if (p := run.final_by_client()) else None,
                number,
            ),
        ]
    rows += [
        row("Final loss", RunSummary.final_loss, number),
        row("Bytes up", lambda run: run.up_bytes, mebibytes),
        *_compression_rows("Up a round", [run.up for run in runs]),
        row("Bytes down", lambda run: run.down_bytes, mebibytes),
        *_compression_rows("Down a round", [run.down for run in runs]),
        row("Control bytes", lambda run: run.control_bytes, mebibytes),
        row("File bytes", lambda run: run.file_bytes, mebibytes),
        row("Time", lambda run: run.seconds, duration),
    ]
    if any(run.damage for run in runs):
        rows.append(Row("Damaged, left out", [str(len(run.damage)) for run in runs]))
    rows.append(row("Virtual time", lambda run: run.virtual_s, duration))
    if target is not None:
        points = [run.reached(target) for run in runs]
        rows += _target_rows(f"To {target_percent(target)}", points)
    if client_target is not None:
        points = [run.reached_by_clients(client_target) for run in runs]
        rows += _target_rows(f"To {target_percent(client_target)}, mean over clients", points)
    return [one for one in rows if not one.empty]


def comparison(
    runs: Sequence[RunSummary], target: float | None, client_target: float | None = None
) -> list[tuple[str, list[str]]]:
    """Return the main figures: a label, and a text for each run."""
    return [(row.label, list(row.texts)) for row in rows_of(runs, target, client_target)]


def compare_groups(
    groups: Sequence[Group], target: float | None, client_target: float | None = None
) -> list[tuple[str, list[Cell]]]:
    """Return the main figures: a label, and a cell for each group."""
    runs = [run for group in groups for run in group.runs]
    places: list[range] = []
    for group in groups:
        begin = places[-1].stop if places else 0
        places.append(range(begin, begin + len(group.runs)))
    rows = rows_of(runs, target, client_target)
    return [(row.label, [row.cell(members) for members in places]) for row in rows]


def check_target(target: float) -> None:
    """Check that a target is an accuracy, as 0.98.

    Raises:
        FedmxError: it is not; it may have been given in percent.
    """
    if not 0 < target <= 1:
        raise FedmxError(f"target: must be an accuracy from 0 to 1, as 0.98, not {target:g}")


def common_target(runs: Sequence[RunSummary], given: float | None = None) -> float | None:
    """Return the target of all runs: the given one, or the lowest ``stop.accuracy``.

    Raises:
        FedmxError: the given one is no accuracy.
    """
    if given is not None:
        check_target(given)
    return _lowest(runs, "stop.accuracy") if given is None else given


def common_client_target(runs: Sequence[RunSummary], given: float | None = None) -> float | None:
    """Return the target of the mean over clients; None if no run has measured that mean."""
    if not any(run.final_by_client() for run in runs):
        return None
    return _lowest(runs, "stop.client_accuracy") if given is None else given


def _target_rows(label: str, points: Sequence[Point | None]) -> list[Row]:
    """Return the rounds, bytes and time up to a target, by the clocks that the runs have."""
    rounds = [float(p.round) if p else None for p in points]
    sizes = [p.bytes if p else None for p in points]
    missing = "not reached"
    rows = [
        Row(
            f"{label}: rounds",
            [str(p.round) if p else missing for p in points],
            rounds,
            lambda value: NOTHING if value is None else plain(value),
            missing,
        ),
        Row(f"{label}: bytes", [mebibytes(size) for size in sizes], sizes, mebibytes),
    ]
    clocks = {
        "time": [p.time_s if p else None for p in points],
        "virtual time": [p.virtual_s if p else None for p in points],
    }
    for name, times in clocks.items():
        rows.append(Row(f"{label}: {name}", [duration(time) for time in times], times, duration))
    return rows


def _compression_rows(label: str, sizes: Sequence[Compression | None]) -> list[Row]:
    """Return the bytes of a direction in a round, and the bytes in float32 if they differ."""
    in_float32 = [
        f"{one.float32_per_round}, {plain(one.ratio)} x as much" if one else NOTHING
        for one in sizes
    ]
    rows = [Row(label, [one.per_round if one else NOTHING for one in sizes])]
    if any(one and abs(one.ratio - 1) > TOLERANCE for one in sizes):
        rows.append(Row(f"{label} in float32", in_float32))
    return rows


def _lowest(runs: Sequence[RunSummary], setting: str) -> float | None:
    named = [finite(run.settings.get(setting)) for run in runs]
    return min((target for target in named if target is not None), default=None)


def _rounds(run: RunSummary) -> str:
    done = run.points[-1].round if run.points else 0
    return f"{done} of {run.planned_rounds}" if run.planned_rounds is not None else str(done)


def _best(run: RunSummary) -> str:
    best = run.best()
    return NOTHING if best is None else f"{percent(best.accuracy)} (round {best.round})"
