"""What a table of a paper says about a run is computed from the run's record."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest

from tests.experiments.made_records import record


@pytest.mark.parametrize(
    ("settings", "value"),
    [
        ({"target": 0.6}, 2),
        ({"target": 0.6, "factor": 0.05, "unit": "epochs"}, 0.1),
        ({"target": 0.6, "what": "last_below"}, 3),
        ({"target": 0.6, "what": "clock", "unit": "s"}, 20),
        ({"target": 0.9, "what": "exchanges"}, 3),
        ({"what": "best", "unit": "%"}, 90),
        ({"what": "last", "unit": "%"}, 80),
        ({"what": "best", "unit": "%", "rounds": 3}, 60),
        ({"what": "mean", "of": "updates", "unit": "clients"}, 2.5),
        ({"what": "rise"}, 0.5),
        ({"what": "fall", "unit": "%"}, 10),
        ({"what": "best_at"}, 4),
        ({"what": "best", "unit": "%", "rounds": -1}, 80),
        ({"what": "least", "unit": "%", "rounds": -4}, 50),
        ({"what": "median", "unit": "%"}, 60),
        ({"what": "rounds", "factor": 0.05, "unit": "epochs"}, 0.25),
        ({"target": 0.95}, None),
        ({"target": 0.95, "what": "last_below"}, None),
        ({"target": 0.95, "what": "clock"}, None),
        ({"what": "best", "of": "loss"}, None),
    ],
)
def test_a_figure_of_a_run(settings: dict, value: float | None) -> None:
    from measures import Measure

    one = record(
        accuracy=[0.1, 0.6, 0.5, 0.9, 0.8],
        updates=[1, 2, 3, 4, 2.5],
        clock_s=[10, 20, 30, 40, 50],
        exchanges=[1, 1, 2, 3, 3],
    )
    assert Measure(**settings).of_record(one) == (None if value is None else pytest.approx(value))


def test_rounds_that_were_not_evaluated_have_no_value() -> None:
    from measures import Measure

    assert Measure(target=0.5).of_record(record(accuracy=[None, 0.4, None, 0.6])) == 4


@pytest.mark.parametrize(
    ("ours", "paper", "unit", "word"),
    [
        ([90.0], 100, "rounds", "within"),
        ([89.0], 100, "rounds", "outside"),
        ([60.0, 70.0, 101.0], 100, "rounds", "within"),
        ([98.1], 97.2, "%", "within"),
        ([98.3], 97.2, "%", "outside"),
        ([98.1], 97.1, "%", "within"),  # one point, which is more in binary numbers
        ([0.0253], 0.03, "MiB", "within"),  # the same in the paper's digits
        ([0.0247], 0.03, "MiB", "outside"),
    ],
)
def test_a_figure_is_within_the_range_of_the_seeds_or_close(
    ours: list[float], paper: float, unit: str, word: str
) -> None:
    from measures import Measure, verdict

    assert verdict(Measure(unit=unit), ours, paper) == word


def test_a_run_that_has_not_ended_is_judged_only_if_its_end_cannot_matter() -> None:
    from measures import Measure

    best = Measure(what="best", unit="%")
    assert best.is_settled([record(accuracy=[0.9])], 70)
    assert not best.is_settled([record(accuracy=[0.9])], 95)
    assert not best.is_settled([record(accuracy=[0.9])], 90.5)
    assert not Measure(what="mean").is_settled([record(accuracy=[0.9])], 0.1)
    assert not Measure(what="mean", rounds=-1).is_settled([record(accuracy=[0.9] * 3)], 0.1)
    assert Measure(target=0.5).is_settled([record(accuracy=[0.9])], 7)


def test_a_seed_that_is_under_way_keeps_a_row_open() -> None:
    from measures import Measure

    first, below = Measure(target=0.5), Measure(what="last_below", target=0.5)
    reached, under_way = record(accuracy=[0.4, 0.9]), record(accuracy=[0.4])
    assert first.is_settled([reached, reached], 7)
    assert not first.is_settled([reached, under_way], 7)
    assert not below.is_settled([reached], 7)  # it may fall below again
    assert below.is_settled([replace(reached, reason="done")], 7)
    early = Measure(what="mean", rounds=2)
    assert early.is_settled([reached], 7)  # a later round does not count
    assert not early.is_settled([reached, under_way], 7)


def test_a_seed_that_ended_without_the_target_counts_as_never() -> None:
    from measures import Measure, verdict

    first = Measure(target=0.5)
    ended = replace(record(accuracy=[0.4]), reason="the one round was run")
    runs = [ended, ended, record(accuracy=[0.9] * 3)]
    outcomes = [first.outcome(one, 1) for one in runs]
    assert outcomes == [math.inf, math.inf, 1]
    assert first.text(statistics.median(outcomes)) == "not reached"
    assert verdict(first, outcomes, 0.5) == "outside"
    assert first.outcome(record(accuracy=[0.4]), 1) is None


def test_a_run_far_past_the_papers_round_has_missed_its_target() -> None:
    from measures import Measure

    rounds = Measure(target=0.99)
    assert rounds.outcome(record(accuracy=[0.9] * 112), 100) == math.inf
    assert rounds.outcome(record(accuracy=[0.9] * 108), 100) is None
    assert rounds.outcome(record(accuracy=[0.9]), 100) is None
    assert Measure(what="best").outcome(record(accuracy=[0.9] * 112), 1) == 0.9
