"""The engine on MXNet: a Gluon model on flat vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import mxnet as mx
import numpy as np

from layers.compute.data.targets import Targets
from layers.compute.engines.engine import Engine
from layers.compute.engines.graphs import Scorer, Step
from layers.compute.engines.layout import aligned, lay_out
from layers.compute.engines.mxnet.execution import (
    LABEL,
    CompiledScorer,
    CompiledStep,
    ImperativeScorer,
    ImperativeStep,
    has_random,
    put_views,
    settle_shapes,
    trace,
)
from layers.compute.engines.mxnet.exported_graph import Graph
from layers.compute.engines.mxnet.layers import Layers
from layers.compute.engines.mxnet.models import as_block
from layers.compute.engines.mxnet.parameters import (
    Definition,
    SharedVector,
    constant,
    draw,
    parameters,
    seed_mxnet,
    trainable,
)
from layers.compute.engines.mxnet.rewriting import Paddings, Views, training_graph
from layers.compute.engines.mxnet.runtime import one_thread
from layers.compute.engines.mxnet.to_torch import torch_module
from layers.compute.engines.objective import Objective
from layers.compute.errors import ComputeError
from layers.compute.losses import Loss


class MXNetEngine(Engine):
    """A Gluon model with its trainable parameters in a float32 vector (d,).

    A `mx.gluon.Constant` is in no vector, because it belongs to the model that `build` returns.

    Args:
        build: returns a new block, or an architecture; called more than once.
        example_shape: the shape of one input, without the batch.
        targets: what the model learns to give; a number: classes.
        example_dtype: the dtype of the model's inputs.
        seed: for the initial weights, which are loaded.
        loss: what local training minimises; None: the model's own loss, which is that of its name
            in the block's attribute `loss`, or softmax without one. A loss `softmax` or `sigmoid`
            is the model's own.

    Raises:
        ComputeError: the block does not take such inputs, its outputs do not fit the loss, it has
            no trainable parameter, or the loss is unknown.
    """

    name = "mxnet"
    _weights: SharedVector
    _buffers: SharedVector
    _gradient: SharedVector

    def __init__(
        self,
        build: Callable[[], Any],
        example_shape: tuple[int, ...],
        targets: Targets | int,
        *,
        example_dtype: str = "float32",
        seed: int = 0,
        loss: Loss | None = None,
    ):
        self._build: Callable[[], Any] = lambda: as_block(build())
        one = one_thread()
        with one:  # building a model with constants already runs operators
            self._block = self._build()
        if not isinstance(self._block, mx.gluon.Block):
            raise ComputeError(f"the model is a {type(self._block).__name__}, not a gluon Block")
        super().__init__(one, self._block, example_shape, targets, example_dtype, seed, loss)
        with one:
            self._output = self._trace()
        self._random = self._output is None or has_random(self._output)
        named = parameters(self._block)
        self._parameters = {n: p for n, p in named if not constant(p)}
        self._constants = {n: mx.nd.array(p.value) for n, p in named if constant(p)}
        self._names = {parameter.name: name for name, parameter in named}
        layout = lay_out((n, p.shape) for n, p in named if trainable(p))
        buffers = lay_out((n, p.shape) for n, p in self._parameters.items() if not trainable(p))
        self._hold(SharedVector(layout), SharedVector(buffers), SharedVector(layout))
        if self._output is None:
            put_views(self._block, self._weights, self._buffers, self._gradient)
        self._tapped: dict[tuple[str, ...], Any] = {(): self._output}
        self._training_graphs: dict[tuple[str, ...], tuple[Any, Paddings, dict[str, Views]]] = {}
        self._checked(self.loss)
        self.load(*self.initial(seed))

    @property
    def definition(self) -> Definition:
        """The model without its weights, with its graph for export."""
        constants = {name: value.asnumpy() for name, value in self._constants.items()}
        shapes = {tensor.name: tensor.shape for tensor in (*self.layout, *self.buffers_layout)}
        return Definition(
            {**shapes, **{name: value.shape for name, value in constants.items()}},
            constants,
            self.example_shape,
            self._outputs,
            self._output,
            self._names,
        )

    @property
    def takes_tokens(self) -> bool:
        """Whether the model's inputs are whole numbers that it looks up."""
        return self._output is not None and Graph.of(self.definition).takes_tokens

    def names_in_pytorch(self) -> dict[str, str]:
        """Return the engine's name of each tensor in a PyTorch file, by its name there.

        A counter, which the engine does not have, has its own name. Without a translation of the
        model, the names are the engine's.
        """
        try:
            module = torch_module(self.definition)
        except ComputeError:
            return super().names_in_pytorch()
        return {**module.tensors, **{name: name for name in module.counters}}

    def initial(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return initial weights (d,) and buffers (b,), float32, equal in every process.

        A parameter with an initialiser is drawn by it. Others follow Gluon's rules, except that
        weights are drawn by Xavier (Glorot & Bengio 2010).
        """
        values = {
            name: draw(parameter, name, seed, index)
            for index, (name, parameter) in enumerate(self._parameters.items())
        }
        empty = [np.zeros(0, np.float32)]
        return (
            np.concatenate([values[t.name].reshape(-1) for t in self.layout]),
            np.concatenate(empty + [values[t.name].reshape(-1) for t in self.buffers_layout]),
        )

    def _trace(self) -> Any:
        """Return the model as a symbol with known shapes, or None if it cannot be traced."""
        example = np.zeros((2, *self.example_shape), self.example_dtype)
        try:
            output = trace(self._block)
        except ComputeError:
            output = None
        try:
            if output is None:
                settle_shapes(self._block, example)
                with mx.autograd.pause(train_mode=False):
                    shape = self._block(mx.nd.array(example, dtype=example.dtype)).shape
            else:
                # MXNet prints its arguments before it raises an error.
                with redirect_stdout(StringIO()):
                    given, (shape,), statistics = output.infer_shape(data=example.shape)
                shapes = dict(zip(output.list_arguments(), given, strict=True))
                shapes.update(zip(output.list_auxiliary_states(), statistics, strict=True))
                for _, parameter in parameters(self._block):
                    if parameter.name in shapes:
                        parameter.shape = shapes[parameter.name]
        except ComputeError:
            raise
        except Exception as error:
            reason = str(error).strip().splitlines()[-1]
            raise ComputeError(
                f"the model does not take inputs of shape {self.example_shape}: {reason}"
            ) from error
        self._check_output(tuple(shape))
        return output

    def _draw_from(self, seed: int) -> None:
        if self._random:
            with self._one_thread:
                seed_mxnet(seed)

    def _check_layers(self, layers: tuple[str, ...]) -> None:
        Layers(self._block, layers)

    def _step(self, objective: Objective, batch: int, inputs: Mapping[str, np.ndarray]) -> Step:
        x = aligned((batch, *self.example_shape), self.example_dtype)
        y = aligned((batch, *self.targets.shape))
        layers = objective.loss.layers
        if self._output is None:
            return ImperativeStep(
                Layers(self._block, layers),
                lambda outputs, y, others: objective.head(mx.nd, outputs, y, others, batch),
                x,
                y,
                inputs,
                self._gradient,
            )
        outputs, paddings, views = self._training_graph(layers)
        variables = {name: mx.sym.var(name) for name in inputs}
        graph = objective.head(mx.sym, list(outputs), mx.sym.var(LABEL), variables, batch)
        vectors = self._weights, self._buffers, self._gradient
        return CompiledStep(
            graph, self._names, x, y, inputs, vectors, self._constants, paddings, views
        )

    def _training_graph(self, layers: tuple[str, ...]) -> tuple[Any, Paddings, dict[str, Views]]:
        """Return the graph of the model's output and of those of layers, for training."""
        if layers not in self._training_graphs:
            known = {**self._weights.views, **self._buffers.views, **self._constants}
            shapes = {name: known[own].shape for name, own in self._names.items() if own in known}
            graph = training_graph(self._traced(layers), shapes, self.example_shape)
            self._training_graphs[layers] = graph
        return self._training_graphs[layers]

    def _traced(self, layers: tuple[str, ...]) -> Any:
        """Return the graph of the model's output and of those of layers."""
        if layers not in self._tapped:
            self._tapped[layers] = trace(self._block, Layers(self._block, layers))
        return self._tapped[layers]

    def _scorer(self, batch: int, layers: tuple[str, ...]) -> Scorer:
        x = aligned((batch, *self.example_shape), self.example_dtype)
        if self._output is None:
            block = self._build()
            settle_shapes(block, x)
            return ImperativeScorer(block, Layers(block, layers), x, self._weights, self._buffers)
        vectors = self._weights, self._buffers
        return CompiledScorer(self._traced(layers), self._names, x, vectors, self._constants)
