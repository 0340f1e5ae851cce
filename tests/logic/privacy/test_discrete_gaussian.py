"""Noise on whole numbers has the probabilities of the paper."""

from __future__ import annotations

import math

import numpy as np
import pytest

from layers.logic.errors import LogicError
from layers.logic.numeric.discrete_gaussian import discrete_gaussian
from layers.logic.privacy.central import GRID
from layers.logic.secrets import Secret
from tests.logic.vector_files import vectors

DRAWS = 400_000


def draws(scale: float, size: int) -> np.ndarray:
    return discrete_gaussian(Secret.of_key(bytes(32)).draws("test"), scale, size)


@pytest.mark.parametrize("place", range(5))
def test_draws_have_the_probabilities_and_the_variance_that_were_worked_out(place: int) -> None:
    row = vectors("dp")["discrete_gaussian"][place]
    found = draws(math.sqrt(row["s2"]), DRAWS)
    for k, expected in zip(row["k"], row["pmf"], strict=True):
        # Four standard deviations of a share of as many draws.
        margin = 4 * math.sqrt(expected / DRAWS) + 1e-9
        assert np.mean(found == k) == pytest.approx(expected, abs=margin), k
        assert np.mean(found == -k) == pytest.approx(expected, abs=margin), -k
    variance = row["variance"]
    assert np.var(found) == pytest.approx(variance, rel=0.02 + 5e-5 / variance)


def test_the_noise_of_a_round_is_gaussian_and_reaches_far() -> None:
    found = draws(float(GRID), DRAWS) / GRID
    assert found.std() == pytest.approx(1, abs=0.005)
    assert found.mean() == pytest.approx(0, abs=0.007)
    for beyond, share in ((1, 0.31731), (2, 0.0455), (3, 0.0027)):
        assert np.mean(np.abs(found) > beyond) == pytest.approx(share, abs=0.003)
    assert np.abs(found).max() > 4


def test_sizes_and_limits() -> None:
    assert draws(3.0, 0).size == 0
    assert draws(3.0, 1).dtype == np.int64
    assert (draws(3.0, 100)[:10] == draws(3.0, 100)[:10]).all()
    for scale in (0.0, -1.0, math.nan, 2.0**41):
        with pytest.raises(LogicError, match="scale"):
            draws(scale, 1)
