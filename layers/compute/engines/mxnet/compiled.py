"""The compiled path: a HybridBlock and its loss as one bound graph over the flat vectors."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call

from layers.compute.engines.mxnet.graph.join_flat import join_flat
from layers.compute.engines.mxnet.graph.rewriting import Shape
from layers.compute.engines.mxnet.graph.shorten import shorten
from layers.compute.engines.mxnet.graph.split_rows import split_rows
from layers.compute.engines.mxnet.graph.widen import widen
from layers.compute.engines.mxnet.loss import Loss
from layers.compute.engines.mxnet.vector import FlatVector, aligned, share
from layers.compute.errors import ComputeError

_RANDOM_OPERATORS = ("dropout", "random", "sample", "shuffle", "rnn", "leakyrelu")

_YES, _NONE = ctypes.c_int(1), ctypes.c_uint(0)


def trace(block: Any) -> Any:
    """Return the block's output as a symbol of "data".

    Raises:
        ComputeError: the block cannot be traced, because its forward pass is plain Python, or it
            has several outputs.
    """
    if not isinstance(block, mx.gluon.HybridBlock):
        raise ComputeError("the model is a plain Block")
    try:
        output = block(mx.sym.var("data"))
    except Exception as error:
        raise ComputeError(f"the model cannot be traced: {error}") from error
    if not isinstance(output, mx.sym.Symbol) or len(output.list_outputs()) != 1:
        raise ComputeError("the model has several outputs; it must have one, of shape (n, classes)")
    return output


def has_random(symbol: Any) -> bool:
    """Return whether a graph draws random numbers while it is trained."""
    nodes = json.loads(symbol.tojson())["nodes"]
    return any(word in node["op"].lower() for node in nodes for word in _RANDOM_OPERATORS)


def training_graph(output: Any, shapes: dict[str, Shape], example: Shape) -> Any:
    """Return the graph that is trained: the model's own, rewritten to take less time and memory.

    An engine makes it once: MXNet keeps some 14 kB of every graph that it reads, for ever.

    Args:
        output: the model.
        shapes: the shapes of its arguments, by name.
        example: the shape of one input.
    """
    return split_rows(join_flat(widen(shorten(output), shapes), example), (1, *example))


class CompiledStep:
    """Forward and backward of one batch size: reads `x`, `y` and the weights, writes the gradient.

    `output` is the `training_graph`. The caller fills `x` (batch, ...) and `y` (batch,).
    `probabilities` is the head's output of the last `run`.
    """

    def __init__(
        self,
        output: Any,
        names: dict[str, str],
        loss: Loss,
        x: np.ndarray,
        vectors: tuple[FlatVector, FlatVector, FlatVector],
        constants: Mapping[str, Any],
    ):
        weights, buffers, gradient = vectors
        self.x, self.y = x, aligned((len(x),))
        known = {**weights.views, **buffers.views, **constants}
        graph = loss.head(mx.sym, output, mx.sym.var("label"), len(x))
        arrays = {"data": share(self.x), "label": share(self.y)}
        gradients: dict[str, Any] = {}
        for name in graph.list_arguments():
            if name not in arrays:
                arrays[name] = known[names[name]]
                if names[name] in gradient.views:
                    gradients[name] = gradient.views[names[name]]
        statistics = {name: known[names[name]] for name in graph.list_auxiliary_states()}
        self._executor = graph.bind(
            mx.cpu(),
            arrays,
            args_grad=gradients,
            grad_req=dict.fromkeys(gradients, "write"),
            aux_states=statistics,
        )
        head = self._executor.outputs[0]
        self.probabilities = np.zeros(head.shape, np.float32)
        self._handle = self._executor.handle
        self._head = head.handle
        self._head_output = head  # kept: its handle is used in every step
        self._address = self.probabilities.ctypes.data_as(ctypes.c_void_p)
        self._elements = ctypes.c_size_t(head.size)

    def run(self) -> None:
        """Take one forward and one backward pass; when it returns, MXNet has finished."""
        # The executor's own methods build NDArrays each time, which takes a fifth of a step.
        check_call(_LIB.MXExecutorForward(self._handle, _YES))
        check_call(_LIB.MXExecutorBackwardEx(self._handle, _NONE, None, _YES))
        check_call(_LIB.MXNDArraySyncCopyToCPU(self._head, self._address, self._elements))
        check_call(_LIB.MXNDArrayWaitAll())


class CompiledScorer:
    """Inference of one batch size, with parameters of its own.

    An inference pass changes weights to oneDNN's blocked layouts, in place. This would destroy the
    flat vector. So the parameters are copies, which `copyto` refreshes; it knows about layouts.
    """

    def __init__(
        self,
        output: Any,
        names: dict[str, str],
        x: np.ndarray,
        vectors: tuple[FlatVector, FlatVector],
        constants: Mapping[str, Any],
    ):
        self.x = x
        known = {**vectors[0].views, **vectors[1].views}
        self._pairs: list[tuple[Any, Any]] = []

        def own(name: str) -> Any:
            if names[name] in constants:
                return constants[names[name]].copy()
            view = known[names[name]]
            copy = mx.nd.empty(view.shape)
            self._pairs.append((view, copy))
            return copy

        arrays = {
            name: share(self.x) if name == "data" else own(name) for name in output.list_arguments()
        }
        statistics = {name: own(name) for name in output.list_auxiliary_states()}
        self._executor = output.bind(mx.cpu(), arrays, grad_req="null", aux_states=statistics)

    def refresh(self) -> None:
        """Copy the current weights and buffers to the scorer's own parameters."""
        for view, copy in self._pairs:
            view.copyto(copy)
        mx.nd.waitall()

    def run(self) -> np.ndarray:
        """Return the model's outputs, (batch, outputs), for the inputs in `x`."""
        return np.asarray(self._executor.forward(is_train=False)[0].asnumpy())
