"""The operators of a loss, with the names, arguments and gradients of MXNet's, on tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from layers.compute.engines.objective import Objective
from layers.compute.errors import ComputeError
from layers.compute.losses.cross_entropy import Softmax


class Operators:
    """The operators of a loss; a name that is missing here is PyTorch's own function."""

    exp, log, sqrt, square, abs = torch.exp, torch.log, torch.sqrt, torch.square, torch.abs
    relu, sigmoid, reshape = torch.relu, torch.sigmoid, torch.reshape
    broadcast_add, broadcast_sub, broadcast_mul = torch.add, torch.sub, torch.mul

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(torch, name)
        except AttributeError:
            raise ComputeError(f"the engine torch has no operator {name} for a loss") from None

    def Reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:  # noqa: N802
        """Return x in another shape; one length may be -1."""
        return x.reshape(shape)

    def clip(self, x: Tensor, a_min: float, a_max: float) -> Tensor:
        """Return x, at least a_min and at most a_max."""
        return x.clamp(a_min, a_max)

    def sum(self, x: Tensor, axis: int) -> Tensor:
        """Return the sums along an axis."""
        return x.sum(dim=axis)

    def mean(self, x: Tensor, axis: int) -> Tensor:
        """Return the means along an axis."""
        return x.mean(dim=axis)

    def Activation(self, x: Tensor, act_type: str) -> Tensor:  # noqa: N802
        """Return relu, sigmoid, tanh or softrelu, which is log(1 + exp(x)), of x."""
        if act_type == "softrelu":
            return torch.logaddexp(x, torch.zeros_like(x))
        if act_type not in ("relu", "sigmoid", "tanh"):
            raise ComputeError(
                f"Activation: act_type {act_type!r} is not one of relu, sigmoid, softrelu, tanh"
            )
        found: Tensor = getattr(torch, act_type)(x)
        return found

    def softmax(self, x: Tensor, axis: int = -1) -> Tensor:
        """Return the softmax along an axis."""
        return torch.softmax(x, axis)

    def log_softmax(self, x: Tensor, axis: int = -1) -> Tensor:
        """Return the logarithm of the softmax along an axis."""
        return torch.log_softmax(x, axis)

    def pick(self, x: Tensor, index: Tensor, axis: int = 1) -> Tensor:
        """Return x[i, index[i]] of each row i."""
        return x.gather(axis, index.long().unsqueeze(axis)).squeeze(axis)

    def take(self, x: Tensor, indices: Tensor) -> Tensor:
        """Return the rows of x at indices."""
        return x[indices.long()]


OPERATORS = Operators()


def losses_of(
    objective: Objective, outputs: Sequence[Tensor], label: Tensor, inputs: Mapping[str, Tensor]
) -> Tensor:
    """Return each sample's loss, (n,); the arguments are those of `Objective.given`."""
    if isinstance(objective.loss, Softmax):  # the same, in one operator
        return cross_entropy(outputs[0], label.long(), reduction="none")
    found: Tensor = objective.loss.losses(OPERATORS, objective.given(outputs, label, inputs))
    return found
