"""A sketch of a long vector that keeps distances (Charikar, Chen, Farach-Colton 2002)."""

from __future__ import annotations

import numpy as np

from layers.logic.errors import LogicError
from layers.logic.seeds import generator


def sketch(vector: np.ndarray, values: int, seed: int) -> np.ndarray:
    """Return float32 (values,): each value is added, with a random sign, at a random place.

    Places and signs are the same for all vectors of a length, so that distances between sketches
    are those between the vectors, with a relative error of about sqrt(2 / values).

    Args:
        vector: float32 (d,).
        values: how long the sketch is, at most d.
        seed: of places and signs; only sketches of one seed can be compared.

    Raises:
        LogicError: the sketch is longer than the vector.
    """
    if values > vector.size:
        raise LogicError(
            f"a sketch of {values} values of a vector of {vector.size}; ask for fewer values"
        )
    rng = generator(seed, "sketch", vector.size, values)
    places = rng.integers(values, size=vector.size)
    signs = rng.integers(2, size=vector.size) * 2 - 1
    return np.bincount(places, signs * vector, minlength=values).astype(np.float32)
