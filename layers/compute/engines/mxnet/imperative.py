"""The imperative path: a block that cannot be traced, trained through autograd; slower."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np

from layers.compute.engines.mxnet.loss import Loss
from layers.compute.engines.mxnet.structure import constant, parameters, trainable
from layers.compute.engines.mxnet.vector import FlatVector, aligned, share
from layers.compute.errors import ComputeError


def settle_shapes(block: Any, x: np.ndarray) -> None:
    """Give every parameter of a block its shape, by one forward pass.

    Parameters start at zero: their values do not matter here, and zeros draw nothing from MXNet's
    random state.

    Raises:
        ComputeError: the block has several outputs.
    """
    for _, parameter in parameters(block):
        init = None if constant(parameter) else "zeros"
        parameter.initialize(init=init, ctx=mx.cpu(), force_reinit=True)
    with mx.autograd.pause(train_mode=False):
        output = block(mx.nd.array(x, dtype=x.dtype))
    if not isinstance(output, mx.nd.NDArray):
        raise ComputeError("the model has several outputs; it must have one, of shape (n, classes)")
    mx.nd.waitall()


def put_views(block: Any, weights: FlatVector, buffers: FlatVector, gradient: FlatVector) -> None:
    """Make a block's parameters, buffers and gradients views of the flat vectors."""
    for name, parameter in parameters(block):
        if trainable(parameter):
            parameter._data = [weights.views[name]]
            parameter._grad = [gradient.views[name]]
            mx.autograd.mark_variables(parameter._data, parameter._grad, ["write"])
        elif not constant(parameter):
            parameter._data = [buffers.views[name]]


class ImperativeStep:
    """Forward and backward of one batch size through autograd; see `CompiledStep`."""

    def __init__(self, block: Any, loss: Loss, x: np.ndarray, outputs: int):
        self.x, self.y = x, aligned((len(x),))
        self.probabilities = np.zeros((len(x), outputs), np.float32)
        self._block = block
        self._loss = loss
        self._shared = share(self.x), share(self.y)

    def run(self) -> None:
        """Take one forward and one backward pass; when it returns, MXNet has finished."""
        x, y = self._shared
        with mx.autograd.record():
            head = self._loss.head(mx.nd, self._block(x), y, len(self.y))
        head.backward()
        self.probabilities[...] = head.asnumpy().reshape(self.probabilities.shape)
        mx.nd.waitall()


class ImperativeScorer:
    """Inference with a block of its own; see `CompiledScorer`."""

    def __init__(self, block: Any, x: np.ndarray, weights: FlatVector, buffers: FlatVector):
        self.x = x
        self._block = block
        self._shared = share(self.x)
        known = {**weights.views, **buffers.views}
        self._pairs = [(known[name], p.data()) for name, p in parameters(block) if not constant(p)]

    def refresh(self) -> None:
        """Copy the current weights and buffers to the scorer's own parameters."""
        for view, copy in self._pairs:
            view.copyto(copy)
        mx.nd.waitall()

    def run(self) -> np.ndarray:
        """Return the model's outputs, (batch, outputs), for the inputs in `x`."""
        return np.asarray(self._block(self._shared).asnumpy())
