"""The engine on PyTorch: a module on flat vectors."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layers.compute.data.targets import Targets
from layers.compute.engines.architectures import Architecture, initial_values
from layers.compute.engines.definition import Definition
from layers.compute.engines.engine import Engine
from layers.compute.engines.layout import FlatVector, aligned, lay_out
from layers.compute.engines.objective import Objective
from layers.compute.engines.one_thread import OneThreadOfProcess
from layers.compute.engines.torch.device import OnDevice, device_of, name_of
from layers.compute.engines.torch.modules import (
    Layers,
    buffers,
    constants,
    module_of,
    put_buffer,
    trainable,
)
from layers.compute.engines.torch.operators import losses_of
from layers.compute.errors import ComputeError, one_line
from layers.compute.losses import Loss


class _TorchThread(OneThreadOfProcess):
    """A context in which PyTorch's operators have one thread.

    Args:
        mode: whether operators that are not deterministic are an "error", or only "warn".
    """

    def __init__(self, mode: str) -> None:
        super().__init__()
        self._mode = mode

    def limit_process(self, before: list[int]) -> None:
        before += [torch.get_num_threads(), torch.get_deterministic_debug_mode()]
        # As `use_deterministic_algorithms(True)`, which first imports a compiler for seconds.
        torch.set_deterministic_debug_mode(self._mode)

    def restore_process(self, before: list[int]) -> None:
        if len(before) == 2:
            torch.set_num_threads(before[0])
            torch.set_deterministic_debug_mode(before[1])

    def limit(self, before: list[int]) -> None:
        super().limit(before)
        torch.set_num_threads(1)  # in each thread, since OpenMP's number is the thread's own


@lru_cache(maxsize=2)
def one_thread(mode: str = "error") -> _TorchThread:
    """Return the context in which PyTorch's operators have one thread."""
    return _TorchThread(mode)


