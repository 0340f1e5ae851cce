"""Statistics of a sweep have known values, and intervals have their nominal coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedmx.report.statistics import (
    FEWEST_SEEDS,
    Estimate,
    Summary,
    bootstrap_interval,
    compare,
    interquartile_mean,
    mean_interval,
    summarise,
    widened,
)

TEN = [0.80, 0.81, 0.79, 0.83, 0.82, 0.78, 0.84, 0.80, 0.85, 0.10]
finite = st.floats(0, 1, width=32)
scores = st.lists(st.tuples(finite, finite), min_size=1, max_size=12)


def test_the_interquartile_mean_ignores_a_collapsed_seed() -> None:
    found = summarise(TEN)
    assert found.iqm.value == pytest.approx(np.mean(sorted(TEN)[2:8]))
    assert found.median.value == pytest.approx(0.805)
    assert (found.seeds, found.reached) == (10, 10)


def test_an_interval_contains_its_estimate_and_is_the_same_each_time() -> None:
    found = summarise(TEN)
    for one in (found.median, found.iqm):
        assert one.value is not None
        assert one.low is not None
        assert one.high is not None
        assert one.low < one.value < one.high
    assert summarise(TEN) == found


def test_few_seeds_have_estimates_without_intervals() -> None:
    few = summarise(TEN[: FEWEST_SEEDS - 1])
    assert few.iqm.value is not None
    assert (few.iqm.low, few.median.low) == (None, None)
    assert summarise(TEN[:FEWEST_SEEDS]).iqm.low is not None


def test_a_missed_target_counts_as_infinitely_many_rounds() -> None:
    some = summarise([10, 12, 14, math.inf, 11, 13, 15])
    assert (some.seeds, some.reached) == (7, 6)
    assert (some.median.value, some.iqm.value) == (13, pytest.approx(13.0))
    assert (some.median.low, some.iqm.low) == (None, None)
    most = summarise([10, math.inf, math.inf])
    assert (most.median.value, most.reached) == (None, 1)
    assert summarise([]) == Summary(0, 0, Estimate(None), Estimate(None))


def test_arms_are_compared_seed_by_seed() -> None:
    seed = np.random.default_rng(1).normal(size=10)
    noise = 0.1 * np.random.default_rng(2).normal(size=10)
    one, two = list(seed + 0.1 + noise), list(seed)
    found = compare(one, two)
    expected = stats.ttest_rel(one, two).confidence_interval(0.95)
    assert (found.difference.low, found.difference.high) == pytest.approx(tuple(expected))
    assert found.difference.value == pytest.approx(np.mean(one) - np.mean(two))
    # Without pairing, the variance over seeds would count twice.
    ratio = (np.var(one, ddof=1) + np.var(two, ddof=1)) / np.var(np.subtract(one, two), ddof=1)
    assert found.unpaired_seeds == math.ceil(10 * ratio)
    assert found.unpaired_seeds > 100


def test_the_differences_of_a_few_seeds_are_those_of_a_calculation_by_hand() -> None:
    found = compare([1, 2, 4], [2, 5, 3])
    assert (found.seeds, found.difference.value) == (3, -1.0)
    assert found.difference.high == pytest.approx(-1 + 4.302653 * 2 / math.sqrt(3))
    assert (found.improvement, found.unpaired_seeds) == (pytest.approx(2.5 / 9), 4)
    one = compare([1], [2])
    assert (one.difference, one.improvement, one.unpaired_seeds) == (Estimate(-1.0), 0.0, None)
    assert widened(6) == pytest.approx(0.98985, abs=1e-5)  # 2.5706 standard deviations


def test_the_probability_of_improvement_is_the_mann_whitney_statistic() -> None:
    one, two = TEN, [value - 0.02 for value in TEN[:9]] + [0.9]
    expected = stats.mannwhitneyu(one, two).statistic / 100
    assert compare(one, two).improvement == pytest.approx(expected)
    assert compare(one, two, larger=False).improvement == pytest.approx(1 - expected)
    assert compare([3, math.inf], [math.inf, math.inf], larger=False).improvement == 0.75


@given(scores)
def test_exchanging_arms_reverses_the_comparison(pairs: list[tuple[float, float]]) -> None:
    one, two = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    there, back = compare(one, two), compare(two, one)
    assert there.improvement == pytest.approx(1 - (back.improvement or 0.0))
    assert there.difference.value == pytest.approx(-(back.difference.value or 0.0))
    assert there.unpaired_seeds == back.unpaired_seeds


@pytest.mark.parametrize("values", [[0.5, 0.6], [0.0, 0.0]])
def test_equal_arms_have_no_interval(values: list[float]) -> None:
    found = compare(values, values)
    assert (found.difference.value, found.difference.low) == (0.0, None)
    assert (found.improvement, found.unpaired_seeds) == (0.5, None)


def test_the_difference_of_two_seeds_has_no_interval() -> None:
    for seeds, has_one in ((2, False), (3, True)):
        found = compare(TEN[:seeds], TEN[5 : 5 + seeds])
        assert found.difference.value is not None
        assert (found.difference.low is not None) == has_one


def test_differences_by_rounding_have_no_interval() -> None:
    one, two = [0.9634, 0.9733, 0.9519], [0.9633, 0.9732, 0.9518]
    assert np.ptp(np.subtract(one, two)) > 0
    found = compare(one, two)
    assert found.difference.value == pytest.approx(0.0001)
    assert (found.difference.low, found.unpaired_seeds) == (None, None)
    assert summarise([0.3, 0.3, 0.1 + 0.2, 0.3, 0.3, 0.3]).median.low is None


@pytest.mark.parametrize("shape", ["normal", "one in five collapses"])
def test_95_percent_intervals_of_ten_seeds_cover_93_to_97_percent(shape: str) -> None:
    rng = np.random.default_rng(20)

    def draw(cells: int, seeds: int) -> np.ndarray:
        values = rng.normal(size=(cells, seeds))
        return values - 3 * (rng.random((cells, seeds)) < 0.2) * (shape != "normal")

    large = draw(1, 1_000_000)
    held: dict[str, list[np.ndarray]] = {"median": [], "iqm": [], "difference": []}
    for _ in range(4):
        values, shared = draw(250, 10), draw(250, 10)
        for name, statistic in (("median", np.median), ("iqm", interquartile_mean)):
            truth = statistic(large, axis=-1)[0]
            low, high = bootstrap_interval(values, statistic)
            held[name].append((low <= truth) & (truth <= high))
        low, high = mean_interval((shared + draw(250, 10)) - (shared + draw(250, 10)))
        held["difference"].append((low <= 0) & (high >= 0))
    shares = {name: float(np.mean(ones)) for name, ones in held.items()}
    assert all(0.93 <= share <= 0.97 for share in shares.values()), shares
