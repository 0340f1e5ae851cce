"""The Euclidean norm of a flat vector, with the same bits for any number of threads."""

from __future__ import annotations

import math

import numpy as np

from layers.arithmetic import total
from layers.logic.storage.stored_vector import Vector

BLOCK = 1 << 14  # values at a time, so that their squares stay in the processor's cache


def norm(vector: Vector) -> float:
    """Return the Euclidean norm of a float32 (d,) vector, summed in float64.

    `numpy.linalg.norm` leaves the sum to BLAS, which splits it among its threads; and in float32
    the squares of large values overflow.
    """
    squares = 0.0
    for start in range(0, vector.size, BLOCK):
        part = vector[start : start + BLOCK].astype(np.float64)
        np.multiply(part, part, out=part)
        squares += total(part)
    return math.sqrt(squares)
