"""What is compared seed by seed: the metrics of a sweep, and pairs of groups in a report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedmx.report.formats import MIB, plain, target_percent
from fedmx.report.groups import Group
from fedmx.report.summary import Curve

if TYPE_CHECKING:
    from fedmx.report.statistics import Comparison as Paired

Show = Callable[[float], str]


@dataclass(frozen=True)
class Metric:
    """A metric of a run.

    Attributes:
        title: its name with its unit; ``{target}`` stands for the target.
        larger: whether a larger value is better.
        of: returns its value in a run, for a target. None: not measured; infinity: the target was
            not reached.
        show: returns the text of a value.
        show_difference: returns the text of a difference.
        unit: the size of the unit in the title; a figure divides by it.
    """

    title: str
    larger: bool
    of: Callable[[Curve, float | None], float | None]
    show: Show
    show_difference: Show
    unit: float = 1.0

    def named(self, target: float | None) -> str:
        """Return the title with the target."""
        return self.title.format(target="" if target is None else target_percent(target))


def _accuracy(title: str, of: Callable[[Curve], float | None]) -> Metric:
    return Metric(
        title,
        larger=True,
        of=lambda curve, _: of(curve),
        show=lambda value: f"{100 * value:.2f}",
        show_difference=lambda value: f"{100 * value:+.2f}",
        unit=0.01,
    )


METRICS: Mapping[str, Metric] = {
    "best_accuracy": _accuracy("best accuracy, %", lambda curve: curve.best_accuracy),
    "accuracy": _accuracy("final accuracy, %", lambda curve: curve.final_accuracy),
    "rounds_to_target": Metric(
        "rounds to {target}",
        larger=False,
        of=lambda curve, target: p.round if (p := curve.reached(target)) else math.inf,
        show=lambda value: plain(value, 4),
        show_difference=lambda value: f"{value:+.2f}",
    ),
    "bytes_to_target": Metric(
        "MiB to {target}",
        larger=False,
        of=lambda curve, target: p.bytes if (p := curve.reached(target)) else math.inf,
        show=lambda value: plain(value / MIB, 4),
        show_difference=lambda value: plain(value / MIB, 3, "+"),
        unit=MIB,
    ),
}
"""The metrics by the names that tables use."""

SHOWN = ("best_accuracy", "rounds_to_target", "bytes_to_target")
"""The metrics that a report and a terminal show; tables have all."""


def metrics_for(target: float | None) -> list[str]:
    """Return the names of the metrics; those up to a target only if there is one."""
    return [name for name in METRICS if target or not name.endswith("target")]


Pairs = Sequence[tuple[Group, Group]]
"""Pairs of groups that are compared; the later one comes first."""


def compare_pair(
    metric: Metric, first: Group, second: Group, target: float | None
) -> Paired | None:
    """Return the comparison of two groups, over the seeds that have ended in both.

    None: there are fewer than two such seeds.
    """
    # Not at the top: SciPy takes a while, and most reports need no statistics.
    from fedmx.report.statistics import compare

    one, two = (_by_seed(metric, group, target) for group in (first, second))
    both = sorted(one.keys() & two.keys())
    if len(both) < 2:
        return None
    return compare([one[seed] for seed in both], [two[seed] for seed in both], larger=metric.larger)


def _by_seed(metric: Metric, group: Group, target: float | None) -> dict[str, float]:
    return {run.seed: value for run in group.ended if (value := metric.of(run, target)) is not None}


def is_best(metric: Metric, group: Group, pairs: Pairs, target: float | None) -> bool:
    """Return whether a group is better than each group that it is compared with.

    It is if the interval of each paired difference excludes 0, on its side.
    """
    own = [pair for pair in pairs if group is pair[0] or group is pair[1]]
    for first, second in own:
        sign = 1 if group is first else -1
        found = compare_pair(metric, first, second, target)
        if found is None or found.difference.low is None or found.difference.high is None:
            return False
        ends = sign * found.difference.low, sign * found.difference.high
        if not (min(ends) > 0 if metric.larger else max(ends) < 0):
            return False
    return bool(own)
