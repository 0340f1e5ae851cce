"""The geometric median of the updates (RFA: Pillutla, Kakade, Harchaoui 2022, section 3).

It is found by the modified Weiszfeld algorithm of Vardi and Zhang 2000, "The multivariate L1-median
and associated data depth", PNAS 97(4), equations 2.6 and 2.7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from layers.arithmetic import total
from layers.logic.aggregators.collected import Combination, StoredUpdates, coordinate_median
from layers.logic.aggregators.mean import add_scaled, by_samples
from layers.logic.core.declaration import Need, Trait
from layers.logic.core.messages import EMPTY
from layers.logic.core.state import ServerState
from layers.logic.numeric.vectors import distance
from layers.settings import Count, Positive

ENOUGH = 2.5e-10  # norm of a subgradient at which the sum is within 5e-10 of the least, relatively
SAME = 1e-12  # an update counts as equal to z within this share of the mean distance


@dataclass(frozen=True)
class GeometricMedian(Combination):
    """w + the vector z with the least sum_k a_k ||z - delta_k||, where the a_k sum to 1.

    A Weiszfeld step goes to T(z) = sum_k b_k delta_k / sum_k b_k with b_k = a_k / ||z - delta_k||,
    over the updates that are not equal to z. Where updates of weight a are equal to z, the others
    pull with r = ||sum_k b_k (delta_k - z)||: z is the median if r <= a, and the step is
    (1 - a / r) (T(z) - z) otherwise. The plain step would stay there whatever the others do. Each
    iteration also tries an update itself, the nearest that was not tried yet, and goes there if the
    sum is not larger: a median that is an update would be reached slowly. Steps have momentum,
    which is reset when the sum rises (O'Donoghue and Candes 2015, section 3.2).

    It begins at the coordinate-wise median, so that a far outlier does not take many iterations to
    leave. It ends when the sum is within a relative 1e-9 of the least one. While clients of less
    than half of the weight are arbitrary, z stays near the honest ones. All updates are held in
    memory. Buffers are the coordinate-wise median of all, with equal weights.

    With `smoothing` it is the rule of the paper's algorithm 2 instead: so many plain Weiszfeld
    steps from the weighted mean, with b_k = a_k / max(smoothing, ||z - delta_k||).

    Attributes:
        iterations: the largest number of iterations; a few dozen are enough unless the median is
            close to an update.
        weights: ``"uniform"`` gives all clients the same weight, ``"samples"`` weighs them by n_k
            (as in the paper), so that a client that invents samples has more influence.
        smoothing: nu, the least distance in the weights of smoothed Weiszfeld steps (the paper has
            4 steps and 1e-6); null: the exact median.
    """

    name = "geometric-median"

    iterations: Count = 1000
    weights: Literal["uniform", "samples"] = "uniform"
    smoothing: Positive | None = None

    requires = frozenset({Need.EACH_CLIENT})

    @property
    def provides(self) -> frozenset[Trait]:
        """A bound on few clients, and what follows from `weights`."""
        return frozenset({Trait.ROBUST, *by_samples(self.weights)})

    def combine(self, updates: StoredUpdates, state: ServerState) -> tuple[np.ndarray, np.ndarray]:
        """Return the geometric median; with `smoothing` a share is the update's last weight."""
        samples = updates.samples if self.weights == "samples" else [1.0] * len(updates.deltas)
        shares = np.array(samples)
        shares = shares / shares.sum()
        vectors = [np.asarray(delta) for delta in updates.deltas]
        if self.smoothing is None:
            return geometric_median(vectors, shares, self.iterations), EMPTY
        start = _weighted(vectors, shares)
        return smoothed(vectors, shares, self.smoothing, self.iterations, start)


def smoothed(
    vectors: Sequence[np.ndarray], shares: np.ndarray, nu: float, steps: int, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return float64 (d,) after smoothed Weiszfeld steps from `start`, and the last weights (m,).

    It ends before the last step where a step leads nowhere else.
    """
    z, weights = start, shares
    for _ in range(steps):
        pulls = shares / np.maximum(_distances(z, vectors), nu)
        weights = pulls / total(pulls)
        before, z = z, _weighted(vectors, weights)
        if np.array_equal(before, z):
            break
    return z, weights


def _weighted(vectors: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Return the sum of the weighted vectors, float64 (d,)."""
    result = np.zeros(vectors[0].size)
    for vector, weight in zip(vectors, weights.tolist(), strict=True):
        add_scaled(result, vector, weight)
    return result


def geometric_median(
    vectors: Sequence[np.ndarray], shares: np.ndarray, iterations: int
) -> np.ndarray:
    """Return the vector with the least weighted sum of distances, float64 (d,).

    Args:
        vectors: m of them, float32 (d,) each.
        shares: float64 (m,), 0 or more, with sum 1.
        iterations: at most.
    """
    z: np.ndarray = coordinate_median(vectors)
    before = z
    momentum, least = 0, math.inf
    untried = np.ones(len(vectors), bool)
    for _ in range(iterations):
        point: np.ndarray = z + momentum / (momentum + 3) * (z - before)
        away = _distances(point, vectors)
        if momentum and _spread(away, shares) > least:
            momentum, point, away = 0, z, _distances(z, vectors)
        target, slope = _step(point, vectors, shares, away)
        if slope <= ENOUGH or np.array_equal(target, point):
            return point
        if untried.any():
            nearest = int(np.where(untried, away, math.inf).argmin())
            untried[nearest] = False
            from_it = _distances(vectors[nearest], vectors)
            if _spread(from_it, shares) <= _spread(away, shares):
                momentum, z = 0, vectors[nearest].astype(np.float64)
                continue
        before, z = z, target
        momentum, least = momentum + 1, _spread(away, shares)
    return z


def _step(
    z: np.ndarray, vectors: Sequence[np.ndarray], shares: np.ndarray, away: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return where one step leads, and the norm of the shortest subgradient at z.

    No sum of distances is less than the one at z by more than twice that norm, relatively: the
    median is no farther from z than the two sums together.
    """
    equal = away <= SAME * _spread(away, shares)
    if equal.all():
        return z, 0.0
    pulls = np.where(equal, 0.0, shares / np.where(equal, 1.0, away))
    pull_sum = total(pulls)
    target = np.zeros_like(z)
    for vector, pull in zip(vectors, pulls / pull_sum, strict=True):
        if pull:
            add_scaled(target, vector, float(pull))
    holds = total(shares[equal])
    pulled = pull_sum * distance(target, z)
    if pulled <= holds:
        return z, 0.0
    if holds:
        target = z + (1 - holds / pulled) * (target - z)
    return target, pulled - holds


def _spread(away: np.ndarray, shares: np.ndarray) -> float:
    """Return the weighted sum of distances."""
    return total(shares * away)


def _distances(z: np.ndarray, vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Return the distance from z to each of the vectors, float64 (m,)."""
    return np.array([distance(z, vector) for vector in vectors])
