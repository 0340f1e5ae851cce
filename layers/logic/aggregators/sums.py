"""Sums of long vectors, block by block, so that no fold needs a second copy of a vector."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from layers.logic.core.state import ServerState, frozen
from layers.logic.storage import Vector

BLOCK = 1 << 16  # values at a time, so that the products stay in the processor's cache


def add_scaled(total: np.ndarray, vector: Vector, weight: float) -> None:
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


def stepped(state: ServerState, delta: np.ndarray, buffers: np.ndarray) -> ServerState:
    """Return the state after the global model has moved by the float64 `delta`, which is used up.

    The state tells the change, too: an encoder must not find it from the weights, whose difference
    is rounded, so that equal values of the sum would not stay equal.
    """
    change = _rounded(delta)
    with np.errstate(over="ignore"):  # as above
        weights = state.weights + change
    return replace(state, weights=weights, buffers=buffers, change=frozen(change))


def _rounded(delta: np.ndarray) -> np.ndarray:
    """Return the float64 `delta` in float32, in the first half of its own memory."""
    if delta.dtype == np.float32:  # a rule that takes one of the updates as it is
        return delta
    rounded = delta.view(np.float32)[: delta.size]
    with np.errstate(over="ignore"):  # as above
        for start in range(0, delta.size, BLOCK):
            part = slice(start, start + BLOCK)
            rounded[part] = delta[part].astype(np.float32)
    return rounded
