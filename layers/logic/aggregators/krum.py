"""Robust rules on norms and distances: Krum, multi-Krum, and norm clipping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from layers.arithmetic import sum_in_order
from layers.logic.aggregators.collected import BufferMedian, Combination, StoredUpdates, blocks
from layers.logic.aggregators.mean import WeightedMean, WeightedSum, add_scaled, by_samples, stepped
from layers.logic.core.aggregator import Contribution
from layers.logic.core.declaration import Need, Trait
from layers.logic.core.state import ServerState
from layers.logic.numeric.vectors import norm
from layers.logic.storage import Vector
from layers.settings import Count, Positive, WholeNumber


@dataclass(frozen=True)
class Krum(Combination):
    """w + the update with the least score, the sum of squared distances to its nearest neighbours.

    Source: Blanchard et al. 2017, section 4.

    Of m updates the m - f - 2 nearest count as neighbours. All updates are held, in memory or on
    disk; time grows with m^2. Numbers of samples do not count. Buffers are the coordinate-wise
    median of all, since the client of the chosen update may send any buffers beside it.

    Attributes:
        byzantine: f, how many clients of a round may be arbitrary; `logic.min_updates` must be
            2 f + 3 or more.
    """

    name = "krum"

    byzantine: WholeNumber = 1

    requires = frozenset({Need.EACH_CLIENT})
    provides = frozenset({Trait.BY_SLICES, Trait.ROBUST})

    @property
    def least_updates(self) -> int:
        """2 f + 3, so that f arbitrary clients do not outvote the others."""
        return 2 * self.byzantine + 3

    def combine(self, updates: StoredUpdates, state: ServerState) -> tuple[np.ndarray, np.ndarray]:
        best = int(np.argmin(scores(updates.deltas, self.byzantine)))
        shares = np.zeros(len(updates.deltas))
        shares[best] = 1.0
        return np.asarray(updates.deltas[best]), shares


@dataclass(frozen=True)
class MultiKrum(Krum):
    """w + the plain mean of the updates with the least scores; buffers and all else as in `Krum`.

    Source: Blanchard et al. 2017, section 4 (multi-Krum).

    Attributes:
        keep: how many updates the mean has, at most m - f; None: m - f.
    """

    name = "multi-krum"

    keep: Count | None = None

    def combine(self, updates: StoredUpdates, state: ServerState) -> tuple[np.ndarray, np.ndarray]:
        most = max(1, len(updates.deltas) - self.byzantine)
        number = most if self.keep is None else min(self.keep, most)
        best = np.argsort(scores(updates.deltas, self.byzantine), kind="stable")[:number]
        mean = np.zeros(state.weights.size)
        for place in sorted(best):
            add_scaled(mean, updates.deltas[place], 1.0)
        shares = np.zeros(len(updates.deltas))
        shares[best] = 1 / number
        return mean / number, shares


def scores(vectors: Sequence[Vector], byzantine: int) -> np.ndarray:
    """Return float64 (m,): the sum of each vector's m - f - 2 least squared distances."""
    number = max(1, len(vectors) - byzantine - 2)
    nearest = np.sort(squared_distances(vectors), axis=1)[:, 1 : number + 1]
    return nearest.sum(axis=1)  # type: ignore[no-any-return]


def squared_distances(vectors: Sequence[Vector]) -> np.ndarray:
    """Return float64 (m, m): the squared distance of each two vectors."""
    distances = np.zeros((len(vectors), len(vectors)))
    for _, block in blocks(vectors):
        wide = block.astype(np.float64)
        for i in range(len(wide)):
            away = wide[i + 1 :] - wide[i]  # inner products of near vectors would cancel
            distances[i, i + 1 :] += np.add.reduce(np.multiply(away, away, out=away), axis=1)
    return distances + distances.T


class _Clipped(WeightedSum):
    """The sums of the clipped updates, with the median of the buffers."""

    def __init__(self, state: ServerState) -> None:
        super().__init__(state)
        self.buffers = BufferMedian()
        self.counted: list[float] = []


@dataclass(frozen=True)
class NormClip(WeightedMean):
    """w + sum_k (n_k / n) delta_k min(1, norm / ||delta_k||): no client moves the model far.

    Source: Sun et al. 2019, section 4 (norm thresholding).

    A client of weight a moves the model by at most a times `norm`. Buffers, of which no norm is
    known beforehand, are the coordinate-wise median of all, with equal weights. Memory is that of
    one update, the sum and all buffers.

    Attributes:
        norm: the largest norm of an update, over all trainable parameters.
        weights: ``"samples"`` weighs clients by n_k, which a client may invent, ``"uniform"`` all
            alike.
    """

    name = "norm-clip"

    norm: Positive = 1.0
    weights: Literal["samples", "uniform"] = "samples"

    fold = _Clipped
    requires = frozenset({Need.EACH_CLIENT})

    @property
    def provides(self) -> frozenset[Trait]:
        """A bound on few clients, and what follows from `weights`."""
        return frozenset({Trait.BY_SLICES, Trait.ROBUST, *by_samples(self.weights)})

    def weight(self, contribution: Contribution) -> float:
        return float(contribution.samples) if self.weights == "samples" else 1.0

    def factor(self, total: _Clipped, contribution: Contribution) -> float:
        length = norm(contribution.delta)
        clip = self.norm / length if length > self.norm else 1.0
        total.counted.append(self.weight(contribution) * clip)
        return clip

    def finish(self, total: _Clipped, state: ServerState) -> ServerState:
        shares = np.array(total.counted) / sum_in_order(total.counted)
        return replace(stepped(state, total.mean(), total.buffers.median()), shares=shares)
