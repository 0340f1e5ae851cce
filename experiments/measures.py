"""The figures that a paper's table gives for a run, computed from the run's record."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from records import Record

CLOSE = 0.1  # relative
CLOSE_POINTS = 1.0  # of a percentage
UNITS = ("rounds", "epochs", "steps", "s", "clients", "MiB", "%", "loss")


@dataclass(frozen=True)
class Measure:
    """A figure of a run.

    Attributes:
        of: the record's column, such as accuracy.
        what: ``first`` (the first round that reaches the target), ``last_below`` (the last round
            below it), ``clock`` (seconds of the clients' clock until it is reached), ``exchanges``
            (how often the global model has changed until then), ``best``,
            ``best_at`` (its round), ``least``, ``median``, ``last``, ``mean``, ``rise`` and
            ``fall`` (the largest from one round to the next) or ``rounds`` (how many were run in
            all).
        target: of the first four.
        unit: one of UNITS.
        factor: what one round counts, such as the epochs of a round.
        rounds: only the first ones count, or, if it is negative, the last ones; None: all.
    """

    of: str = "accuracy"
    what: str = "first"
    target: float | None = None
    unit: str = "rounds"
    factor: float = 1.0
    rounds: int | None = None

    def of_record(self, record: Record) -> float | None:
        """Return the figure of a run, None if the run has not come to it."""
        counted = range(1, record.rounds + 1)[slice(*self._counted())]
        series = [(at, value) for at, value in record.series(self.of) if at in counted]
        if not series:
            return None
        value = MEASURES[self.what](series, self.target or 0.0, record)
        if value is None:
            return None
        return value * (100 if self.unit == "%" else self.factor)

    def outcome(self, record: Record, theirs: float) -> float | None:
        """Return the figure of a run; infinity: it never reaches it; None: the run is in progress.

        A run that is far past the paper's rounds without its target never reaches it.
        """
        value = self.of_record(record)
        if value is not None or self.target is None:
            return value
        return math.inf if record.reason or self._is_past(record, theirs) else None

    def is_settled(self, records: Sequence[Record], theirs: float) -> bool:
        """Return whether more rounds of runs that have not ended cannot change the verdict.

        A target that was reached stays reached, and the best of all rounds only grows.
        """
        if all(record.reason or self._has_all(record) for record in records):
            return True
        values = [self.outcome(record, theirs) for record in records]
        if self.what in SETTLED:
            return None not in values
        least = min((value for value in values if value is not None), default=theirs)
        return self.what == "best" and least > theirs and not self.is_close(least, theirs)

    def _counted(self) -> tuple[int | None, int | None]:
        return (self.rounds, None) if (self.rounds or 0) < 0 else (None, self.rounds)

    def _has_all(self, record: Record) -> bool:
        return self.rounds is not None and 0 < self.rounds <= record.rounds

    def _is_past(self, record: Record, theirs: float) -> bool:
        so_far = record.rounds * self.factor
        return self.what == "first" and so_far > theirs and not self.is_close(so_far, theirs)

    def text(self, value: float, digits: int | None = None) -> str:
        """Return a figure as on the page, without its unit."""
        if math.isinf(value):
            return "not reached"
        if digits is not None:
            return f"{value:,.{digits}f}"
        if self.unit == "%":
            return f"{value:.2f}"
        if self.unit in ("loss", "MiB"):
            return f"{value:.3f}"
        if self.unit in ("epochs", "clients"):
            return f"{value:.1f}"
        return f"{value:,.0f}"

    def theirs_text(self, value: float) -> str:
        """Return a paper's figure with its own digits, without its unit."""
        return f"{value:.2f}" if self.unit == "%" else f"{value:,g}"

    def is_close(self, ours: float, theirs: float) -> bool:
        """Return whether two figures differ by no more than a tenth, or a point of percentage.

        They are close, too, if ours is theirs when it is rounded to their digits.
        """
        if round(ours, _decimals(theirs)) == theirs:
            return True
        difference = round(abs(ours - theirs), 9)  # 98.1 - 97.1 is not 1 in binary numbers
        return difference <= (CLOSE_POINTS if self.unit == "%" else CLOSE * abs(theirs))


def _decimals(value: float) -> int:
    """Return the number of decimal places of a figure."""
    return len(f"{value:g}".partition(".")[2])


def verdict(measure: Measure, ours: Sequence[float], theirs: float) -> str:
    """Return ``within`` or ``outside``.

    The paper's figure is within if it is between the smallest and the largest of our seeds, or if
    our median is close to it.
    """
    inside = min(ours) <= theirs <= max(ours)
    return "within" if inside or measure.is_close(statistics.median(ours), theirs) else "outside"


Series = Sequence[tuple[int, float]]


def _first(series: Series, target: float, record: Record) -> float | None:
    return next((float(round) for round, value in series if value >= target), None)


def _last_below(series: Series, target: float, record: Record) -> float | None:
    if _first(series, target, record) is None:
        return None
    return float(max((round for round, value in series if value < target), default=0))


def _clock(series: Series, target: float, record: Record) -> float | None:
    first = _first(series, target, record)
    return None if first is None else float(record.columns["clock_s"][int(first) - 1])


def _exchanges(series: Series, target: float, record: Record) -> float | None:
    first = _first(series, target, record)
    changed = record.columns.get("exchanges", range(1, record.rounds + 1))
    return None if first is None else float(changed[int(first) - 1])


def _best(series: Series, target: float, record: Record) -> float | None:
    return max(value for _, value in series)


def _best_at(series: Series, target: float, record: Record) -> float | None:
    return float(max(series, key=lambda one: one[1])[0])


def _least(series: Series, target: float, record: Record) -> float | None:
    return min(value for _, value in series)


def _median(series: Series, target: float, record: Record) -> float | None:
    return statistics.median(value for _, value in series)


def _last(series: Series, target: float, record: Record) -> float | None:
    return series[-1][1]


def _mean(series: Series, target: float, record: Record) -> float | None:
    return statistics.fmean(value for _, value in series)


def _rise(series: Series, target: float, record: Record) -> float | None:
    values = [value for _, value in series]
    return max((after - before for before, after in pairwise(values)), default=0.0)


def _fall(series: Series, target: float, record: Record) -> float | None:
    values = [value for _, value in series]
    return max((before - after for before, after in pairwise(values)), default=0.0)


def _rounds(series: Series, target: float, record: Record) -> float | None:
    return float(record.rounds)


MEASURES: Mapping[str, Callable[[Series, float, Record], float | None]] = {
    "first": _first,
    "last_below": _last_below,
    "clock": _clock,
    "exchanges": _exchanges,
    "best": _best,
    "best_at": _best_at,
    "least": _least,
    "median": _median,
    "last": _last,
    "mean": _mean,
    "rise": _rise,
    "fall": _fall,
    "rounds": _rounds,
}
SETTLED = ("first", "clock", "exchanges")  # as soon as the target is reached
OF_A_TARGET = (*SETTLED, "last_below")
