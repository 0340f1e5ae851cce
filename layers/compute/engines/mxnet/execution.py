"""Forward and backward passes of one batch size: compiled, or through autograd.

A HybridBlock is traced, and runs with its loss as one bound graph over the flat vectors. A block
that cannot be traced runs through autograd, which is slower.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call

from layers.compute.engines.mxnet.parameters import (
    FlatVector,
    aligned,
    constant,
    parameters,
    share,
    trainable,
)
from layers.compute.engines.mxnet.training import Loss
from layers.compute.errors import ComputeError

_RANDOM_OPERATORS = ("dropout", "random", "sample", "shuffle", "rnn", "leakyrelu")

_YES, _NONE = ctypes.c_int(1), ctypes.c_uint(0)


def trace(block: Any) -> Any:
    """Return the block's output as a symbol of "data".

    Raises:
        ComputeError: the block cannot be traced because its forward pass is plain Python, or it has
            several outputs.
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
    """Return whether a graph draws random numbers in training."""
    nodes = json.loads(symbol.tojson())["nodes"]
    return any(word in node["op"].lower() for node in nodes for word in _RANDOM_OPERATORS)


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
        """Run one forward and one backward pass, and wait until MXNet has finished."""
        # The executor's own methods create NDArrays each time, which takes a fifth of a step.
        check_call(
            _LIB.MXExecutorForward(self._handle, _YES)
            or _LIB.MXExecutorBackwardEx(self._handle, _NONE, None, _YES)
            or _LIB.MXNDArraySyncCopyToCPU(self._head, self._address, self._elements)
            or _LIB.MXNDArrayWaitAll()
        )


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
        vectors: tuple[FlatVector, FlatVector],
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

    def run(self) -> np.ndarray:
        """Return the model's outputs, (batch, outputs), for the inputs in `x`."""
        return np.asarray(self._executor.forward(is_train=False)[0].asnumpy())


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
        """Run one forward and one backward pass, and wait until MXNet has finished."""
        x, y = self._shared
        with mx.autograd.record():
            head = self._loss.head(mx.nd, self._block(x), y, len(self.y))
        head.backward()
        self.probabilities[...] = head.asnumpy().reshape(self.probabilities.shape)
        mx.nd.waitall()


class ImperativeScorer(_Scorer):
    """Inference with a separate block; see `CompiledScorer`."""

    def __init__(self, block: Any, x: np.ndarray, weights: FlatVector, buffers: FlatVector):
        self.x = x
        self._block = block
        self._shared = share(self.x)
        known = {**weights.views, **buffers.views}
        self._pairs = [(known[name], p.data()) for name, p in parameters(block) if not constant(p)]

    def run(self) -> np.ndarray:
        """Return the model's outputs, (batch, outputs), for the inputs in `x`."""
        return np.asarray(self._block(self._shared).asnumpy())


T = TypeVar("T")

_here = threading.local()


def _this_thread() -> object:
    """Return an object that only this thread has; thread numbers are reused after a thread ends."""
    try:
        mark: object = _here.mark
    except AttributeError:
        mark = _here.mark = object()
    return mark


class GraphCache(Generic[T]):
    """The most recently used graphs, one for each batch size.

    The memory of a bound graph grows with its batch size, so the batch sizes in the cache add up to
    at most `rows` samples, or twice the largest batch if that is more.

    MXNet keeps scratch memory and random states for each thread, and a graph must run in the thread
    that made it. So a change of thread empties the cache.
    """

    def __init__(self, make: Callable[[int], T], rows: int):
        self._make = make
        self._rows = rows
        self._made: OrderedDict[int, T] = OrderedDict()
        self._thread: object = None

    def __getitem__(self, size: int) -> T:
        """Return the graph of this batch size, and make it if it is not in the cache."""
        thread = _this_thread()
        if thread is not self._thread:
            self._made.clear()
            self._thread = thread
        made = self._made.get(size)
        if made is not None:
            self._made.move_to_end(size)
            return made
        made = self._made[size] = self._make(size)
        while len(self._made) > 1 and sum(self._made) > max(self._rows, 2 * max(self._made)):
            self._made.popitem(last=False)
        return made
