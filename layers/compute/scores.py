"""The result of an evaluation, sample by sample and as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

NONE = np.zeros(0, np.float32)


@dataclass(frozen=True)
class Metrics:
    """The result of a model on a set of samples.

    Attributes:
        loss: the mean loss.
        accuracy: the share of correct predictions, from 0 to 1; NaN: targets are not classes.
        samples: how many samples there are.
    """

    loss: float
    accuracy: float
    samples: int


@dataclass(frozen=True, eq=False)
class Scores:
    """The result of a model on each sample.

    Attributes:
        right: whether the prediction is correct, bool (n,); empty: targets are not classes.
        losses: the loss, float64 (n,).
        batch_size: how many samples were evaluated together.
        outputs: the model's outputs, float32 (n, ...); empty: they were not kept.
    """

    right: np.ndarray
    losses: np.ndarray
    batch_size: int
    outputs: np.ndarray = field(default_factory=lambda: NONE)

    @classmethod
    def none(cls) -> Scores:
        """Return the scores of no samples."""
        return cls(np.zeros(0, bool), np.zeros(0), 1)

    @classmethod
    def joined(cls, parts: Sequence[Scores]) -> Scores:
        """Return the scores of several parts, one after the other."""
        right, losses, outputs = (
            np.concatenate([getattr(one, name) for one in parts])
            for name in ("right", "losses", "outputs")
        )
        return cls(right, losses, parts[0].batch_size, outputs)

    def of(self, rows: np.ndarray) -> Scores:
        """Return the scores of rows."""
        arrays = (one[rows] if len(one) else one for one in (self.right, self.losses, self.outputs))
        right, losses, outputs = arrays
        return Scores(right, losses, self.batch_size, outputs)

    def metrics(self) -> Metrics:
        """Return the metrics of all samples.

        Losses are added batch by batch, so the bits of the sum do not depend on where the batches
        were evaluated.
        """
        number, loss = len(self.losses), 0.0
        for start in range(0, number, self.batch_size):
            loss += float(self.losses[start : start + self.batch_size].sum())
        accuracy = int(self.right.sum()) / number if len(self.right) else float("nan")
        return Metrics(loss / number, accuracy, number)
