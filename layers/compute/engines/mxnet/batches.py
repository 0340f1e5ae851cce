"""Which samples make which mini-batch: shuffled anew every epoch, from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from layers.compute.errors import ComputeError


class TrainingPlan(Protocol):
    """How to train locally; what the logic layer sends a client."""

    @property
    def epochs(self) -> int:
        """Passes over the samples, unless `steps` is given."""

    @property
    def steps(self) -> int | None:
        """Mini-batches in all, 0 leaves the model as it is; None: as many as `epochs` has."""

    @property
    def batch_size(self) -> int:
        """Samples in a mini-batch; 0: all of them."""

    @property
    def learning_rate(self) -> float:
        """Learning learning_rate."""

    @property
    def momentum(self) -> float:
        """Share of the velocity that a step keeps."""

    @property
    def weight_decay(self) -> float:
        """Share of the weights that is added to the gradient."""


def steps_of(plan: TrainingPlan, samples: int) -> int:
    """Return how many mini-batches a plan has over this many samples."""
    if plan.steps is not None:
        if plan.steps < 0:
            raise ComputeError(f"plan: steps={plan.steps} is negative")
        return plan.steps
    if plan.epochs < 1:
        raise ComputeError(f"plan: epochs={plan.epochs} is not at least 1, and steps is not given")
    return plan.epochs * -(-samples // batch_of(plan, samples))


def batch_of(plan: TrainingPlan, samples: int) -> int:
    """Return how many samples a full mini-batch has."""
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
