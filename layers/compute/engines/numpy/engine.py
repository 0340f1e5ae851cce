"""The engine on numpy: an architecture on flat vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from layers.compute.data.targets import Targets
from layers.compute.engines.architectures import Architecture, initial_values
from layers.compute.engines.definition import Definition
from layers.compute.engines.engine import Engine
from layers.compute.engines.layout import FlatVector, aligned, lay_out
from layers.compute.engines.numpy.network import OPERATORS, Network
from layers.compute.engines.numpy.operators import Node, backward
from layers.compute.engines.objective import Objective
from layers.compute.engines.one_thread import OneThreadOfProcess, limit_libraries, restore_libraries
from layers.compute.errors import ComputeError
from layers.compute.losses import Loss

QUIET: np.errstate[Any] = np.errstate(over="ignore", invalid="ignore", divide="ignore")
"""Losses and updates that are not finite are reported; a warning says no more."""


class _BlasThread(OneThreadOfProcess):
    """A context in which numpy's BLAS has one thread."""

    def __init__(self) -> None:
        from threadpoolctl import ThreadpoolController

        super().__init__()
        self._libraries = list(ThreadpoolController().select(user_api="blas").lib_controllers)

    def limit_process(self, before: list[int]) -> None:
        limit_libraries(self._libraries, before)

    def restore_process(self, before: list[int]) -> None:
        restore_libraries(self._libraries, before)


@lru_cache(maxsize=1)
def one_thread() -> _BlasThread:
    """Return the context in which numpy's BLAS has one thread."""
    return _BlasThread()


class NumpyEngine(Engine):
    """An architecture with its parameters in a float32 vector (d,); there are no buffers.

    Args:
        build: returns the architecture.
        example_shape: the shape of one input, without the batch.
        targets: what the model learns to give; a number: classes.
        seed: for the initial weights, which are loaded.
        loss: what local training minimises; None: softmax cross-entropy.

    Raises:
        ComputeError: the model is no architecture, does not take such inputs, or its outputs do not
            fit the loss.
    """

    name = "numpy"

    def __init__(
        self,
        build: Callable[[], Any],
        example_shape: tuple[int, ...],
        targets: Targets | int,
        *,
        seed: int = 0,
        loss: Loss | None = None,
    ):
        model = build()
        if not isinstance(model, Architecture):
            raise ComputeError(
                f"the model is a {type(model).__name__}, and the engine numpy has named models "
                "alone; use compute.engine: mxnet for a Gluon block, torch for a module of PyTorch"
            )
        super().__init__(one_thread(), model, example_shape, targets, "float32", seed, loss)
        shapes = model.shapes(self.example_shape)
        self._check_output((2, *model.outputs(self.example_shape)))
        self._network = Network(model)
        self._rng = np.random.default_rng(seed)
        layout = lay_out(shapes.items())
        self._hold(FlatVector(layout), FlatVector(()), FlatVector(layout))
        self._checked(self.loss)
        self.load(*self.initial(seed))

    def initial(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return initial weights (d,) and no buffers (0,), float32, equal in every process."""
        values = initial_values({one.name: one.shape for one in self.layout}, seed)
        return np.concatenate([one.reshape(-1) for one in values.values()]), np.zeros(0, np.float32)

    @property
    def definition(self) -> Definition:
        shapes = {tensor.name: tensor.shape for tensor in self.layout}
        return Definition(shapes, {}, self.example_shape, self._outputs)

    def _step(self, objective: Objective, batch: int, inputs: Mapping[str, np.ndarray]) -> _Step:
        return _Step(self, objective, batch, inputs)

    def _scorer(self, batch: int, layers: tuple[str, ...]) -> _Scorer:
        return _Scorer(self, batch, layers)

    def _check_layers(self, layers: tuple[str, ...]) -> None:
        for name in layers:
            self._network.index(name)

    def _draw_from(self, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 1])  # not the stream that shuffles


class _Step:
    """The forward and the backward pass of a batch size; see `Step`."""

    def __init__(
        self,
        engine: NumpyEngine,
        objective: Objective,
        batch: int,
        inputs: Mapping[str, np.ndarray],
    ):
        self.x, self.y = (
            aligned((batch, *shape)) for shape in (engine.example_shape, engine.targets.shape)
        )
        self.inputs = dict(inputs)
        self.head = np.zeros(0, np.float32)
        self._engine, self._objective = engine, objective

    @QUIET
    def run(self) -> None:
        """Write the gradient."""
        engine, objective = self._engine, self._objective
        tensors = {
            name: Node(array, leaf=True) for name, array in engine._weights.tensors().items()
        }
        layers = objective.loss.layers
        outputs = engine._network.outputs(self.x, tensors, layers, engine._rng)
        inputs = {name: Node(array) for name, array in self.inputs.items()}
        head = objective.head(OPERATORS, outputs, Node(self.y), inputs, len(self.x))
        backward(head)
        for name, into in engine._gradient.tensors().items():
            found = tensors[name].gradient
            into[...] = 0 if found is None else found
        self.head = head.array


class _Scorer:
    """The inference of a batch size; see `Scorer`."""

    def __init__(self, engine: NumpyEngine, batch: int, layers: tuple[str, ...]):
        self.x = aligned((batch, *engine.example_shape))
        self._engine, self._layers = engine, layers

    def refresh(self) -> None:
        """Do nothing: each run reads the engine's weights."""

    @QUIET
    def run(self) -> list[np.ndarray]:
        """Return the outputs of the model and of its layers, each (batch, ...)."""
        engine = self._engine
        tensors = {name: Node(array) for name, array in engine._weights.tensors().items()}
        return [one.array for one in engine._network.outputs(self.x, tensors, self._layers, None)]
