"""The losses that a model can have of its own: cross-entropy of its outputs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from layers.arithmetic import exp, log
from layers.compute.errors import ComputeError
from layers.compute.losses.loss import Given, Loss

# The smallest normal float32: likelihoods are raised to it before the logarithm.
TINY = np.finfo(np.float32).tiny


class CrossEntropy(Loss):
    """A loss that also says how many outputs a model has, and evaluates them."""

    name: ClassVar[str]

    @abstractmethod
    def sizes(self, classes: int) -> tuple[int, int]:
        """Return how many outputs a model must have, and how many labels there are.

        Raises:
            ComputeError: the loss is not for this number of classes.
        """

    @abstractmethod
    def likelihood(self, head: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return each sample's probability of its own label, (n,), from the head's value."""

    @abstractmethod
    def loss(self, logits: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return each sample's loss, float64 (n,)."""

    @abstractmethod
    def predict(self, logits: np.ndarray) -> np.ndarray:
        """Return the predicted label of each sample, (n,)."""

    def reported(self, head: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return -log p of each sample's own label."""
        return np.asarray(-log(np.maximum(self.likelihood(head, y), TINY, dtype=np.float64)))


@dataclass(frozen=True)
class Softmax(CrossEntropy):
    """Softmax cross-entropy, for a model with one output for each class."""

    name = "softmax"

    def sizes(self, classes: int) -> tuple[int, int]:
        """Return the number of classes, twice; there must be at least 2."""
        if classes < 2:
            raise ComputeError(f"loss softmax: {classes} classes; there must be at least 2")
        return classes, classes

    def losses(self, F: Any, given: Given) -> Any:
        """Return -log softmax(z)[y]."""
        return -F.pick(F.log_softmax(given.outputs.logits), given.label, axis=1)

    def head(self, F: Any, given: Given, batch: int) -> Any:
        """Return the softmax; its backward pass is (p - y) / batch."""
        return F.SoftmaxOutput(given.outputs.logits, given.label, grad_scale=1.0 / batch)

    def likelihood(self, head: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return p[i, y[i]]."""
        return np.asarray(head[np.arange(len(y)), y])

    def loss(self, logits: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return log(sum(exp(z))) - z[y]."""
        z = logits.astype(np.float64)
        z -= z.max(axis=1, keepdims=True)
        return np.asarray(log(exp(z).sum(axis=1)) - z[np.arange(len(y)), y])

    def predict(self, logits: np.ndarray) -> np.ndarray:
        """Return the first class with the largest output."""
        return np.asarray(logits.argmax(axis=1))


@dataclass(frozen=True)
class Sigmoid(CrossEntropy):
    """Sigmoid cross-entropy, for a model with one output and labels 0 and 1."""

    name = "sigmoid"

    def sizes(self, classes: int) -> tuple[int, int]:
        """Return 1 and 2; there must be 1 or 2 classes."""
        if classes not in (1, 2):
            raise ComputeError(f"loss sigmoid: {classes} classes; it is for two classes")
        return 1, 2

    def losses(self, F: Any, given: Given) -> Any:
        """Return log(1 + exp(z)) - y z."""
        z = F.Reshape(given.outputs.logits, shape=(-1,))
        return F.Activation(z, act_type="softrelu") - given.label * z

    def head(self, F: Any, given: Given, batch: int) -> Any:
        """Return the sigmoid; its backward pass is (p - y) / batch."""
        flat = F.Reshape(given.outputs.logits, shape=(-1,))
        return F.LogisticRegressionOutput(flat, given.label, grad_scale=1.0 / batch)

    def likelihood(self, head: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return p where y is 1, and 1 - p where it is 0."""
        return np.asarray(np.abs(1 - y - head.reshape(-1)))

    def loss(self, logits: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return log(1 + exp(z)) - y z."""
        z = logits.astype(np.float64).reshape(-1)
        return np.asarray(np.logaddexp(0, z) - y * z)

    def predict(self, logits: np.ndarray) -> np.ndarray:
        """Return 1 where the output is positive."""
        return np.asarray((logits.reshape(-1) > 0).astype(np.int64))
