"""What is compared seed by seed: the metrics of a sweep, and pairs of groups in a report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedmx.quantities import Quantity
from fedmx.report.formats import MIB, number, plain, target_text
from fedmx.report.groups import Group
from fedmx.report.summary import Curve

if TYPE_CHECKING:
    from fedmx.report.statistics import Comparison as Paired

Show = Callable[[float], str]


@dataclass(frozen=True)
class Metric:
    """A metric of a run.

    Attributes:
        words: its name.
        larger: whether a larger value is better.
        of: returns its value in a run. None: not measured; infinity: the target was not reached.
        show: returns the text of a value.
        show_difference: returns the text of a difference.
        unit: the size of the unit in the title; a figure divides by it.
        percent: whether that unit is a percentage point.
    """

    words: str
    larger: bool
    of: Callable[[Curve], float | None]
    show: Show
    show_difference: Show
    unit: float = 1.0
    percent: bool = False

    @property
    def title(self) -> str:
        """Its name with its unit."""
        return f"{self.words}, %" if self.percent else self.words


BEST = "best"
"""The metric that arms are judged by."""


def metrics_for(of: Quantity, target: float | None) -> dict[str, Metric]:
    """Return what is compared, by the names that tables use.

    Args:
        of: the metric that stands for the model.
        target: a value of it; None: rounds and bytes up to it are not among the metrics.
    """
    found = {
        BEST: _of_model(f"best {of.words}", of, lambda curve: curve.best_value),
        of.key: _of_model(f"final {of.words}", of, lambda curve: curve.value(curve.final)),
    }
    if target is None:
        return found
    text = target_text(of, target)
    return found | {
        "rounds_to_target": Metric(
            f"rounds to {text}",
            larger=False,
            of=lambda curve: p.round if (p := curve.reached(target)) else math.inf,
            show=lambda value: plain(value, 4),
            show_difference=lambda value: f"{value:+.2f}",
        ),
        "bytes_to_target": Metric(
            f"MiB to {text}",
            larger=False,
            of=lambda curve: p.bytes if (p := curve.reached(target)) else math.inf,
            show=lambda value: plain(value / MIB, 4),
            show_difference=lambda value: plain(value / MIB, 3, "+"),
            unit=MIB,
        ),
    }


def _of_model(words: str, of: Quantity, value: Callable[[Curve], float | None]) -> Metric:
    share = of.unit == "share"
    return Metric(
        words,
        larger=of.better != "lower",
        of=value,
        show=(lambda value: f"{100 * value:.2f}") if share else number,
        show_difference=(lambda value: f"{100 * value:+.2f}") if share else "{:+.4g}".format,
        unit=0.01 if share else 1.0,
        percent=share,
    )


Pairs = Sequence[tuple[Group, Group]]
"""Pairs of groups that are compared; the later one comes first."""


def compare_pair(metric: Metric, first: Group, second: Group) -> Paired | None:
    """Return the comparison of two groups, over the seeds that have ended in both.

    None: there are fewer than two such seeds.
    """
    # Not at the top: SciPy takes a while, and most reports need no statistics.
    from fedmx.report.statistics import compare

    one, two = (_by_seed(metric, group) for group in (first, second))
    both = sorted(one.keys() & two.keys())
    if len(both) < 2:
        return None
    return compare([one[seed] for seed in both], [two[seed] for seed in both], larger=metric.larger)


def _by_seed(metric: Metric, group: Group) -> dict[str, float]:
    return {run.seed: value for run in group.ended if (value := metric.of(run)) is not None}


def is_best(metric: Metric, group: Group, pairs: Pairs) -> bool:
    """Return whether a group is better than each group that it is compared with.

    It is if the interval of each paired difference excludes 0, on its side.
    """
    own = [pair for pair in pairs if group is pair[0] or group is pair[1]]
    for first, second in own:
        sign = 1 if group is first else -1
        found = compare_pair(metric, first, second)
        if found is None or found.difference.low is None or found.difference.high is None:
            return False
        ends = sign * found.difference.low, sign * found.difference.high
        if not (min(ends) > 0 if metric.larger else max(ends) < 0):
            return False
    return bool(own)
