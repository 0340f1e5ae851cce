"""The mini-batches of one local training, with the state of its optimiser and its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from layers.compute.engines.objective import Feed
from layers.compute.engines.one_thread import OneThread
from layers.compute.engines.training import (
    ReportedLoss,
    TrainingPlan,
    batch_of,
    shuffled,
    steps_of,
)
from layers.compute.optimisers.optimiser import Descent, Optimiser


@dataclass(frozen=True)
class TrainReport:
    """The result of local training.

    Attributes:
        steps: how many steps were taken.
        samples: how many samples there were.
        loss: the mean of the mini-batches' losses, each at the weights before its step; NaN
            without a step.
        rms_loss: the root of the mean of the mini-batches' mean squared losses of single samples;
            NaN without a step.
    """

    steps: int
    samples: int
    loss: float
    rms_loss: float


class Batch:
    """A mini-batch: samples, and the training to which their step belongs.

    Attributes:
        batches: the mini-batches of the training.
        rows: the rows of the samples, int64 (n,).
    """

    __slots__ = ("batches", "rows")

    def __init__(self, batches: Batches, rows: np.ndarray):
        self.batches = batches
        self.rows = rows

    @property
    def x(self) -> np.ndarray:
        """A copy of the inputs, (n, ...)."""
        return np.asarray(self.batches.feed.x[self.rows])

    @property
    def y(self) -> np.ndarray:
        """A copy of the targets, (n, ...)."""
        return np.asarray(self.batches.feed.y[self.rows])

    def __len__(self) -> int:
        return len(self.rows)


class Batches:
    """The mini-batches of one local training, shuffled in every epoch.

    Each iteration has the same mini-batches. The optimiser's state and the report go on.

    Attributes:
        descent: the optimiser's steps.
        reported: the losses so far.

    Args:
        feed: the samples, and what the loss reads.
        plan: epochs or steps, batch size, learning rate, momentum, weight decay.
        seed: for shuffling.
        dimension: the number of weights.
        least: the fewest samples of a mini-batch, if there are as many.
        one_thread: the context in which the engine's operators run.
        begin: called before the first mini-batch.
        optimiser: the optimiser of the steps.
        kept: the optimiser's state to begin with; see `Descent`.

    Raises:
        ComputeError: a value of the plan is not allowed.
    """

    def __init__(
        self,
        feed: Feed,
        plan: TrainingPlan,
        seed: int,
        dimension: int,
        least: int,
        one_thread: OneThread,
        begin: Callable[[], None],
        optimiser: Optimiser,
        kept: Mapping[str, np.ndarray],
    ):
        samples = len(feed.y)
        self.feed, self.plan = feed, plan
        self._batch, self._steps = batch_of(plan, samples), steps_of(plan, samples, least)
        self._least = least
        self._seed = seed
        self._one_thread = one_thread
        self._begin = begin
        self.descent = Descent(
            optimiser, dimension, plan.learning_rate, plan.momentum, plan.weight_decay, kept
        )
        self.reported = ReportedLoss(feed.objective.reported, feed.y)

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Batch]:
        with self._one_thread.kept():
            self._begin()
            samples, batch = len(self.feed.y), self._batch
            for rows in shuffled(samples, batch, self._steps, self._seed, self._least):
                yield Batch(self, rows)

    @property
    def kept(self) -> Mapping[str, np.ndarray]:
        """The optimiser's state for the client's next training; empty: that starts with a new one.

        The arrays change in each step.
        """
        return self.descent.kept

    def report(self) -> TrainReport:
        """Return the report of the steps so far."""
        return TrainReport(self.reported.steps, len(self.feed.y), *self.reported.means())


class Term(Protocol):
    """What a hook adds to the gradient of each step; see `GradientTerm`."""

    def add(self, gradient: Any, weights: Any) -> None:
        """Add the term in place."""

    @classmethod
    def stacked(cls, terms: Sequence[Any], put: Callable[[np.ndarray], Any]) -> Any:
        """Return one term of many clients, whose matrices `put` gives to the engine's library."""


@dataclass(frozen=True, eq=False)
class Training:
    """The local training of one client among many.

    Attributes:
        weights: float32 (d,), the weights before.
        batches: its mini-batches, which get the report of the steps.
        terms: what each step adds to its gradient: of each hook a term, or None.
    """

    weights: np.ndarray
    batches: Batches
    terms: Sequence[Term | None]