class TorchEngine(Engine):
    """A module with its trainable parameters in a float32 vector (d,).

    Buffers (b,) are those of numbers that the module's `state_dict` has. Parameters without a
    gradient are in no vector, because they belong to the module that `build` returns: adapters of a
    frozen base send the adapters alone. `build` is called with PyTorch's random numbers seeded, so
    that every process builds the same module, with the initial values that the module draws.

    Args:
        build: returns a module, or an architecture; called more than once.
        example_shape: the shape of one input, without the batch.
        targets: what the model learns to give; a number: classes.
        seed: for the initial weights, which are loaded.
        loss: what local training minimises; None: the model's own loss, which is that of its name
            in the module's attribute `loss`, or softmax without one. A loss `softmax` or `sigmoid`
            is the model's own.
        device: where the operators run, by PyTorch's name, such as "cuda". On a GPU, steps need not
            have the same bits again, and an operator that is not deterministic only warns.
        precision: "float32", or "bf16" for training under PyTorch's autocast to bfloat16; weights,
            gradients, the loss and inference are float32.

    Raises:
        ComputeError: the module does not take such inputs, its outputs do not fit the loss, it has
            no trainable parameter, the loss is unknown, or there is no such device.
    """

    name = "torch"

    def __init__(
        self,
        build: Callable[[], Any],
        example_shape: tuple[int, ...],
        targets: Targets | int,
        *,
        seed: int = 0,
        loss: Loss | None = None,
        device: str = "cpu",
        precision: str = "float32",
    ):
        self._bf16 = precision == "bf16"
        self._build = build
        self._device = device_of(device)
        if self._device.type == "cuda":  # read when CUDA starts; cuBLAS is deterministic with it
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.backends.cudnn.allow_tf32 = False  # convolutions in float32, as on the CPU
        one = one_thread("warn" if self._device.type == "cuda" else "error")
        with one:
            self._module, self._drawn, dtype = self._built(seed, tuple(example_shape))
            self._module.to(self._device)
        super().__init__(one, self._module, example_shape, targets, dtype, seed, loss)
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
        fixed = {name: one.cpu().numpy() for name, one in constants(self._module)}
        shapes = {tensor.name: tensor.shape for tensor in (*self.layout, *self.buffers_layout)}
        shapes |= {name: value.shape for name, value in fixed.items()}
        return Definition(shapes, fixed, self.example_shape, self._outputs)

    @property
    def device(self) -> str:
        """The name of the device, with that of its hardware."""
        return name_of(self._device)

    def names_in_pytorch(self) -> dict[str, str]:
        """Return the names in the module's `state_dict`, which are the engine's.

        Counters of BatchNorm, and another name of a shared tensor, are no tensors of the engine.
        """
        return {name: name for name in [*self.definition.shapes, *self._module.state_dict()]}

    def values(self) -> dict[str, np.ndarray]:
        """Return the module's `state_dict`, which also has counters, by name."""
        self._send()
        return {name: one.cpu().numpy() for name, one in self._module.state_dict().items()}

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
        dtype = getattr(torch, self.example_dtype)
        with self._one_thread, torch.no_grad():
            example = torch.zeros(2, *self.example_shape, dtype=dtype, device=self._device)
            output = self._module.eval()(example)
        if not isinstance(output, Tensor):
            raise ComputeError("the model has several outputs; it must have one, of shape (n, ...)")
        return tuple(output.shape)

    def autocast(self) -> torch.autocast:
        """Return the context in which a step computes in bfloat16."""
        return torch.autocast(self._device.type, torch.bfloat16)

    def _put_views(self) -> None:
        """Make the module's parameters, gradients and buffers views of vectors on the device."""
        self._of_weights, self._of_gradient, self._of_buffers = (
            OnDevice(vector.array, self._device)
            for vector in (self._weights, self._gradient, self._buffers)
        )
        weights, gradient = (of.views(self.layout) for of in (self._of_weights, self._of_gradient))
        with torch.no_grad():
            for name, parameter in trainable(self._module):
                parameter.data = weights[name]
                parameter.grad = gradient[name]
            for name, view in self._of_buffers.views(self.buffers_layout).items():
                put_buffer(self._module, name, view)

    def _send(self) -> None:
        """Give the module the loaded weights and buffers."""
        self._of_weights.send()
        self._of_buffers.send()

    def _step(self, objective: Objective, batch: int, inputs: Mapping[str, np.ndarray]) -> _Step:
        return _Step(self, objective, batch, inputs)

    def _reported(self, loss: Loss) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        return lambda losses, y: losses.astype(np.float64)

    def _scorer(self, batch: int, layers: tuple[str, ...]) -> _Scorer:
        return _Scorer(self, batch, layers)

    def _check_layers(self, layers: tuple[str, ...]) -> None:
        Layers(self._module, layers)

    def _draw_from(self, seed: int) -> None:
        # As `torch.manual_seed`, which notes the call stack for devices that are not used.
        torch.default_generator.manual_seed(_seed(seed))
        if self._device.type == "cuda":
            torch.cuda.manual_seed(_seed(seed))


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
        self.y = aligned((batch, *engine.targets.shape))
        self.inputs = dict(inputs)
        self.head = np.zeros(0, np.float32)
        self._x, self._y = (OnDevice(array, engine._device) for array in (self.x, self.y))
        self._inputs = {name: OnDevice(one, engine._device) for name, one in inputs.items()}
        self._engine, self._objective = engine, objective
        self._layers = Layers(engine._module, objective.loss.layers)
        self._shares = torch.full((batch,), 1 / batch, device=engine._device)

    def run(self) -> None:
        """Write the gradient."""
        engine = self._engine
        if not engine._module.training:
            engine._module.train()
        engine._send()
        for given in (self._x, self._y, *self._inputs.values()):
            given.send()
        inputs = {name: one.tensor for name, one in self._inputs.items()}
        engine._of_gradient.tensor.zero_()  # the backward pass adds to it
        try:
            with engine.autocast() if engine._bf16 else nullcontext():
                outputs = self._layers.outputs(self._x.tensor)
        except ValueError as error:  # as BatchNorm raises for a single value of a channel
            raise ComputeError(
                f"the model cannot train on a mini-batch of {len(self.x)}: {one_line(error)}"
            ) from error
        outputs = [one.float() for one in outputs] if engine._bf16 else outputs
        losses = losses_of(self._objective, outputs, self._y.tensor, inputs)
        losses.backward(self._shares)
        engine._of_gradient.fetch()
        engine._of_buffers.fetch()
        self.head = losses.detach().cpu().numpy()


class _Scorer:
    """The inference of a batch size; see `Scorer`."""

    def __init__(self, engine: TorchEngine, batch: int, layers: tuple[str, ...]):
        self.x = aligned((batch, *engine.example_shape), engine.example_dtype)
        self._x = OnDevice(self.x, engine._device)
        self._engine = engine
        self._layers = Layers(engine._module, layers)

    def refresh(self) -> None:
        """Give the module the engine's weights."""
        self._engine._send()

    def run(self) -> list[np.ndarray]:
        """Return the outputs of the model and of its layers, each (batch, ...)."""
        if self._engine._module.training:
            self._engine._module.eval()
        self._x.send()
        with torch.no_grad():
            return [one.cpu().numpy() for one in self._layers.outputs(self._x.tensor)]
