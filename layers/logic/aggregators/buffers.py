"""The mean of the clients' non-trainable state, the same in every aggregator as in FedAvg."""

from __future__ import annotations

import numpy as np

from layers.logic.aggregators.sums import add_scaled
from layers.logic.core.aggregator import Contribution
from layers.logic.core.state import ServerState


class BufferMean:
    """A fold: sum_k (n_k / n) buffers_k; running statistics are averaged, not corrected."""

    def __init__(self, state: ServerState) -> None:
        self._sum = np.zeros(state.buffers.size)
        self._samples = 0.0

    def add(self, contribution: Contribution) -> None:
        """Add one contribution."""
        add_scaled(self._sum, contribution.buffers, float(contribution.samples))
        self._samples += contribution.samples

    def mean(self) -> np.ndarray:
        """Return the mean, float32 (b,); there must be one contribution or more."""
        return (self._sum / self._samples).astype(np.float32)
