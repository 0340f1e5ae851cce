"""Statistics over the seeds of a cell of a sweep or a group of a report, and of pairs of them.

The statistics are those of Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the
Statistical Precipice": the interquartile mean, and the probability of improvement. Arms have the
same seeds, so they are compared by their differences, seed by seed.

`benchmarks/intervals.py` measures how often the intervals hold.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

CONFIDENCE = 0.95
FEWEST_SEEDS = 6
"""With fewer, bootstrap intervals of the median and the interquartile mean are too narrow."""

FEWEST_PAIRS = 3
"""With fewer seeds in both arms, the interval of their difference says nothing."""

RESAMPLES = 4999
_ROUNDING = 1e-12
"""Values whose range is a smaller share of their size differ only by rounding."""

_SEED = 20210830  # the same numbers always give the same intervals

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A statistic and its interval.

    Attributes:
        value: None: it is not finite, because some seed did not reach the target.
        low: the lower end; None: there is no interval.
        high: the upper end.
    """

    value: float | None
    low: float | None = None
    high: float | None = None

    def record(self, name: str) -> dict[str, float | None]:
        """Return the estimate under a name, and the ends of its interval."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


@dataclass(frozen=True)
class Summary:
    """One metric of one cell, over its seeds.

    Attributes:
        seeds: the number of measured seeds.
        reached: the number of seeds with a value; the others never reached the target.
        median: over all measured seeds.
        iqm: the interquartile mean, without the lowest and the highest quarter.
    """

    seeds: int
    reached: int
    median: Estimate
    iqm: Estimate


@dataclass(frozen=True)
class Comparison:
    """One metric of two arms, seed by seed.

    Attributes:
        seeds: the number of seeds that both arms have.
        difference: the mean over seeds of the first arm's value minus the second's.
        improvement: the probability that a run of the first arm is better than one of the second;
            a tie counts half. None: there are no seeds.
        unpaired_seeds: the number of seeds in each arm that would give an equally narrow interval
            without pairing; None: the differences do not vary.
    """

    seeds: int
    difference: Estimate
    improvement: float | None
    unpaired_seeds: int | None


def summarise(values: Sequence[float]) -> Summary:
    """Return the summary of a metric's values, one a seed; infinity: the target was not reached."""
    given = np.asarray(values, dtype=np.float64)
    reached = int(np.isfinite(given).sum())
    if not len(given):
        return Summary(0, 0, Estimate(None), Estimate(None))
    return Summary(
        len(given), reached, _estimate(given, np.median), _estimate(given, interquartile_mean)
    )


def compare(first: Sequence[float], second: Sequence[float], *, larger: bool = True) -> Comparison:
    """Return the comparison of two arms with values in the order of the same seeds.

    Args:
        first: of one arm; infinity: the target was not reached.
        second: of the other arm.
        larger: whether a larger value is better.
    """
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if not len(one):
        return Comparison(0, Estimate(None), None, None)
    improvement = _improvement(one, two) if larger else _improvement(two, one)
    if not (np.isfinite(one).all() and np.isfinite(two).all()):
        return Comparison(len(one), Estimate(None), improvement, None)
    differences = one - two
    alike = _are_alike(differences, max(np.abs(one).max(), np.abs(two).max()))
    return Comparison(
        len(one),
        _mean_estimate(differences, alike=alike),
        improvement,
        None if alike else _unpaired_seeds(one, two, differences),
    )


def interquartile_mean(values: Values, axis: int = -1) -> Any:
    """Return the mean without the lowest and the highest quarter of the values, rounded down."""
    return stats.trim_mean(values, 0.25, axis=axis)


def mean_interval(values: Values) -> tuple[Any, Any]:
    """Return Student's interval of the mean; the shapes are those of `bootstrap_interval`."""
    found = stats.ttest_1samp(values, 0.0, axis=-1).confidence_interval(CONFIDENCE)
    return found.low, found.high


def bootstrap_interval(values: Values, statistic: Callable[..., Any]) -> tuple[Any, Any]:
    """Return the percentile bootstrap interval of a statistic, at the level of `widened`.

    Args:
        values: of one cell (n,), or of several (cells, n).
        statistic: takes an `axis`.

    Returns:
        The lower and the upper end; of several cells an array each.
    """
    found = stats.bootstrap(
        (values,),
        statistic,
        n_resamples=RESAMPLES,
        confidence_level=widened(values.shape[-1]),
        method="percentile",
        axis=-1,
        vectorized=True,
        rng=np.random.default_rng(_SEED),
    ).confidence_interval
    return found.low, found.high


def widened(number: int) -> float:
    """Return the level at which the bootstrap of a few values has the coverage `CONFIDENCE`.

    A resample of n values varies less than n new values. Therefore, the quantile of the normal
    distribution is replaced by that of Student's with n - 1 degrees of freedom (after Hesterberg
    2015, "What Teachers Should Know About the Bootstrap", section 4.2.3).
    """
    quantile = stats.t.ppf(0.5 + CONFIDENCE / 2, number - 1)
    return float(1.0 - 2.0 * stats.norm.sf(quantile))


def _mean_estimate(values: Values, *, alike: bool) -> Estimate:
    value = float(values.mean())
    if len(values) < FEWEST_PAIRS or alike:
        return Estimate(value)
    low, high = mean_interval(values)
    return Estimate(value, float(low), float(high))


def _estimate(values: Values, statistic: Callable[..., Any]) -> Estimate:
    finite = bool(np.isfinite(values).all())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # infinity minus infinity
        value = float(statistic(values))
    if not math.isfinite(value):
        return Estimate(None)
    if not finite or len(values) < FEWEST_SEEDS or _are_alike(values, np.abs(values).max()):
        return Estimate(value)
    low, high = bootstrap_interval(values, statistic)
    return Estimate(value, float(low), float(high))


def _improvement(one: Values, two: Values) -> float:
    """Return the probability that a value of `one` is above one of `two`; a tie counts half.

    It is the Mann-Whitney statistic, divided by the number of pairs (Agarwal et al. 2021, 4.3).
    """
    above, equal = one[:, None] > two, one[:, None] == two
    return float(above.mean() + 0.5 * equal.mean())


def _are_alike(values: Values, size: float) -> bool:
    """Return whether values computed from numbers of this size differ only by rounding."""
    return float(np.ptp(values)) <= _ROUNDING * size


def _unpaired_seeds(one: Values, two: Values, differences: Values) -> int | None:
    """Return n (s1^2 + s2^2) / s_d^2, rounded up: the unpaired variance over the paired."""
    if len(one) < 2:
        return None
    paired = float(differences.var(ddof=1))
    unpaired = float(one.var(ddof=1) + two.var(ddof=1))
    return max(math.ceil(len(one) * unpaired / paired - 1e-9), 2)
