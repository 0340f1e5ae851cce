"""Cross-entropies: of classes, of two classes, of several labels, of the tokens of a sequence."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from layers.arithmetic import exp, log
from layers.compute.data.targets import Targets
from layers.compute.errors import ComputeError
from layers.compute.losses.loss import Given
from layers.compute.losses.own import OwnLoss

# The smallest normal float32: likelihoods are raised to it before the logarithm.
TINY = np.finfo(np.float32).tiny


class CrossEntropy(OwnLoss):
    """A cross-entropy whose head gives probabilities."""

    TARGETS = ("classes",)

    @abstractmethod
    def likelihood(self, head: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return each sample's probability of its own label, (n,), from the head's value."""

    def reported(self, head: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return -log p of each sample's own label."""
        return np.asarray(-log(np.maximum(self.likelihood(head, y), TINY, dtype=np.float64)))


@dataclass(frozen=True)
class Softmax(CrossEntropy):
    """Softmax cross-entropy, for a model with one output for each class."""

    name = "softmax"
    meaning = "a logit for each class; their softmax are the probabilities"

    def check(self, targets: Targets) -> None:
        """Check also that there are two classes at least."""
        super().check(targets)
        if targets.size < 2:
            raise ComputeError(f"loss softmax: {targets.size} classes; there must be at least 2")

    def outputs(self, targets: Targets) -> tuple[int, ...]:
        """Return (classes,)."""
        return (targets.size,)

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

    def scores(self, outputs: np.ndarray) -> np.ndarray:
        """Return the softmax, (n, classes)."""
        return softmax(outputs)


@dataclass(frozen=True)
class Sigmoid(CrossEntropy):
    """Sigmoid cross-entropy, for a model with one output and labels 0 and 1."""

    name = "sigmoid"
    meaning = "a logit; its sigmoid is the probability of class 1"

    def check(self, targets: Targets) -> None:
        """Check also that there are two classes."""
        super().check(targets)
        if targets.size != 2:
            raise ComputeError(f"loss sigmoid: {targets.size} classes; it is for two classes")

    def outputs(self, targets: Targets) -> tuple[int, ...]:
        """Return (1,)."""
        return (1,)

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

    def scores(self, outputs: np.ndarray) -> np.ndarray:
        """Return the probabilities of both classes, (n, 2)."""
        p = sigmoid(outputs)
        return np.concatenate([1 - p, p], axis=1)


@dataclass(frozen=True)
class Bce(OwnLoss):
    """Binary cross-entropy, the mean over labels that a sample has or has not."""

    name = "bce"
    meaning = "a logit for each label; its sigmoid is the probability of the label"
    TARGETS = ("multi-label",)

    def losses(self, F: Any, given: Given) -> Any:
        """Return the mean over the labels of log(1 + exp(z)) - y z."""
        z = given.outputs.logits
        return F.mean(F.Activation(z, act_type="softrelu") - given.label * z, axis=1)

    def loss(self, outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
        z = outputs.astype(np.float64)
        return np.asarray((np.logaddexp(0, z) - y * z).mean(axis=1))

    def predict(self, outputs: np.ndarray) -> np.ndarray:
        """Return 1 where the output is positive."""
        return np.asarray((outputs > 0).astype(np.int64))

    def scores(self, outputs: np.ndarray) -> np.ndarray:
        """Return the sigmoid, (n, labels)."""
        return sigmoid(outputs)


@dataclass(frozen=True)
class TokenSoftmax(OwnLoss):
    """Softmax cross-entropy of each token of a sequence, the mean over its places."""

    name = "token-softmax"
    meaning = "a logit for each token, at each place; their softmax are the probabilities"
    TARGETS = ("tokens",)

    def outputs(self, targets: Targets) -> tuple[int, ...]:
        """Return (places, tokens)."""
        return targets.places, targets.size

    def losses(self, F: Any, given: Given) -> Any:
        """Return the mean over the places of -log softmax(z)[y]."""
        return -F.mean(F.pick(F.log_softmax(given.outputs.logits), given.label, axis=2), axis=1)

    def loss(self, outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
        z = outputs.astype(np.float64)
        z -= z.max(axis=2, keepdims=True)
        own = np.take_along_axis(z, y[:, :, None], axis=2)[:, :, 0]
        return np.asarray((log(exp(z).sum(axis=2)) - own).mean(axis=1))

    def predict(self, outputs: np.ndarray) -> np.ndarray:
        """Return the first token with the largest output at each place."""
        return np.asarray(outputs.argmax(axis=2))

    def scores(self, outputs: np.ndarray) -> np.ndarray:
        """Return the softmax at each place, (n, places, tokens)."""
        return softmax(outputs)


def softmax(z: np.ndarray) -> np.ndarray:
    """Return the softmax along the last axis, float64."""
    powers = exp(z.astype(np.float64) - z.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def sigmoid(z: np.ndarray) -> np.ndarray:
    """Return the sigmoid, float64."""
    return np.asarray(exp(-np.logaddexp(0, -z.astype(np.float64))))
