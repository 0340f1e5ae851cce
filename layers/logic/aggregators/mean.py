"""The mean of the clients' models (FedAvg: McMahan et al. 2017, algorithm 1, last line)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from layers.logic.aggregator import Aggregator, Contribution
from layers.logic.aggregators.buffers import BufferMean
from layers.logic.aggregators.sums import add_scaled, moved
from layers.logic.state import ServerState


@dataclass
class _Sum:
    delta: np.ndarray
    buffers: BufferMean
    weight: float = 0.0


@dataclass(frozen=True)
class Mean(Aggregator):
    """w + sum_k (n_k / n) delta_k over the clients that returned, n = sum_k n_k.

    Sums are kept in float64, so that equal updates give exactly that update, and memory is that of
    one update and the sum, however many there are.

    Attributes:
        weights: ``"samples"`` weighs by n_k, ``"uniform"`` alike; buffers always go by n_k.
    """

    weights: Literal["samples", "uniform"] = "samples"

    def init(self, state: ServerState) -> _Sum:
        """Start with nothing."""
        return _Sum(np.zeros(state.weights.size), BufferMean(state))

    def add(self, total: _Sum, contribution: Contribution) -> _Sum:
        """Add one weighted contribution."""
        weight = float(contribution.samples) if self.weights == "samples" else 1.0
        add_scaled(total.delta, contribution.delta, weight)
        total.buffers.add(contribution)
        total.weight += weight
        return total

    def finish(self, total: _Sum, state: ServerState) -> ServerState:
        """Return the state with the mean applied."""
        total.delta /= total.weight
        return replace(
            state,
            weights=moved(state.weights, total.delta),
            buffers=total.buffers.mean(),
        )
