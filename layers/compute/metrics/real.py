"""Metrics of real values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from layers.compute.data.targets import Targets
from layers.compute.metrics.metric import Metric


class _Error(Metric):
    """A mean over all values of a function of the error; the state is the sum and the number."""

    unit = "number"
    better = "lower"
    TARGETS = ("real",)

    def init(self, targets: Targets) -> np.ndarray:
        return np.zeros(2)

    def of(self, error: np.ndarray) -> np.ndarray:
        """Return the function of the errors (n, values)."""
        return np.asarray(np.square(error))

    def add(self, state: np.ndarray, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return np.asarray(state + np.array([self.of(outputs - targets).sum(), targets.size]))

    def finish(self, state: np.ndarray) -> float:
        return float(state[0] / state[1]) if state[1] else math.nan


@dataclass(frozen=True)
class MeanSquaredError(_Error):
    """Mean squared error."""

    name = "mse"
    label = "Mean squared error"


@dataclass(frozen=True)
class RootMeanSquaredError(_Error):
    """Root of the mean squared error."""

    name = "rmse"
    label = "Root mean squared error"

    def finish(self, state: np.ndarray) -> float:
        return math.sqrt(super().finish(state))


@dataclass(frozen=True)
class MeanAbsoluteError(_Error):
    """Mean absolute error."""

    name = "mae"
    label = "Mean absolute error"

    def of(self, error: np.ndarray) -> np.ndarray:
        return np.asarray(np.abs(error))


@dataclass(frozen=True)
class Determination(Metric):
    """Coefficient of determination, the mean over the values of a target.

    The state has, of each value, the number, mean and squared deviations of the targets as sums:
    samples, sum of targets, sum of squared targets, sum of squared errors.
    """

    name = "r2"
    label = "R2"
    unit = "number"
    TARGETS = ("real",)

    def init(self, targets: Targets) -> np.ndarray:
        return np.zeros((4, targets.size))

    def add(self, state: np.ndarray, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        y = targets.astype(np.float64)
        terms = np.ones_like(y), y, np.square(y), np.square(outputs - y)
        return np.asarray(state + np.stack([one.sum(axis=0) for one in terms]))

    def finish(self, state: np.ndarray) -> float:
        number, total, squares, errors = state
        if number.min() < 2:
            return math.nan
        spread = squares - np.square(total) / number
        constant = spread <= 0
        found = 1 - errors / np.where(constant, 1, spread)
        # As scikit-learn: of a constant target, 1 if it is predicted, else 0.
        return float(np.where(constant, np.where(errors == 0, 1.0, 0.0), found).mean())
