"""Learning-rate schedules follow their formulas."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.compute.errors import unknown
from layers.compute.schedule import SCHEDULES, Constant, Cosine, Inverse, Step

ROUNDS = st.integers(1, 1000)


@given(st.sampled_from(sorted(SCHEDULES)), st.floats(1e-4, 10), ROUNDS)
def test_every_schedule_starts_at_the_base_rate(name: str, base: float, rounds: int) -> None:
    assert SCHEDULES[name]().learning_rate(base, 0, rounds) == pytest.approx(base)


@given(st.sampled_from(sorted(SCHEDULES)), ROUNDS)
def test_no_schedule_increases_or_goes_below_zero(name: str, rounds: int) -> None:
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


def test_an_unknown_name_lists_the_nearest_and_the_known_names() -> None:
    names = ["a", "b", "c"]
    assert unknown("model", "zz", names) == "unknown model 'zz'; there are: a, b, c"
    assert unknown("model", "zz", names, shown=3).endswith("a, b, c")
    assert unknown("model", "zz", names, shown=2).endswith("a, b and 1 more")
    many = [f"{number:02}" for number in range(41)]
    assert unknown("model", "zz", many).endswith("39 and 1 more")
    assert "did you mean 'lenet5' or 'lenet'" in unknown("model", "lenet5x", ["lenet", "lenet5"])
