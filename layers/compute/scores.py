"""The result of an evaluation, sample by sample and as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Metrics:
    """The result of a model on a set of samples.

    Attributes:
        loss: the mean loss.
        accuracy: the share of correct predictions, from 0 to 1.
        samples: how many samples there are.
    """

    loss: float
    accuracy: float
    samples: int


@dataclass(frozen=True, eq=False)
class Scores:
    """The result of a model on each sample.

    Attributes:
        right: whether the prediction is correct, bool (n,).
        losses: the loss, float64 (n,).
        batch_size: how many samples were evaluated together.
    """

    right: np.ndarray
    losses: np.ndarray
    batch_size: int

    def metrics(self) -> Metrics:
        """Return the metrics of all samples.

        Losses are added batch by batch, so the bits of the sum do not depend on where the batches
        were evaluated.
        """
        number, loss = len(self.right), 0.0
        for start in range(0, number, self.batch_size):
            loss += float(self.losses[start : start + self.batch_size].sum())
        return Metrics(loss / number, int(self.right.sum()) / number, number)
