"""The mean of the clients' models (FedAvg: McMahan et al. 2017, algorithm 1, last line)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from layers.logic.aggregators.buffers import BufferMean
from layers.logic.aggregators.sums import add_scaled, stepped
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError


@dataclass
class _Sum:
    delta: np.ndarray
    buffers: BufferMean
    weight: float = 0.0


@dataclass(frozen=True)
class Mean(Aggregator):
    """w + sum_k (n_k / n) delta_k over the clients that returned, n = sum_k n_k.

    Sums are float64, so that the mean of equal updates is exactly that update. Memory is that of
    one update and the sum, however many updates there are.

    Attributes:
        weights: ``"samples"`` weighs clients by n_k, ``"uniform"`` all alike, ``"plan"`` as the
            selector says (lanes that are missing do not count). Buffers are always weighed by n_k.
    """

    weights: Literal["samples", "uniform", "plan"] = "samples"

    by_slices = True

    @property
    def by_samples(self) -> bool:
        """Whether `weights` is ``"samples"``."""
        return self.weights == "samples"

    def init(self, state: ServerState) -> _Sum:
        """Start with nothing."""
        return _Sum(np.zeros(state.weights.size), BufferMean(state))

    def add(self, total: _Sum, contribution: Contribution) -> _Sum:
        """Add one weighted contribution."""
        weight = self._weight(contribution)
        add_scaled(total.delta, contribution.delta, weight)
        total.buffers.add(contribution)
        total.weight += weight
        return total

    def _weight(self, contribution: Contribution) -> float:
        if self.weights == "samples":
            return float(contribution.samples)
        if self.weights == "uniform":
            return 1.0
        if contribution.weight is None:
            raise LogicError(
                "mean with weights: plan needs a selector that gives weights, such as clustered; "
                "set weights to samples or uniform"
            )
        return contribution.weight

    def finish(self, total: _Sum, state: ServerState) -> ServerState:
        """Return the state with the mean applied."""
        total.delta /= total.weight
        return stepped(state, total.delta, total.buffers.mean())
