"""Losses of outputs and labels alone: label smoothing, focal loss, logit adjustment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from layers.compute.losses.loss import Given, Loss
from layers.settings import NotNegative, Share


@dataclass(frozen=True)
class LabelSmoothing(Loss):
    """Cross-entropy with the label's probability 1 - epsilon + epsilon / K instead of 1.

    Each of the other K - 1 classes has epsilon / K. Source: Szegedy et al., "Rethinking the
    Inception Architecture for Computer Vision", 2016, section 7.

    Attributes:
        epsilon: the probability that is divided among all classes, from 0 to 1.
    """

    name = "label-smoothing"
    FITS = ("softmax",)

    epsilon: Share = 0.1

    def losses(self, F: Any, given: Given) -> Any:
        """Return -(1 - epsilon) log p[y] - epsilon mean(log p)."""
        log_p = F.log_softmax(given.outputs.logits)
        likely, uniform = F.pick(log_p, given.label, axis=1), F.mean(log_p, axis=1)
        return -(1 - self.epsilon) * likely - self.epsilon * uniform


@dataclass(frozen=True)
class Focal(Loss):
    """Focal loss -(1 - p)^gamma log p, p of the sample's own label: likely samples count less.

    Source: Lin et al., "Focal Loss for Dense Object Detection", 2017, eq. 4.

    Attributes:
        gamma: how much less likely samples count; 0: the cross-entropy.
    """

    name = "focal"
    FITS = ("softmax", "sigmoid")

    gamma: NotNegative = 2.0

    def losses(self, F: Any, given: Given) -> Any:
        """Return (1 - exp(-c))^gamma c, with the cross-entropy c."""
        cross_entropy = given.cross_entropy(F)
        # Of 1 - p = 0, the gradient of a power below 1 is infinite.
        unlikely = F.clip(1 - F.exp(-cross_entropy), 1e-7, 1.0)
        return unlikely**self.gamma * cross_entropy


@dataclass(frozen=True)
class LogitAdjustment(Loss):
    """Cross-entropy of z + tau log(prior): each client's own labels are the prior.

    The prior of class k is (n_k + smoothing) / (n + K smoothing), with the numbers of the samples
    that the client trains on in this task. With smoothing 0, an absent class is left out of the
    softmax. Predictions use z alone. Source: Menon et al., "Long-tail learning via logit
    adjustment", 2021, eq. 10; for label skew among clients, Zhang et al., "Federated Learning with
    Label Distribution Skew via Logits Calibration" (FedLC), 2022, have another function of n_k.

    Attributes:
        tau: the factor of log(prior); 0: the cross-entropy.
        smoothing: added to the number of samples of each class.
    """

    name = "logit-adjustment"
    FITS = ("softmax",)

    tau: NotNegative = 1.0
    smoothing: NotNegative = 1.0

    def inputs(
        self, y: np.ndarray, classes: int, arrays: Mapping[str, np.ndarray]
    ) -> Mapping[str, np.ndarray]:
        """Return tau log(prior), float32 (1, classes)."""
        if self.tau == 0:
            return {"shift": np.zeros((1, classes), np.float32)}
        counts = np.bincount(y, minlength=classes) + self.smoothing
        with np.errstate(divide="ignore"):
            shift = self.tau * np.log(counts / counts.sum())
        return {"shift": shift.astype(np.float32)[None]}

    def losses(self, F: Any, given: Given) -> Any:
        """Return -log softmax(z + shift)[y]."""
        adjusted = F.broadcast_add(given.outputs.logits, given.arrays["shift"])
        return -F.pick(F.log_softmax(adjusted), given.label, axis=1)
