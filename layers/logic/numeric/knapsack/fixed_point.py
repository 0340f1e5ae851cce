"""Floats as integers of one unit, so that sums of them are exact in any order."""

from __future__ import annotations

import numpy as np

BITS = 61  # of the sum; as int64 leaves room for the sum, and one item more


def scale_of(total: float) -> int:
    """Return the exponent of the unit in which `total` is below 2**BITS."""
    return BITS - int(np.frexp(total)[1])


def rounded_up(numbers: np.ndarray, scale: int) -> np.ndarray:
    """Return int64 multiples of 2**-scale.

    Exact for numbers above the total's 256th; others are larger by less than 2**-61 of the total.
    """
    multiples: np.ndarray = np.ceil(np.ldexp(numbers, scale)).astype(np.int64)
    return multiples


def rounded_down(number: float, scale: int) -> int:
    """Return the integer multiple of 2**-scale at or just below `number`; 2**62 at the most."""
    with np.errstate(over="ignore"):  # where all items together are next to nothing
        return int(min(np.floor(np.ldexp(number, scale)), 2.0**62))
