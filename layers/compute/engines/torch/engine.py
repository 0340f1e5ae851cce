"""The engine on PyTorch: a module on flat vectors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layers.compute.engines.architectures import Architecture, initial_values
from layers.compute.engines.definition import Definition
from layers.compute.engines.engine import Engine
from layers.compute.engines.layout import FlatVector, aligned, lay_out
from layers.compute.engines.objective import Objective
from layers.compute.engines.one_thread import OneThreadOfProcess
from layers.compute.engines.torch.modules import (
    Layers,
    buffers,
    constants,
    module_of,
    put_buffer,
    trainable,
)
from layers.compute.engines.torch.operators import Operators
from layers.compute.errors import ComputeError, one_line
from layers.compute.losses import Loss

OPERATORS = Operators()


class _TorchThread(OneThreadOfProcess):
    """A context in which PyTorch's operators have one thread, and only deterministic ones run."""

    def limit_process(self, before: list[int]) -> None:
        before += [torch.get_num_threads(), torch.get_deterministic_debug_mode()]
        # As `use_deterministic_algorithms(True)`, which first imports a compiler for seconds.
        torch.set_deterministic_debug_mode("error")

    def restore_process(self, before: list[int]) -> None:
        if len(before) == 2:
            torch.set_num_threads(before[0])
            torch.set_deterministic_debug_mode(before[1])

    def limit(self, before: list[int]) -> None:
        super().limit(before)
        torch.set_num_threads(1)  # in each thread, since OpenMP's number is the thread's own


@lru_cache(maxsize=1)
def one_thread() -> _TorchThread:
    """Return the context in which PyTorch's operators have one thread."""
    return _TorchThread()


