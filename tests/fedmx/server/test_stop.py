"""A run ends as soon as a value has reached its limit, not only when it is beyond."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fedmx.server.round import Round
from fedmx.server.stop import Stop
from layers.logic.core.report import RoundReport, Traffic


def ended(**measured: Any) -> Round:
    report = RoundReport(3, 0.1, 0, (), Traffic())
    given = {"accuracy": None, "loss": None, "seconds": 1.0, "elapsed_s": 1.0, **measured}
    return Round(report, **given)


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
def test_a_limit_that_is_just_reached_ends_the_run(
    limit: str, value: float, name: str, step: int
) -> None:
    stop = Stop(**{limit: value})
    assert stop.reason(ended(**{name: value})) is not None
    short = math.nextafter(value, value + step)
    assert stop.reason(ended(**{name: short})) is None
