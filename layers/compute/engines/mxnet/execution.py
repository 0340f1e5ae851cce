"""Forward and backward passes of one batch size: compiled, or through autograd.

A HybridBlock is traced, and runs with its loss as one bound graph over the flat vectors. A block
that cannot be traced runs through autograd, which is slower.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call

from layers.compute.engines.layout import aligned
from layers.compute.engines.mxnet.layers import Layers
from layers.compute.engines.mxnet.parameters import (
    SharedVector,
    constant,
    parameters,
    share,
    trainable,
)
from layers.compute.engines.mxnet.rewriting import Padding, Paddings, Place, Views
from layers.compute.errors import ComputeError

_RANDOM_OPERATORS = ("dropout", "random", "sample", "shuffle", "rnn", "leakyrelu")

LABEL = "label"
"""The labels' name in a training graph."""

_forward, _backward = _LIB.MXExecutorForward, _LIB.MXExecutorBackwardEx
_copy, _wait = _LIB.MXNDArraySyncCopyToCPU, _LIB.MXNDArrayWaitAll
_YES, _NONE = ctypes.c_int(1), ctypes.c_uint(0)


def trace(block: Any, layers: Layers | None = None) -> Any:
    """Return the block's output as a symbol of "data"; with `layers`, grouped with their outputs.

    Raises:
        ComputeError: the block cannot be traced because its forward pass is plain Python, or it has
            several outputs.
    """
    if not isinstance(block, mx.gluon.HybridBlock):
        raise ComputeError("the model is a plain Block")
    try:
        if layers is not None:
            return mx.sym.Group(layers.outputs(mx.sym, mx.sym.var("data")))
        output = block(mx.sym.var("data"))
    except Exception as error:
        raise ComputeError(f"the model cannot be traced: {error}") from error
    if not isinstance(output, mx.sym.Symbol) or len(output.list_outputs()) != 1:
        raise ComputeError("the model has several outputs; it must have one, of shape (n, ...)")
    return output


def has_random(symbol: Any) -> bool:
    """Return whether a graph draws random numbers in training."""
    nodes = json.loads(symbol.tojson())["nodes"]
    return any(word in node["op"].lower() for node in nodes for word in _RANDOM_OPERATORS)


class CompiledStep:
    """Forward and backward of one batch size: reads `x`, `y` and the weights, writes the gradient.

    The caller fills `x` (batch, ...), `y` (batch, ...) and the other `inputs` of the loss, by name.
    `head` is the value of the loss's head after the last `run`.

    Args:
        graph: the loss's head.
        names: the engine's names of its parameters.
        x: for the inputs, (batch, ...).
        y: for the targets, (batch, ...).
        inputs: the other inputs of the loss, by name.
        vectors: weights, buffers and gradient.
        constants: the parameters that are in no vector, by the engine's name.
        paddings: those of the graph's parameters.
        views: the graph's other inputs that `x` makes, by name.
    """

    def __init__(
        self,
        graph: Any,
        names: dict[str, str],
        x: np.ndarray,
        y: np.ndarray,
        inputs: Mapping[str, np.ndarray],
        vectors: tuple[SharedVector, SharedVector, SharedVector],
        constants: Mapping[str, Any],
        paddings: Paddings,
        views: Mapping[str, Views],
    ):
        weights, buffers, gradient = vectors
        self.x, self.y = x, y
        known = {**weights.views, **buffers.views, **constants}
        numbers, slopes = {**weights.tensors(), **buffers.tensors()}, gradient.tensors()
        # Copies before and after the graph take less time than operators in it.
        self._padded: list[Place] = []  # its parameters and views, and the model's and the images
        self._cut: list[Place] = []  # the model's gradients, and its own
        arrays = {"data": share(self.x), LABEL: share(self.y)}
        gradients: dict[str, Any] = {}
        self.inputs: dict[str, np.ndarray] = {}
        for name in graph.list_arguments():
            if name in inputs:
                self.inputs[name] = inputs[name]
                arrays[name] = share(inputs[name])
            elif name in views:
                channels = aligned((len(x), *views[name].shape), x.dtype.name)
                arrays[name] = share(channels)
                self._padded += views[name].places(x, channels)
            elif name not in arrays:
                own = names[name]
                arrays[name] = known[own]
                if own in gradient.views:
                    gradients[name] = gradient.views[own]
                if name in paddings:
                    padding, shape = paddings[name], known[own].shape
                    arrays[name], inside = _among_zeros(padding, shape)
                    given = numbers[own] if own in numbers else known[own].asnumpy()
                    self._padded.append((inside, given))
                    if name in gradients:
                        gradients[name], inside = _among_zeros(padding, shape)
                        self._cut.append((slopes[own], inside))
        # MXNet writes no gradient of a parameter that the loss does not depend on.
        reached = {names[name] for name in gradients}
        self._absent = [
            gradient.array[one.start : one.stop]
            for one in gradient.layout
            if one.name not in reached
        ]
        statistics = {name: known[names[name]] for name in graph.list_auxiliary_states()}
        self._executor = graph.bind(
            mx.cpu(),
            arrays,
            args_grad=gradients,
            grad_req=dict.fromkeys(gradients, "write"),
            aux_states=statistics,
        )
        head = self._executor.outputs[0]
        self.head = np.zeros(head.shape, np.float32)
        self._handle = self._executor.handle
        self._head = head.handle
        self._head_output = head  # kept: its handle is used in every step
        self._address = self.head.ctypes.data_as(ctypes.c_void_p)
        self._elements = ctypes.c_size_t(head.size)

    def run(self) -> None:
        """Run one forward and one backward pass, and wait until MXNet has finished."""
        for part in self._absent:
            part[...] = 0
        for place, values in self._padded:
            place[...] = values
        # The executor's own methods create NDArrays each time, which takes a fifth of a step.
        if (
            _forward(self._handle, _YES)
            or _backward(self._handle, _NONE, None, _YES)
            or _copy(self._head, self._address, self._elements)
            or _wait()
        ):
            check_call(-1)  # raises MXNet's last error
        for gradient, inside in self._cut:
            gradient[...] = inside


