"""Local training: the plan, mini-batches and the reported loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from layers.arithmetic import PART, total
from layers.compute.errors import ComputeError


class TrainingPlan(Protocol):
    """The settings of a client's local training, which the server sends."""

    @property
    def epochs(self) -> int:
        """The number of passes over the samples, unless `steps` is given."""

    @property
    def steps(self) -> int | None:
        """The number of mini-batches, 0 for no training; None: as many as `epochs` has."""

    @property
    def batch_size(self) -> int:
        """The number of samples in a mini-batch; 0: all of them."""

    @property
    def learning_rate(self) -> float:
        """The learning rate."""

    @property
    def momentum(self) -> float:
        """The momentum, for an optimiser that has one."""

    @property
    def weight_decay(self) -> float:
        """The factor of the weights in their decay; see `Optimiser`."""


def steps_of(plan: TrainingPlan, samples: int, least: int = 1) -> int:
    """Return how many mini-batches a plan has for this many samples; see `starts`.

    Raises:
        ComputeError: `steps` is negative, or it is not given and `epochs` is less than 1.
    """
    if plan.steps is not None:
        if plan.steps < 0:
            raise ComputeError(f"plan: steps={plan.steps} is negative")
        return plan.steps
    if plan.epochs < 1:
        raise ComputeError(f"plan: epochs={plan.epochs} is not at least 1, and steps is not given")
    return plan.epochs * len(starts(samples, batch_of(plan, samples), least))


def batch_of(plan: TrainingPlan, samples: int) -> int:
    """Return how many samples a full mini-batch has.

    Raises:
        ComputeError: `batch_size` is negative.
    """
    if plan.batch_size < 0:
        raise ComputeError(f"plan: batch_size={plan.batch_size} is negative; 0 means all samples")
    return min(plan.batch_size or samples, samples)


def starts(samples: int, batch: int, least: int = 1) -> range:
    """Return where the mini-batches of an epoch begin; the last one has the remaining rows.

    Fewer than `least` remaining rows join the mini-batch before them.
    """
    return range(0, max(samples - least + 1, 1), batch)


def shuffled(
    samples: int, batch: int, steps: int, seed: int, least: int = 1
) -> Iterator[np.ndarray]:
    """Yield the rows of `steps` mini-batches, shuffled in every epoch; see `starts`."""
    rng = np.random.default_rng(seed)
    while steps > 0:
        order = rng.permutation(samples)
        begins = starts(samples, batch, least)
        for begin, end in zip(begins, (*begins[1:], samples), strict=True):
            if steps == 0:
                return
            steps -= 1
            yield order[begin:end]


STEPS = 64  # how many mini-batches are evaluated together, which takes less time


class ReportedLoss:
    """The mean loss of local training, from the head's output of each mini-batch before its step.

    Args:
        reported: returns each sample's loss, float64 (n,), from the head's output and the labels.
        y: the labels (n,) of all samples.
    """

    def __init__(self, reported: Callable[[np.ndarray, np.ndarray], np.ndarray], y: np.ndarray):
        self._reported, self._y = reported, y
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._sizes: list[int] = []
        self._losses: list[np.ndarray] = []

    def add(self, head: np.ndarray, rows: np.ndarray) -> None:
        """Add a mini-batch: the head's output, which is copied, and its rows."""
        self._waiting.append((head.copy(), rows))
        if len(self._waiting) == STEPS:
            self._look_up()

    @property
    def steps(self) -> int:
        """The number of mini-batches so far."""
        return len(self._sizes) + len(self._waiting)

    def means(self) -> tuple[float, float]:
        """Return the mean of the mini-batches' losses, and the root of their mean squared losses.

        Both are NaN without a mini-batch.
        """
        self._look_up()
        if not self._sizes:
            return math.nan, math.nan
        losses = np.concatenate(self._losses)
        sizes = np.array(self._sizes)
        means = _sums(losses, sizes) / sizes
        squares = _sums(losses**2, sizes) / sizes
        return total(means) / sizes.size, math.sqrt(total(squares) / sizes.size)

    def _look_up(self) -> None:
        if self._waiting:
            outputs, rows = zip(*self._waiting, strict=True)
            self._sizes += map(len, rows)
            labels = self._y[np.concatenate(rows)]
            self._losses.append(self._reported(np.concatenate(outputs), labels))
            self._waiting.clear()


def _sums(values: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the sum of each mini-batch's values; `values` has them in order."""
    starts = np.cumsum(sizes) - sizes
    if sizes.max() > PART:
        return np.array([total(one) for one in np.split(values, starts[1:])])
    return np.asarray(np.add.reduceat(values, starts))
