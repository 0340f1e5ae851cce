"""A sketch of a long vector that keeps distances (Charikar, Chen, Farach-Colton 2002)."""

from __future__ import annotations

import numpy as np

from layers.logic.errors import LogicError
from layers.logic.seeds import generator


def sketch(vector: np.ndarray, values: int) -> np.ndarray:
    """Return float32 (values,): sums of the vector's values, each with a sign, in drawn places.

    The same places and signs for everybody: distances between sketches are those between the
    vectors but for a relative error of about sqrt(2 / values).

    Args:
        vector: float32 (d,).
        values: how long the sketch is, at most d.

    Raises:
        LogicError: for a sketch that is longer than the vector.
    """
    if values > vector.size:
        raise LogicError(f"a sketch of {values} values of a vector of {vector.size}; lower it")
    rng = generator(0, "sketch", vector.size, values)
    places = rng.integers(values, size=vector.size)
    signs = rng.integers(2, size=vector.size) * 2 - 1
    return np.bincount(places, signs * vector, minlength=values).astype(np.float32)
