"""A run ends as soon as a value has reached its limit, not only when it is beyond."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fedmx.server.evaluation import Evaluation
from fedmx.server.round import Round
from fedmx.server.stop import Stop, after_last
from layers.logic.core.report import RoundReport, Traffic


def ended(**measured: Any) -> Round:
    report = RoundReport(3, 0.1, 0, (), Traffic())
    of_clients = [
        {"model": "global", "accuracy": one}
        for one in [measured.pop("client_accuracy_mean", None)]
        if one
    ]
    values = {key: measured.pop(key) for key in ("accuracy", "loss") if key in measured}
    given = {"seconds": 1.0, "elapsed_s": 1.0, **measured}
    return Round(report, Evaluation(values, tuple(of_clients)), **given)


@pytest.mark.parametrize(
    ("limit", "value", "name", "step"),
    [
        ("accuracy", 0.75, "accuracy", -1),
        ("client_accuracy", 0.75, "client_accuracy_mean", -1),
        ("loss", 0.25, "loss", 1),
        ("seconds", 60.0, "elapsed_s", -1),
        ("clock_s", 60.0, "clock_elapsed_s", -1),
    ],
)
def test_a_limit_just_reached_ends_the_run(limit: str, value: float, name: str, step: int) -> None:
    stop = Stop(**{limit: value})
    assert stop.reason(ended(**{name: value})) is not None
    assert stop.reason(ended(**{name: math.nextafter(value, value + step)})) is None


@pytest.mark.parametrize(
    ("stop", "measured", "said"),
    [
        (Stop(accuracy=0.75), {"accuracy": 0.81236}, "accuracy 0.8124 reached 0.75"),
        (
            Stop(client_accuracy=0.7),
            {"client_accuracy_mean": 0.70004},
            "mean accuracy over clients 0.7000 reached 0.7",
        ),
        (Stop(loss=0.25), {"loss": 0.12345}, "loss 0.1235 reached 0.25"),
        (Stop(seconds=60.0), {"elapsed_s": 61.6}, "62 s passed the limit of 60 s"),
        (Stop(clock_s=1.5), {"clock_elapsed_s": 2.5001}, "3 s passed the clock's limit of 1.5 s"),
        (
            Stop(patience=2),
            {"accuracy": 0.75},
            "accuracy is no better than 0.7500 of round 1 since 2 rounds",
        ),
        (Stop(patience=3), {"accuracy": 0.75}, None),
        (Stop(patience=2), {"accuracy": 0.76}, None),
        (Stop(patience=1), {}, None),
        (Stop(accuracy=0.5, loss=0.5, seconds=9, clock_s=9, client_accuracy=0.5), {}, None),
        (Stop(), {"accuracy": 1.0, "loss": 0.0, "elapsed_s": 1e9, "clock_elapsed_s": 1e9}, None),
    ],
    ids=str,
)
def test_a_run_says_which_value_reached_which_limit(
    stop: Stop, measured: dict[str, Any], said: str | None
) -> None:
    before = [{"round": 1, "accuracy": 0.75}, {"round": 2, "accuracy": None}]
    assert stop.reason(ended(**measured), before) == said


def test_without_a_condition_a_run_ends_after_its_last_round() -> None:
    assert [after_last(number) for number in (1, 2)] == [
        "the one round was run",
        "all 2 rounds were run",
    ]
