"""Draws without replacement in which some clients are likelier than others."""

from __future__ import annotations

import numpy as np


def draw_weighted(rng: np.random.Generator, weights: np.ndarray, number: int) -> np.ndarray:
    """Return the places of `number` different draws, in the order in which they were drawn.

    Each draw takes what is left in proportion to the weights (Efraimidis and Spirakis 2006); what
    weighs nothing is drawn when nothing else is left.

    Args:
        rng: gives a number for each place.
        weights: float64 (n,), 0 or more, not all need to be above.
        number: of draws; n or less.
    """
    waits = rng.exponential(size=weights.size)
    with np.errstate(divide="ignore"):
        waits = np.where(weights > 0, waits / weights, np.inf)
    return np.argsort(waits, kind="stable")[:number]
