"""How far two arrays are apart is told in values that differ and in units in the last place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedmx.history.values import OtherValues, compared, first_other

FINITE = arrays.arrays(
    np.float32,
    st.integers(2, 30),
    elements=st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False),
)


@given(FINITE, st.data())
def test_values_that_were_moved_are_counted_with_the_largest_move(
    vector: np.ndarray, data: st.DataObject
) -> None:
    moves = data.draw(
        st.dictionaries(st.integers(0, vector.size - 1), st.integers(1, 900), min_size=1)
    )
    other = vector.copy()
    for place, units in moves.items():
        for _ in range(units):
            other[place] = np.nextafter(other[place], np.float32(np.inf))
    found = compared("update", vector, other)
    assert (found.differing, found.values) == (len(moves), vector.size)
    units = max(moves.values())
    unit = "unit" if units == 1 else "units"
    assert str(found).endswith(f", the largest by {units} {unit} in the last place")


@given(FINITE)
def test_the_same_bits_are_no_difference(vector: np.ndarray) -> None:
    assert compared("update", vector, vector.copy()) is None


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        ([1.0, 0.0], [1.0, -0.0], "1 of 2 values differs, in the sign of zero"),
        ([1.0, 2.0], [1.0, np.nan], "1 of 2 values differs, some of them not finite"),
        ([1.0, 2.0], [1.5, 2.0], "1 of 2 values differs, the largest by 0.5"),
    ],
)
def test_what_has_no_place_among_the_numbers_is_told_in_words(
    one: list[float], other: list[float], text: str
) -> None:
    assert str(compared("update", np.array(one, np.float32), np.array(other, np.float32))) == text


def test_codes_shapes_and_single_numbers_are_told_as_they_are() -> None:
    codes = np.array([1, 2, 3], np.int8)
    said = str(compared("0:EightBit/codes", codes, np.array([1, 5, 3], np.int8)))
    assert said == "EightBit/codes: 1 of 3 values differs, the largest by 3"
    said = str(compared("0:EightBit/codes", codes, codes[:2]))
    assert said == "EightBit/codes: int8 (3,) against int8 (2,)"
    assert str(compared("metric loss", np.asarray(0.5), np.asarray(0.25))) == (
        "metric loss 0.5 against 0.25"
    )


def test_the_first_array_that_differs_is_told() -> None:
    one = {"update": np.ones(3, np.float32), "steps": np.asarray(4)}
    assert first_other(one, dict(one)) is None
    found = first_other(one, {"update": one["update"], "steps": np.asarray(5)})
    assert str(found) == "steps 4 against 5"
    found = first_other(one, {"update": one["update"]})
    assert str(found) == "steps: only one of the two has it"
    assert found == OtherValues("steps", 0, 0, "only one of the two has it")
