"""What an evaluation finds, sample by sample and as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Metrics:
    """How good a model is on a set of samples: mean loss, share of right answers, samples."""

    loss: float
    accuracy: float
    samples: int


@dataclass(frozen=True, eq=False)
class Scores:
    """How a model did on each of some samples.

    Attributes:
        right: whether its answer was the right one, bool (n,).
        losses: float64 (n,).
        batch_size: samples that were looked at together.
    """

    right: np.ndarray
    losses: np.ndarray
    batch_size: int

    def metrics(self) -> Metrics:
        """Return the whole; losses are added up batch by batch, wherever they come from."""
        number, loss = len(self.right), 0.0
        for start in range(0, number, self.batch_size):
            loss += float(self.losses[start : start + self.batch_size].sum())
        return Metrics(loss / number, int(self.right.sum()) / number, number)
