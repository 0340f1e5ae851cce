"""Losses of real values; each is the mean over the values of a sample."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from layers.arithmetic import exp
from layers.compute.losses.loss import Given
from layers.compute.losses.own import OwnLoss
from layers.settings import Positive


class Regression(OwnLoss):
    """A loss of the difference between a model's outputs (n, values) and the targets."""

    TARGETS = ("real",)
    meaning = "the predicted values"

    @abstractmethod
    def of(self, F: Any, outputs: Any, targets: Any) -> Any:
        """Return the loss of each value, (n, values), by the operators of `F`, or numpy's."""

    def losses(self, F: Any, given: Given) -> Any:
        return F.mean(self.of(F, given.outputs.logits, given.label), axis=1)

    def loss(self, outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the mean over the values."""
        wide = outputs.astype(np.float64), y.astype(np.float64)
        return np.asarray(self.of(_Wide, *wide).mean(axis=1))

    def predict(self, outputs: np.ndarray) -> np.ndarray:
        """Return the outputs."""
        return outputs


class _Wide:
    """The operators that the losses below use, on arrays of numpy."""

    square, abs, clip, exp = np.square, np.abs, np.clip, staticmethod(exp)


@dataclass(frozen=True)
class Mse(Regression):
    """Squared error (z - y)^2."""

    name = "mse"

    def of(self, F: Any, outputs: Any, targets: Any) -> Any:
        return F.square(outputs - targets)


@dataclass(frozen=True)
class Mae(Regression):
    """Absolute error |z - y|."""

    name = "mae"

    def of(self, F: Any, outputs: Any, targets: Any) -> Any:
        return F.abs(outputs - targets)


@dataclass(frozen=True)
class Huber(Regression):
    """Half of the squared error up to `delta`, and linear above it.

    Source: Huber, "Robust Estimation of a Location Parameter", 1964.

    Attributes:
        delta: the absolute error from which the loss is linear.
    """

    name = "huber"

    delta: Positive = 1.0

    def of(self, F: Any, outputs: Any, targets: Any) -> Any:
        """Return q^2 / 2 + delta (|z - y| - q), q = min(|z - y|, delta)."""
        away = F.abs(outputs - targets)
        near = F.clip(away, 0.0, self.delta)
        return 0.5 * F.square(near) + self.delta * (away - near)


@dataclass(frozen=True)
class PoissonLikelihood(Regression):
    """Negative log-likelihood exp(z) - y z of counts, whose logarithmic rate is the output."""

    name = "poisson"
    meaning = "the logarithm of the predicted rates"

    def of(self, F: Any, outputs: Any, targets: Any) -> Any:
        return F.exp(outputs) - targets * outputs

    def predict(self, outputs: np.ndarray) -> np.ndarray:
        """Return the rate exp(z)."""
        return np.asarray(exp(outputs.astype(np.float64)))
