"""Learning-rate schedules follow their formulas."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.compute.errors import ComputeError
from layers.compute.schedule import SCHEDULES, Constant, Cosine, Inverse, Step

ROUNDS = st.integers(1, 1000)


@given(st.sampled_from(sorted(SCHEDULES)), st.floats(1e-4, 10), ROUNDS)
def test_every_schedule_starts_at_the_base_rate(name: str, base: float, rounds: int) -> None:
    assert SCHEDULES[name]().learning_rate(base, 0, rounds) == pytest.approx(base)


@given(st.sampled_from(sorted(SCHEDULES)), ROUNDS)
def test_no_schedule_ever_rises_or_goes_below_zero(name: str, rounds: int) -> None:
    rates = [SCHEDULES[name]().learning_rate(0.1, t, rounds) for t in range(rounds)]
    assert all(a >= b >= 0 for a, b in pairwise(rates))


def test_schedules_follow_their_formulas() -> None:
    assert Constant().learning_rate(0.3, 7, 10) == 0.3
    assert [Step(2, 0.5).learning_rate(1, t, 9) for t in range(5)] == [1, 1, 0.5, 0.5, 0.25]
    assert [Inverse().learning_rate(1, t, 9) for t in range(4)] == [1, 1 / 2, 1 / 3, 1 / 4]
    assert [Inverse(start=1).learning_rate(1, t, 9) for t in range(3)] == [1 / 2, 1 / 3, 1 / 4]
    assert Cosine().learning_rate(1, 5, 10) == pytest.approx(0.5)
    assert Cosine(0.2).learning_rate(1, 10, 10) == pytest.approx(0.2)
    assert Cosine().learning_rate(1, 50, 10) == pytest.approx(0)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Step(0), "every"),
        (lambda: Step(1, -1), "gamma"),
        (lambda: Step(1, float("nan")), "gamma"),
        (lambda: Cosine(2), "floor"),
        (lambda: Inverse(-1), "start"),
    ],
)
def test_a_schedule_refuses_settings_without_sense(make, word) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ComputeError, match=word):
        make()
