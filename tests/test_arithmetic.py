"""Arithmetic: right, and the same bits wherever it is computed."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest

from layers.arithmetic import cos_sin, exp, log, power, sum_in_order, total
from layers.logic import RoundReport, Traffic
from layers.logic.core.report import ClientReport
from layers.logic.numeric.vectors import norm

# Made by exact divisions, so the same on every machine.
POINTS = np.arange(1, 20001) / 1024


def digest(values: np.ndarray) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]


def worst_error(found: np.ndarray, exact: np.ndarray) -> float:
    """The largest difference from values in extended precision, in units of the last place."""
    return float(np.max(np.abs(found - exact) / np.spacing(np.abs(exact.astype(np.float64)))))


def test_the_error_is_below_one_unit_of_the_last_place() -> None:
    for x in (POINTS, -POINTS, POINTS * 1e-6, -30 * POINTS):
        assert worst_error(exp(x), np.exp(x.astype(np.longdouble))) < 1
    for x in (POINTS, 1 / POINTS, POINTS * 2.0**-140, POINTS * 2.0**900, 1 + POINTS * 1e-7):
        assert worst_error(log(x), np.log(x.astype(np.longdouble))) < 1


def test_the_bits_are_these_on_every_machine() -> None:
    assert digest(exp(-POINTS)) == "2127baba9729b89a"
    assert digest(log(POINTS)) == "96ab896801aac284"


def test_the_ends_of_the_range() -> None:
    assert exp(np.array([0.0, -np.inf, -1e9, 1e9, np.inf])).tolist() == [1, 0, 0, np.inf, np.inf]
    assert np.isnan(exp(np.array([np.nan, 0.0]))).tolist() == [True, False]
    assert log(np.array([1.0])).tolist() == [0.0]
    least = np.finfo(np.float32).tiny
    assert log(np.array([least]))[0] == pytest.approx(-126 * 0.6931471805599453, rel=1e-15)


@pytest.mark.parametrize("shape", [(0,), (3,), (2, 3)])
def test_an_exponential_keeps_its_shape(shape: tuple[int, ...]) -> None:
    values = np.linspace(-2, 2, math.prod(shape)).reshape(shape)
    found = exp(values)
    assert (found.shape, found.dtype) == (shape, np.float64)
    assert found == pytest.approx(np.exp(values), rel=4e-16)


@pytest.mark.parametrize("exponent", [0.5, 0.7, 1.0, 2, 2.0, 3])
def test_a_power_is_that_of_the_c_library(exponent: float) -> None:
    values = POINTS[:500]
    assert power(values, exponent) == pytest.approx(values**exponent, rel=4e-16)
    if exponent == 2:
        assert power(values, exponent).tolist() == (values * values).tolist()


@pytest.mark.parametrize("number", [0, 1, 8191, 8192, 8193, 20000])
def test_a_long_sum_is_made_of_the_same_parts_everywhere(number: int) -> None:
    values = 1 / POINTS[:number]
    parts = 0.0
    for start in range(0, number, 8192):
        parts += float(values[start : start + 8192].sum())
    assert total(values) == parts
    assert total(values) == pytest.approx(math.fsum(values), rel=1e-13)


def test_sums_and_norms_have_these_bits_on_every_version() -> None:
    assert total(1 / POINTS).hex() == "0x1.4f62202468759p+13"
    roots = np.sqrt(np.arange(1, 16384) / 7).astype(np.float32)
    # numpy 2.4 and later have another last bit for the sum of these squares in one piece.
    assert norm(roots).hex() == "0x1.11aacaf9f9ab1p+12"


def test_a_sum_in_order_is_rounded_after_each_number_on_every_python() -> None:
    # Python's own sum is 1.0 from 3.12 on, since it keeps what the first addition rounds away.
    assert sum_in_order([1e16, 1.0, -1e16]) == 0.0
    assert sum_in_order([]) == 0.0
    clients = tuple(
        ClientReport(place, "accepted", samples=1, metrics={"loss": loss})
        for place, loss in enumerate((1e16, 1.0, -1e16))
    )
    assert RoundReport(1, 0.1, 3, clients, Traffic()).loss == 0.0


def test_cosine_and_sine_of_degrees_are_right_and_have_these_bits() -> None:
    degrees = np.concatenate([-POINTS, POINTS]) * 30
    exact = np.deg2rad(degrees.astype(np.longdouble))
    cos, sin = cos_sin(degrees)
    assert np.abs(cos - np.cos(exact)).max() < 3e-16
    assert np.abs(sin - np.sin(exact)).max() < 3e-16
    cos, sin = cos_sin(np.arange(0, 450, 90))
    assert cos.tolist() == [1, 0, -1, 0, 1]
    assert sin.tolist() == [0, 1, 0, -1, 0]
    assert digest(np.array(cos_sin(degrees))) == "35aa65ab46d120b9"
