"""Floats as integer multiples of one unit, so that their sums are exact in any order."""

from __future__ import annotations

import numpy as np

BITS = 61  # of the sum; int64 has room for the sum and one item more


def scale_of(total: float) -> int:
    """Return the exponent of the unit in which `total` is below 2**BITS."""
    return BITS - int(np.frexp(total)[1])


def rounded_up(numbers: np.ndarray, scale: int) -> np.ndarray:
    """Return the numbers as multiples of 2**-scale, int64, rounded up.

    A number above a 256th of the total is exact. Any other becomes larger by less than 2**-61 of
    the total.
    """
    multiples: np.ndarray = np.ceil(np.ldexp(numbers, scale)).astype(np.int64)
    return multiples


def rounded_down(number: float, scale: int) -> int:
    """Return the number as a multiple of 2**-scale, rounded down; 2**62 at the most."""
    with np.errstate(over="ignore"):  # the total may be tiny beside this number
        return int(min(np.floor(np.ldexp(number, scale)), 2.0**62))
