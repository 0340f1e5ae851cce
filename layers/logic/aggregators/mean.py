"""The mean of the clients' models (FedAvg), and sums of long vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.declaration import Trait
from layers.logic.core.state import ServerState, frozen
from layers.logic.errors import LogicError
from layers.logic.storage import Vector

BLOCK = 1 << 16  # values at a time, so that the products stay in the processor's cache


def add_scaled(total: np.ndarray, vector: Vector, weight: float) -> None:
    """Add ``weight * vector`` to the float64 `total` in place, block by block."""
    for start in range(0, total.size, BLOCK):
        part = slice(start, start + BLOCK)
        values = vector[part].astype(np.float64)  # faster than a product of mixed types
        values *= weight
        total[part] += values
        del values  # before the next block is allocated


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
    if delta.dtype == np.float32:  # a rule that takes one of the updates unchanged
        return delta
    rounded = delta.view(np.float32)[: delta.size]
    with np.errstate(over="ignore"):  # as above
        for start in range(0, delta.size, BLOCK):
            part = slice(start, start + BLOCK)
            rounded[part] = delta[part].astype(np.float32)
    return rounded


def by_samples(weights: str) -> frozenset[Trait]:
    """Return the trait of a rule that weighs updates by samples, for ``"samples"``."""
    return frozenset({Trait.BY_SAMPLES} if weights == "samples" else ())


class WeightedSum:
    """The value of a weighted mean's fold; a rule that sums more derives from it.

    Attributes:
        delta: float64 (d,), sum_k a_k f_k delta_k.
        weight: sum_k a_k.
        buffers: the fold of the buffers, `BufferMean` by default.
    """

    def __init__(self, state: ServerState) -> None:
        self.delta = np.zeros(state.weights.size)
        self.weight = 0.0
        self.buffers: Any = BufferMean(state)

    def add(self, contribution: Contribution, weight: float, factor: float = 1.0) -> None:
        """Add a_k, and the update a_k f_k times."""
        add_scaled(self.delta, contribution.delta, weight * factor)
        self.buffers.add(contribution)
        self.weight += weight

    def mean(self) -> np.ndarray:
        """Return sum_k a_k f_k delta_k / sum_k a_k, float64 (d,), in the memory of the sum."""
        self.delta /= self.weight
        return self.delta


class WeightedMean(Aggregator):
    """w + sum_k a_k f_k delta_k / sum_k a_k, where the rule says a_k and f_k of each client.

    Sums are float64. Memory is that of one update and the sum. Buffers are averaged by samples.
    """

    fold: ClassVar[type[WeightedSum]] = WeightedSum

    def weight(self, contribution: Contribution) -> float:
        """Return a_k; by default all clients have the same weight."""
        return 1.0

    def factor(self, total: Any, contribution: Contribution) -> float:
        """Return f_k; by default updates count as they are."""
        return 1.0

    def init(self, state: ServerState) -> WeightedSum:
        return self.fold(state)

    def add(self, total: Any, contribution: Contribution) -> Any:
        total.add(contribution, self.weight(contribution), self.factor(total, contribution))
        return total

    def finish(self, total: Any, state: ServerState) -> ServerState:
        return stepped(state, total.mean(), total.buffers.mean())


@dataclass(frozen=True)
class Mean(WeightedMean):
    """w + sum_k (n_k / n) delta_k over the clients that returned, n = sum_k n_k.

    Source: McMahan et al. 2017 (FedAvg), algorithm 1, last line.

    Sums are float64, so that the mean of equal updates is exactly that update. Memory is that of
    one update and the sum, however many updates there are.

    Attributes:
        weights: ``"samples"`` weighs clients by n_k, ``"uniform"`` gives all the same weight,
            ``"plan"`` takes the weights of the selector's plan (missing lanes do not count).
            Buffers are always weighed by n_k.
    """

    name = "mean"

    weights: Literal["samples", "uniform", "plan"] = "samples"

    @property
    def provides(self) -> frozenset[Trait]:
        """Reading by slices, and what follows from `weights`."""
        other = {Trait.OTHER_WEIGHTS, Trait.FROM_MEAN} if self.weights != "plan" else set()
        equal = {Trait.EQUAL_WEIGHTS} if self.weights == "uniform" else set()
        return frozenset({Trait.BY_SLICES, *other, *equal, *by_samples(self.weights)})

    def weight(self, contribution: Contribution) -> float:
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
