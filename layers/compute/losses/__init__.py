"""The losses that an experiment can name.

To add one, write its class with a `name` and add it to `LOSSES`. A loss computes with the operators
that it is given; it imports no MXNet, and knows no engine and no client.
"""

from __future__ import annotations

from layers.compute.data.targets import Kind
from layers.compute.losses.cross_entropy import Bce, Sigmoid, Softmax, TokenSoftmax
from layers.compute.losses.labels import Focal, LabelSmoothing, LogitAdjustment
from layers.compute.losses.loss import Loss
from layers.compute.losses.own import OwnLoss
from layers.compute.losses.references import Distillation, FedProto, Moon
from layers.compute.losses.regression import Huber, Mae, Mse, PoissonLikelihood

OWN_LOSSES: dict[str, type[OwnLoss]] = {
    one.name: one
    for one in (Softmax, Sigmoid, Bce, TokenSoftmax, Mse, Mae, Huber, PoissonLikelihood)
}
"""The losses that a model can have of its own."""

USUAL: dict[Kind, type[OwnLoss]] = {
    "classes": Softmax,
    "multi-label": Bce,
    "real": Mse,
    "tokens": TokenSoftmax,
}
"""The own loss of a model that names none, by the kind of the targets."""

LOSSES: dict[str, type[Loss]] = {
    **OWN_LOSSES,
    **{
        one.name: one
        for one in (LabelSmoothing, Focal, LogitAdjustment, Distillation, Moon, FedProto)
    },
}
"""All losses by name."""
