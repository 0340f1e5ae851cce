"""The geometric median of the updates (RFA: Pillutla, Kakade, Harchaoui 2022, algorithm 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from layers.logic.aggregators.median import coordinate_median
from layers.logic.aggregators.stored_updates import StoredUpdates
from layers.logic.aggregators.sums import add_scaled
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError
from layers.logic.numeric.projection import WIDE

ENOUGH = 1e-8  # relative descent of the sum of distances below which an iteration was the last


@dataclass(frozen=True)
class GeometricMedian(Aggregator):
    """w + the vector z with the least sum_k a_k ||z - delta_k||, by smoothed Weiszfeld steps.

    z <- sum_k b_k delta_k / sum_k b_k with b_k = a_k / max(nu, ||z - delta_k||), which begins at
    the coordinate-wise median, so that a far outlier does not take many iterations to leave. While
    clients of less than half of the weight are arbitrary, z stays near the honest ones. All updates
    are held in memory; buffers are averaged as in FedAvg.

    Attributes:
        iterations: at most; it ends earlier when hardly anything changes.
        nu: the smoothing, in units of an update's norm.
        weights: ``"uniform"`` lets each client count alike, ``"samples"`` by n_k (as the paper
            has it), with which a client that invents samples has more say.
    """

    iterations: int = 32
    nu: float = 1e-6
    weights: Literal["uniform", "samples"] = "uniform"

    each_client = True

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise LogicError(f"iterations must be 1 or more, not {self.iterations}")
        if not 0 < self.nu < math.inf:
            raise LogicError(f"nu must be greater than 0, not {self.nu}")

    def init(self, state: ServerState) -> StoredUpdates:
        """Start with nothing."""
        return StoredUpdates.of(state)

    def add(self, total: StoredUpdates, contribution: Contribution) -> StoredUpdates:
        """Keep one update."""
        return total.add(contribution)

    def finish(self, total: StoredUpdates, state: ServerState) -> ServerState:
        """Return the state with the geometric median applied."""
        shares = np.array(total.samples if self.weights == "samples" else [1.0] * len(total.deltas))
        shares = shares / shares.sum()
        z = coordinate_median(total.deltas)
        last = math.inf
        for _ in range(self.iterations):
            away = np.maximum(self.nu, [_distance(z, delta) for delta in total.deltas])
            spread = float(np.add.reduce(shares * away))
            if last - spread <= ENOUGH * spread:
                break
            last = spread
            pulls = shares / away
            z = np.zeros_like(z)
            for delta, pull in zip(total.deltas, pulls / pulls.sum(), strict=True):
                add_scaled(z, delta, float(pull))
        return total.applied(z, state)


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the Euclidean distance of two (d,) vectors, in float64."""
    total = 0.0
    for start in range(0, one.size, WIDE):
        part = slice(start, start + WIDE)
        away = np.subtract(one[part], other[part], dtype=np.float64)
        total += float(np.add.reduce(np.multiply(away, away, out=away)))
    return math.sqrt(total)
