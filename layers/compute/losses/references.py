"""Losses that compare the model with others: distillation, MOON's and FedProto's terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from layers.compute.losses.loss import (
    LAST,
    Given,
    Loss,
    check_array,
)
from layers.settings import NotNegative, Positive, Share


@dataclass(frozen=True)
class Distillation(Loss):
    """Cross-entropy and the divergence from a teacher's probabilities at a temperature T.

    (1 - weight) c + weight T^2 KL(q || softmax(z / T)), with the cross-entropy c. The teacher is a
    reference model, q = softmax(its outputs / T), by default the model that the client received; or
    with `reference: null`, q is the trainer's array `soft_labels` (n, classes), as for an ensemble
    on samples of the server (FedDF, Lin et al. 2020). Source: Hinton et al., "Distilling the
    Knowledge in a Neural Network", 2015, section 2.

    Attributes:
        reference: the name of the teacher among the reference models; null: soft labels.
        weight: the share of the teacher in the loss, from 0 to 1.
        temperature: T, above 0; a large one makes the probabilities more equal.
    """

    name = "distillation"
    FITS = ("softmax",)

    reference: str | None = "received"
    weight: Share = 0.5
    temperature: Positive = 1.0

    @property
    def references(self) -> tuple[str, ...]:
        """The teacher, if it is a reference model."""
        return () if self.reference is None else (self.reference,)

    @property
    def arrays(self) -> tuple[str, ...]:
        """The soft labels, if there is no reference model."""
        return ("soft_labels",) if self.reference is None else ()

    @property
    def rows(self) -> tuple[str, ...]:
        """The soft labels: one row for each sample."""
        return self.arrays

    def inputs(
        self, y: np.ndarray, classes: int, arrays: Mapping[str, np.ndarray]
    ) -> Mapping[str, np.ndarray]:
        """Return the soft labels, after a check of their shape."""
        if self.reference is None:
            check_array(self, "soft_labels", arrays["soft_labels"], (len(y), classes))
        return arrays

    def losses(self, F: Any, given: Given) -> Any:
        if self.reference is None:
            q = given.arrays["soft_labels"]
        else:
            q = F.softmax(given.references[self.reference].logits / self.temperature)
        log_p = F.log_softmax(given.outputs.logits / self.temperature)
        divergence = F.sum(q * (F.log(F.clip(q, 1e-30, 1.0)) - log_p), axis=1)
        soft = (self.weight * self.temperature**2) * divergence
        return (1 - self.weight) * given.cross_entropy(F) + soft


SMALLEST = 1e-8
"""The smallest norm that a cosine divides by, as in PyTorch."""


def cosine(F: Any, a: Any, b: Any) -> Any:
    """Return the cosine of the rows of two arrays (n, values), (n,)."""
    norms = [F.sqrt(F.clip(F.sum(F.square(one), axis=1), SMALLEST**2, 1e38)) for one in (a, b)]
    return F.sum(a * b, axis=1) / (norms[0] * norms[1])


@dataclass(frozen=True)
class Moon(Loss):
    """Cross-entropy and MOON's model-contrastive loss, times mu.

    The contrastive loss draws a sample's representation z to that of the received model (reference
    `received`), and away from that of the client's previous model (reference `previous`):
    -log(exp(cos(z, received) / T) / (exp(cos(z, received) / T) + exp(cos(z, previous) / T))).
    Source: Li et al., "Model-Contrastive Federated Learning", 2021, eq. 3 and 4.

    Attributes:
        mu: the factor of the contrastive loss.
        temperature: T, above 0.
        layer: the layer whose output is the representation; empty: the input of the last layer.
    """

    name = "moon"

    mu: NotNegative = 1.0
    temperature: Positive = 0.5
    layer: str = LAST

    @property
    def references(self) -> tuple[str, ...]:
        """The received model, and the client's previous one."""
        return ("received", "previous")

    @property
    def layers(self) -> tuple[str, ...]:
        return (self.layer,)

    def losses(self, F: Any, given: Given) -> Any:
        """Return the cross-entropy plus mu log(1 + exp((cos previous - cos received) / T))."""
        z = given.outputs.layers[self.layer]
        received, previous = (
            cosine(F, z, given.references[name].layers[self.layer]) for name in self.references
        )
        away = (previous - received) / self.temperature
        return given.cross_entropy(F) + self.mu * F.Activation(away, act_type="softrelu")


@dataclass(frozen=True)
class FedProto(Loss):
    """Cross-entropy and the distance of representations from their class's global prototype.

    The distance is the mean over the values of (h - C_y)^2, times lam, as in the authors' code. The
    trainer's array `prototypes` (classes, values) has the global prototypes C; a class without one
    is a row of NaN and has no such term. Source: Tan et al., "FedProto: Federated Prototype
    Learning across Heterogeneous Clients", 2022, eq. 5.

    Attributes:
        lam: the factor of the distance.
        layer: the layer whose output is the representation; empty: the input of the last layer.
    """

    name = "fedproto"
    FITS = ("softmax", "sigmoid")

    lam: NotNegative = 1.0
    layer: str = LAST

    @property
    def layers(self) -> tuple[str, ...]:
        return (self.layer,)

    @property
    def arrays(self) -> tuple[str, ...]:
        return ("prototypes",)

    def inputs(
        self, y: np.ndarray, classes: int, arrays: Mapping[str, np.ndarray]
    ) -> Mapping[str, np.ndarray]:
        """Return the prototypes, zero where there is none, and whether there is one."""
        prototypes = arrays["prototypes"]
        check_array(self, "prototypes", prototypes, (classes, None))
        known = np.isfinite(prototypes).all(axis=1)
        return {"prototypes": np.where(known[:, None], prototypes, 0), "known": known}

    def losses(self, F: Any, given: Given) -> Any:
        """Return the cross-entropy plus lam times the distance."""
        prototype = F.take(given.arrays["prototypes"], given.label)
        away = F.mean(F.square(given.outputs.layers[self.layer] - prototype), axis=1)
        return given.cross_entropy(F) + self.lam * F.take(given.arrays["known"], given.label) * away
