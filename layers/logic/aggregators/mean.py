"""The mean of the clients' models (FedAvg: McMahan et al. 2017, algorithm 1, last line)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from layers.logic.aggregator import Aggregator, Contribution
from layers.logic.state import ServerState

BLOCK = 1 << 16  # values at a time, so that the products stay in the processor's cache


@dataclass
class _Sum:
    delta: np.ndarray
    buffers: np.ndarray
    weight: float


@dataclass(frozen=True)
class Mean(Aggregator):
    """w + sum_k (n_k / n) delta_k over the clients that returned, n = sum_k n_k.

    Sums are kept in float64, so that equal updates give exactly that update, and memory is that of
    one update and the sum, however many there are.

    Attributes:
        weights: ``"samples"`` weighs by n_k, ``"uniform"`` alike.
    """

    weights: Literal["samples", "uniform"] = "samples"

    def init(self, state: ServerState) -> _Sum:
        """Start with nothing."""
        return _Sum(np.zeros(state.weights.size), np.zeros(state.buffers.size), 0.0)

    def add(self, total: _Sum, contribution: Contribution) -> _Sum:
        """Add one weighted contribution."""
        weight = float(contribution.samples) if self.weights == "samples" else 1.0
        add_scaled(total.delta, contribution.delta, weight)
        add_scaled(total.buffers, contribution.buffers, weight)
        total.weight += weight
        return total

    def finish(self, total: _Sum, state: ServerState) -> ServerState:
        """Return the state with the mean applied."""
        total.delta /= total.weight
        total.buffers /= total.weight
        return replace(
            state,
            weights=moved(state.weights, total.delta),
            buffers=total.buffers.astype(np.float32),
        )


def add_scaled(total: np.ndarray, vector: np.ndarray, weight: float) -> None:
    """Add ``weight * vector`` to the float64 `total` in place, block by block."""
    for start in range(0, total.size, BLOCK):
        part = slice(start, start + BLOCK)
        total[part] += np.multiply(vector[part], weight, dtype=np.float64)


def moved(weights: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """Return float32 (d,): `weights` plus the float64 `delta`, which is first rounded to float32.

    Block by block: at the end of a fold there is room for the sum and the result only.
    """
    result = np.empty_like(weights)
    with np.errstate(over="ignore"):  # seen by whoever checks the model
        for start in range(0, weights.size, BLOCK):
            part = slice(start, start + BLOCK)
            np.add(weights[part], delta[part].astype(np.float32), out=result[part])
    return result
