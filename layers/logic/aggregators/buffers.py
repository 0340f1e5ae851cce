"""The clients' non-trainable state as one: its mean as in FedAvg, or its median in robust rules."""

from __future__ import annotations

import numpy as np

from layers.logic.aggregators.median import coordinate_median
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


class BufferMedian:
    """A fold: the median of each coordinate of the buffers; numbers of samples do not count.

    While fewer than half of the clients are arbitrary, every coordinate lies between those of two
    honest clients. The buffers of all clients are held in memory.
    """

    def __init__(self) -> None:
        self._buffers: list[np.ndarray] = []

    def add(self, contribution: Contribution) -> None:
        """Add one contribution."""
        # A view of the message, however small, would keep all of its memory.
        self._buffers.append(contribution.buffers.copy())

    def median(self) -> np.ndarray:
        """Return the median, float32 (b,); there must be one contribution or more."""
        return coordinate_median(self._buffers).astype(np.float32)
