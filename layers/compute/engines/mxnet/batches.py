"""Mini-batches: the samples are shuffled again in every epoch, from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from layers.compute.errors import ComputeError


class TrainingPlan(Protocol):
    """How a client trains locally; the server sends it."""

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
        """The share of the velocity that a step keeps."""

    @property
    def weight_decay(self) -> float:
        """The share of the weights that is added to the gradient."""


def steps_of(plan: TrainingPlan, samples: int) -> int:
    """Return how many mini-batches a plan has over this many samples.

    Raises:
        ComputeError: `steps` is negative, or it is not given and `epochs` is less than 1.
    """
    if plan.steps is not None:
        if plan.steps < 0:
            raise ComputeError(f"plan: steps={plan.steps} is negative")
        return plan.steps
    if plan.epochs < 1:
        raise ComputeError(f"plan: epochs={plan.epochs} is not at least 1, and steps is not given")
    return plan.epochs * -(-samples // batch_of(plan, samples))


def batch_of(plan: TrainingPlan, samples: int) -> int:
    """Return how many samples a full mini-batch has.

    Raises:
        ComputeError: `batch_size` is negative.
    """
    if plan.batch_size < 0:
        raise ComputeError(f"plan: batch_size={plan.batch_size} is negative; 0 means all samples")
    return min(plan.batch_size or samples, samples)


def batches(samples: int, batch: int, steps: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the rows of `steps` mini-batches; each epoch's last one holds what is left over."""
    rng = np.random.default_rng(seed)
    while steps > 0:
        order = rng.permutation(samples)
        for start in range(0, samples, batch):
            if steps == 0:
                return
            steps -= 1
            yield order[start : start + batch]
