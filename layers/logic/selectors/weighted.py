"""Draws without replacement in which each client has a weight."""

from __future__ import annotations

import numpy as np


def draw_weighted(rng: np.random.Generator, weights: np.ndarray, number: int) -> np.ndarray:
    """Return `number` different places, in the order in which they were drawn.

    Each draw takes one of the places that are left, with a probability in proportion to its weight
    (Efraimidis and Spirakis 2006). A place of weight 0 is drawn when no other is left.

    Args:
        rng: the generator; it draws one number for each place.
        weights: float64 (n,), each 0 or more.
        number: of draws, at most n.
    """
    waits = rng.exponential(size=weights.size)
    with np.errstate(divide="ignore"):
        waits = np.where(weights > 0, waits / weights, np.inf)
    return np.argsort(waits, kind="stable")[:number]