def _among_zeros(padding: Padding, shape: tuple[int, ...]) -> tuple[Any, np.ndarray]:
    """Return an NDArray of zeros, and a view of the place of a parameter of this shape in it."""
    zeros = aligned(padding.whole)
    return share(zeros.reshape(padding.shape)), zeros[tuple(map(slice, shape))]


class _Scorer:
    """Inference with copies of the parameters; `_pairs` has each parameter and its copy."""

    _pairs: list[tuple[Any, Any]]

    def refresh(self) -> None:
        """Copy the current weights and buffers to the scorer's own parameters."""
        for view, copy in self._pairs:
            view.copyto(copy)
        mx.nd.waitall()


class CompiledScorer(_Scorer):
    """Inference of one batch size, with copies of the parameters.

    An inference pass converts weights to oneDNN's blocked layouts in place, which would destroy the
    flat vector. `copyto` refreshes the copies and respects layouts.
    """

    def __init__(
        self,
        output: Any,
        names: dict[str, str],
        x: np.ndarray,
        vectors: tuple[SharedVector, SharedVector],
        constants: Mapping[str, Any],
    ):
        self.x = x
        known = {**vectors[0].views, **vectors[1].views}
        self._pairs = []

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

    def run(self) -> list[np.ndarray]:
        """Return the outputs of the model and its layers, (batch, ...), for the inputs in `x`."""
        return [np.asarray(one.asnumpy()) for one in self._executor.forward(is_train=False)]


def settle_shapes(block: Any, x: np.ndarray) -> None:
    """Give every parameter of a block its shape, by one forward pass.

    Parameters start at zero, because zeros draw nothing from MXNet's random state.

    Raises:
        ComputeError: the block has several outputs.
    """
    for _, parameter in parameters(block):
        init = None if constant(parameter) else "zeros"
        parameter.initialize(init=init, ctx=mx.cpu(), force_reinit=True)
    with mx.autograd.pause(train_mode=False):
        output = block(mx.nd.array(x, dtype=x.dtype))
    if not isinstance(output, mx.nd.NDArray):
        raise ComputeError("the model has several outputs; it must have one, of shape (n, ...)")
    mx.nd.waitall()


def put_views(
    block: Any, weights: SharedVector, buffers: SharedVector, gradient: SharedVector
) -> None:
    """Make a block's parameters, buffers and gradients views of the flat vectors."""
    for name, parameter in parameters(block):
        if trainable(parameter):
            parameter._data = [weights.views[name]]
            parameter._grad = [gradient.views[name]]
            mx.autograd.mark_variables(parameter._data, parameter._grad, ["write"])
        elif not constant(parameter):
            parameter._data = [buffers.views[name]]


class ImperativeStep:
    """Forward and backward of one batch size through autograd; see `CompiledStep`.

    Args:
        layers: the layers of the model whose outputs the loss reads.
        head_of: returns the loss's head of the model's and the layers' outputs, the labels and the
            inputs.
        x: for the inputs, (batch, ...).
        y: for the targets, (batch, ...).
        inputs: the other inputs of the loss.
        gradient: is written.
    """

    def __init__(
        self,
        layers: Layers,
        head_of: Callable[[Sequence[Any], Any, Mapping[str, Any]], Any],
        x: np.ndarray,
        y: np.ndarray,
        inputs: Mapping[str, np.ndarray],
        gradient: SharedVector,
    ):
        self.x, self.y = x, y
        self.inputs = dict(inputs)
        self._gradient = gradient
        self.head = np.zeros(0, np.float32)
        self._layers = layers
        self._head_of = head_of
        self._shared = share(self.x), share(self.y)
        self._inputs = {name: share(array) for name, array in inputs.items()}

    def run(self) -> None:
        """Run one forward and one backward pass, and wait until MXNet has finished."""
        x, y = self._shared
        self._gradient.array[...] = 0  # of parameters that the loss does not depend on
        with mx.autograd.record():
            head = self._head_of(self._layers.outputs(mx.nd, x), y, self._inputs)
        head.backward()
        self.head = np.asarray(head.asnumpy(), np.float32)
        mx.nd.waitall()


class ImperativeScorer(_Scorer):
    """Inference with a separate block; see `CompiledScorer`."""

    def __init__(
        self,
        block: Any,
        layers: Layers,
        x: np.ndarray,
        weights: SharedVector,
        buffers: SharedVector,
    ):
        self.x = x
        self._layers = layers
        self._shared = share(self.x)
        known = {**weights.views, **buffers.views}
        self._pairs = [(known[name], p.data()) for name, p in parameters(block) if not constant(p)]

    def run(self) -> list[np.ndarray]:
        """Return the outputs of the model and its layers, (batch, ...), for the inputs in `x`."""
        return [np.asarray(one.asnumpy()) for one in self._layers.outputs(mx.nd, self._shared)]