class TorchEngine(Engine):
    """A module with its trainable parameters in a float32 vector (d,).

    Buffers (b,) are those of numbers that the module's `state_dict` has. Parameters without a
    gradient are in no vector, because they belong to the module that `build` returns: adapters of a
    frozen base send the adapters alone. `build` is called with PyTorch's random numbers seeded, so
    that every process builds the same module, with the initial values that the module draws.

    Args:
        build: returns a module, or an architecture; called more than once.
        example_shape: the shape of one input, without the batch.
        classes: how many classes there are.
        seed: for the initial weights, which are loaded.
        loss: what local training minimises; None: the model's own loss, which is that of its name
            in the module's attribute `loss`, or softmax without one. A loss `softmax` or `sigmoid`
            is the model's own.

    Raises:
        ComputeError: the module does not take such inputs, its outputs do not fit the loss, it has
            no trainable parameter, or the loss is unknown.
    """

    NAME = "torch"

    def __init__(
        self,
        build: Callable[[], Any],
        example_shape: tuple[int, ...],
        classes: int,
        *,
        seed: int = 0,
        loss: Loss | None = None,
    ):
        self._build = build
        one = one_thread()
        with one:
            self._module, self._drawn, dtype = self._built(seed, tuple(example_shape))
        super().__init__(one, self._module, example_shape, classes, dtype, seed, loss)
        self._check_output(self._output_shape())
        with one:
            layout = lay_out((n, tuple(p.shape)) for n, p in trainable(self._module))
            kept = lay_out((n, tuple(b.shape)) for n, b in buffers(self._module))
            self._hold(FlatVector(layout), FlatVector(kept), FlatVector(layout))
            self._put_views()
            self._checked(self.loss)
            self.load(*self.initial(seed))

    def initial(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return initial weights (d,) and buffers (b,), float32, equal in every process.

        Those of an architecture are the same on every engine; any other module draws its own.
        """
        with self._one_thread:
            module, drawn, _ = self._built(seed, self.example_shape)
            found = {name: one.detach().numpy() for name, one in trainable(module)}
            kept = [one.numpy().reshape(-1) for _, one in buffers(module)]
        if not drawn:
            found = initial_values({one.name: one.shape for one in self.layout}, seed)
        return (
            np.concatenate([found[one.name].reshape(-1) for one in self.layout]),
            np.concatenate([np.zeros(0, np.float32), *kept]),
        )

    @property
    def definition(self) -> Definition:
        """The model without its weights."""
        fixed = {name: one.numpy() for name, one in constants(self._module)}
        shapes = {tensor.name: tensor.shape for tensor in (*self.layout, *self.buffers_layout)}
        shapes |= {name: value.shape for name, value in fixed.items()}
        return Definition(shapes, fixed, self.example_shape, self._outputs)

    def names_in_pytorch(self) -> dict[str, str]:
        """Return the names in the module's `state_dict`, which are the engine's.

        Counters of BatchNorm, and another name of a shared tensor, are no tensors of the engine.
        """
        return {name: name for name in [*self.definition.shapes, *self._module.state_dict()]}

    def _built(self, seed: int, shape: tuple[int, ...]) -> tuple[nn.Module, bool, str]:
        """Return a new module, whether it draws its own values, and the dtype of its inputs."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_seed(seed))
            model = self._build()
            if isinstance(model, Architecture):
                return module_of(model, shape), False, "float32"
            if not isinstance(model, nn.Module):
                raise ComputeError(
                    f"the model is a {type(model).__name__}, not a module of PyTorch; use "
                    "compute.engine: mxnet for a Gluon block"
                )
            module = copy.deepcopy(model)  # `build` may return the same object again
            return module, True, _input_dtype(module, shape)

    def _output_shape(self) -> tuple[int, ...]:
        example = torch.zeros(2, *self.example_shape, dtype=getattr(torch, self.example_dtype))
        with self._one_thread, torch.no_grad():
            output = self._module.eval()(example)
        if not isinstance(output, Tensor):
            raise ComputeError(
                "the model has several outputs; it must have one, of shape (n, classes)"
            )
        return tuple(output.shape)

    def _put_views(self) -> None:
        """Make the module's parameters, gradients and buffers views of the flat vectors."""
        weights, gradient = self._weights.tensors(), self._gradient.tensors()
        with torch.no_grad():
            for name, parameter in trainable(self._module):
                parameter.data = torch.from_numpy(weights[name])
                parameter.grad = torch.from_numpy(gradient[name])
            for name, view in self._buffers.tensors().items():
                put_buffer(self._module, name, torch.from_numpy(view))

    def _step(self, objective: Objective, batch: int, inputs: Mapping[str, np.ndarray]) -> _Step:
        return _Step(self, objective, batch, inputs)

    def _scorer(self, batch: int, layers: tuple[str, ...]) -> _Scorer:
        return _Scorer(self, batch, layers)

    def _check_layers(self, layers: tuple[str, ...]) -> None:
        Layers(self._module, layers)

    def _draw_from(self, seed: int) -> None:
        torch.manual_seed(_seed(seed))


def _seed(seed: int) -> int:
    """Return a seed that PyTorch takes, from any whole number."""
    return int(np.random.SeedSequence(seed).generate_state(1)[0])


def _input_dtype(module: nn.Module, shape: tuple[int, ...]) -> str:
    """Return float32, or int64 if the module only takes whole numbers, such as tokens.

    Raises:
        ComputeError: it takes neither, in this shape.
    """
    reasons = []
    with torch.no_grad():
        for dtype in ("float32", "int64"):
            try:
                module.eval()(torch.zeros(2, *shape, dtype=getattr(torch, dtype)))
            except Exception as error:  # noqa: BLE001, whatever a user's module raises
                reasons.append(error)
            else:
                return dtype
    # A module of tokens says of numbers that they are no indices.
    tokens = "Expected tensor for argument #1 'indices'" in str(reasons[0])
    reason = reasons[1] if tokens else reasons[0]
    raise ComputeError(
        f"the model does not take inputs of shape {shape}: {one_line(reason)}"
    ) from reason


class _Step:
    """The forward and the backward pass of a batch size; see `Step`."""

    def __init__(
        self,
        engine: TorchEngine,
        objective: Objective,
        batch: int,
        inputs: Mapping[str, np.ndarray],
    ):
        self.x = aligned((batch, *engine.example_shape), engine.example_dtype)
        self.y = aligned((batch,))
        self.inputs = dict(inputs)
        self.head = np.zeros(0, np.float32)
        self._x, self._y = torch.from_numpy(self.x), torch.from_numpy(self.y)
        self._inputs = {name: torch.from_numpy(array) for name, array in inputs.items()}
        self._engine, self._objective = engine, objective
        self._layers = Layers(engine._module, objective.loss.layers)

    def run(self) -> None:
        """Write the gradient."""
        engine = self._engine
        if not engine._module.training:
            engine._module.train()
        engine._gradient.array[...] = 0  # the backward pass adds to it
        outputs = self._layers.outputs(self._x)
        head = self._objective.head(OPERATORS, outputs, self._y, self._inputs, len(self.x))
        head.backward(torch.ones_like(head))
        self.head = head.detach().numpy()


class _Scorer:
    """The inference of a batch size; see `Scorer`."""

    def __init__(self, engine: TorchEngine, batch: int, layers: tuple[str, ...]):
        self.x = aligned((batch, *engine.example_shape), engine.example_dtype)
        self._x = torch.from_numpy(self.x)
        self._engine = engine
        self._layers = Layers(engine._module, layers)

    def refresh(self) -> None:
        """Do nothing: the module has the engine's weights."""

    def run(self) -> list[np.ndarray]:
        """Return the outputs of the model and of its layers, each (batch, ...)."""
        if self._engine._module.training:
            self._engine._module.eval()
        with torch.no_grad():
            return [one.numpy() for one in self._layers.outputs(self._x)]
