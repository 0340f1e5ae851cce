"""The losses that an experiment can name.

To add one, write its class with a `name` and add it to `LOSSES`. A loss computes with the operators
that it is given; it imports no MXNet, and knows no engine and no client.
"""

from __future__ import annotations

from layers.compute.losses.cross_entropy import CrossEntropy, Sigmoid, Softmax
from layers.compute.losses.labels import Focal, LabelSmoothing, LogitAdjustment
from layers.compute.losses.loss import Loss
from layers.compute.losses.references import Distillation, FedProto, Moon

CROSS_ENTROPIES: dict[str, type[CrossEntropy]] = {one.name: one for one in (Softmax, Sigmoid)}
"""The losses that a model can have of its own."""

LOSSES: dict[str, type[Loss]] = {
    **CROSS_ENTROPIES,
    **{
        one.name: one
        for one in (LabelSmoothing, Focal, LogitAdjustment, Distillation, Moon, FedProto)
    },
}
"""All losses by name."""
