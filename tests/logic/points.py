"""A model that goes to the mean of a client's points, so that it shows which ones it was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.logic.quadratic import Measured, QuadraticEngine


@dataclass(frozen=True, eq=False)
class Points:
    """Points x (n, d) and their labels y (n,)."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    @classmethod
    def of(cls, labels: Sequence[int]) -> Points:
        """Return points in a plane that show their label and how many are before them."""
        x = np.array([[label, place] for place, label in enumerate(labels)], np.float32)
        return cls(x, np.array(labels, np.int64))


@dataclass
class PointsEngine(QuadraticEngine):
    """f(w) = 0.5 mean ||w - x||^2; takes whatever samples have x and y, and keeps them."""

    steps_per_epoch = 1
    trained: list[Points] = field(default_factory=list)

    def batches(self, samples, plan, seed, **_given):
        self.trained.append(samples)
        return super().batches(_Seen(samples), plan, seed)

    def gradient(self, samples) -> np.ndarray:
        return (self.weights - samples.x.mean(0)).astype(np.float32)

    def evaluate(self, samples) -> Measured:
        away = self.weights - samples.x
        return Measured(float(0.5 * (away**2).sum(1).mean()), 0.0, len(samples.y))


class _Seen:
    """The samples as `QuadraticEngine.batches` wants them."""

    steps_per_epoch = 1
    noise = 0.0

    def __init__(self, samples) -> None:
        self.x, self.y = samples.x, samples.y
