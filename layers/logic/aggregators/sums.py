"""Sums of long vectors, block by block, so that no fold needs a second copy of a vector."""

from __future__ import annotations

import numpy as np

BLOCK = 1 << 16  # values at a time, so that the products stay in the processor's cache


def add_scaled(total: np.ndarray, vector: np.ndarray, weight: float) -> None:
    """Add ``weight * vector`` to the float64 `total` in place, block by block."""
    for start in range(0, total.size, BLOCK):
        part = slice(start, start + BLOCK)
        total[part] += np.multiply(vector[part], weight, dtype=np.float64)


def moved(weights: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """Return float32 (d,): `weights` plus the float64 `delta`, which is first rounded to float32.

    It works block by block, so that the end of a fold needs memory for the sum and the result only.
    """
    result = np.empty_like(weights)
    with np.errstate(over="ignore"):  # the check of the new model finds it
        for start in range(0, weights.size, BLOCK):
            part = slice(start, start + BLOCK)
            np.add(weights[part], delta[part].astype(np.float32), out=result[part])
    return result
