"""The mean of the updates, clipped to a norm (Sun et al. 2019, section 4: norm thresholding)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from layers.logic.aggregators.buffers import BufferMedian
from layers.logic.aggregators.sums import add_scaled, stepped
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError
from layers.logic.numeric.vectors import norm


@dataclass
class _Sum:
    delta: np.ndarray
    buffers: BufferMedian
    weight: float = 0.0


@dataclass(frozen=True)
class NormClip(Aggregator):
    """w + sum_k (n_k / n) delta_k min(1, norm / ||delta_k||): no client moves the model far.

    A client of weight a moves the model by at most a times `norm`. Buffers, of which no norm is
    known beforehand, are the coordinate-wise median of all, with equal weights. Memory is that of
    one update, the sum and all buffers.

    Attributes:
        norm: the largest norm of an update, over all trainable parameters.
        weights: ``"samples"`` weighs clients by n_k, which a client may invent, ``"uniform"`` all
            alike.
    """

    norm: float = 1.0
    weights: Literal["samples", "uniform"] = "samples"

    each_client = True
    by_slices = True
    robust = True

    def __post_init__(self) -> None:
        if not 0 < self.norm < math.inf:
            raise LogicError(f"norm must be greater than 0, not {self.norm}")

    @property
    def by_samples(self) -> bool:
        """Whether `weights` is ``"samples"``."""
        return self.weights == "samples"

    def init(self, state: ServerState) -> _Sum:
        """Start with nothing."""
        return _Sum(np.zeros(state.weights.size), BufferMedian())

    def add(self, total: _Sum, contribution: Contribution) -> _Sum:
        """Add one clipped update."""
        weight = float(contribution.samples) if self.weights == "samples" else 1.0
        length = norm(contribution.delta)
        clip = self.norm / length if length > self.norm else 1.0
        add_scaled(total.delta, contribution.delta, weight * clip)
        total.weight += weight
        total.buffers.add(contribution)
        return total

    def finish(self, total: _Sum, state: ServerState) -> ServerState:
        """Return the state with the mean applied."""
        total.delta /= total.weight
        return stepped(state, total.delta, total.buffers.median())
