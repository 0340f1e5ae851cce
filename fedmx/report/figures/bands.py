"""The curve of a group of runs: the mean of its seeds, and from the least to the largest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedmx.report.records.points import Point
from fedmx.report.records.summary import RunSummary

Value = Callable[[Point], float | None]
Line = list[tuple[float, float]]
"""Pairs of x and y."""


@dataclass(frozen=True)
class Band:
    """A curve.

    Attributes:
        mean: over the runs, in the rounds that all of them have.
        low: the least y at each x of `mean`.
        high: the largest.
        tails: what single runs have after the last common round.
    """

    mean: Line
    low: Sequence[float]
    high: Sequence[float]
    tails: Sequence[Line]


def band_of(runs: Sequence[RunSummary], x: Value, y: Value) -> Band:
    """Return the curve of runs; a run without any value of y is left out.

    Where x is bytes or time, it is the mean at each round, too.
    """
    lines: list[dict[int, tuple[float, float]]] = []
    for run in runs:
        line = {
            p.round: (across, up)
            for p in run.points
            if (across := x(p)) is not None and (up := y(p)) is not None
        }
        if line:
            lines.append(line)
    if not lines:
        return Band([], [], [], [])
    common = sorted(set.intersection(*(set(line) for line in lines)))
    if not common:
        return Band([], [], [], [list(line.values()) for line in lines])
    mean, low, high = [], [], []
    for number in common:
        pairs = [line[number] for line in lines]
        ys = [up for _, up in pairs]
        mean.append((sum(across for across, _ in pairs) / len(pairs), sum(ys) / len(ys)))
        low.append(min(ys))
        high.append(max(ys))
    tails = [[pair for number, pair in line.items() if number >= common[-1]] for line in lines]
    return Band(mean, low, high, [tail for tail in tails if len(tail) > 1])
