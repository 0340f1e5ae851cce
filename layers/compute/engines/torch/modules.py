"""Modules: an architecture as one, and the tensors and layers of any."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from layers.compute.engines.architectures import (
    Architecture,
    Convolution,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPooling,
    Relu,
    output_shape,
)
from layers.compute.errors import ComputeError, unknown
from layers.compute.losses.loss import LAST


class _Dense(nn.Linear):
    def __init__(self, inputs: int, units: int, relu: bool):
        super().__init__(inputs, units)
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x.flatten(1))
        return torch.relu(y) if self.relu else y


class _Convolution(nn.Conv2d):
    def __init__(self, inputs: int, layer: Convolution):
        super().__init__(inputs, layer.channels, layer.size, padding=layer.padding)
        self.relu = layer.relu

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return torch.relu(y) if self.relu else y


def module_of(architecture: Architecture, example_shape: tuple[int, ...]) -> nn.Module:
    """Return an architecture as a module; the names of its tensors are those of the architecture.

    Raises:
        ComputeError: its layers do not take inputs of this shape.
    """
    architecture.shapes(example_shape)
    layers, shape = [], tuple(example_shape)
    for layer in architecture.layers:
        layers.append(_module(layer, shape))
        shape = output_shape(layer, shape)
    return nn.Sequential(*layers)


def _module(layer: Layer, shape: tuple[int, ...]) -> nn.Module:
    match layer:
        case Flatten():
            return nn.Flatten()
        case Relu():
            return nn.ReLU()
        case Dense(units=units, relu=relu):
            return _Dense(math.prod(shape), units, relu)
        case Convolution():
            return _Convolution(shape[0], layer)
        case MaxPooling(size=size):
            return nn.MaxPool2d(size)
        case Dropout(rate=rate, channels=channels):
            return nn.Dropout2d(rate) if channels else nn.Dropout(rate)


def trainable(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters that require a gradient, each with its first name."""
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            if parameter.dtype != torch.float32:
                raise ComputeError(f"parameter {name} is {parameter.dtype}: it must be float32")
            yield name, parameter


def buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the buffers of numbers that a file of the module has, such as BatchNorm's statistics.

    Raises:
        ComputeError: a BatchNorm counts its batches for a mean of all of them.
    """
    for name, one in module.named_modules():
        if (
            isinstance(one, nn.modules.batchnorm._NormBase)
            and one.track_running_stats
            and one.momentum is None
        ):
            raise ComputeError(
                f"layer {name} is a BatchNorm with momentum=None, whose count of batches is no "
                "part of an update; give it a momentum, such as 0.1"
            )
    kept = module.state_dict()
    for name, buffer in module.named_buffers():
        if name in kept and buffer.dtype == torch.float32:
            yield name, buffer


def constants(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters without a gradient, such as a frozen base; every process builds them."""
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            yield name, parameter


def put_buffer(module: nn.Module, name: str, view: Tensor) -> None:
    """Replace a buffer of a module by a view, with the same value."""
    path, _, own = name.rpartition(".")
    view.copy_(module.get_buffer(name))
    module.get_submodule(path)._buffers[own] = view


class Layers:
    """A module, and layers of it by their names, such as "features.3".

    Args:
        module: the model.
        names: the layers; `LAST` is the input of the last layer that has trainable parameters.

    Raises:
        ComputeError: the module has no such layer.
    """

    def __init__(self, module: nn.Module, names: Sequence[str]):
        self._module = module
        self._layers = [self._found(name) for name in names]

    def outputs(self, x: Tensor, weights: dict[str, Tensor] | None = None) -> list[Tensor]:
        """Return the model's output, then that of each layer, flattened to (n, values).

        Args:
            x: the inputs, (n, ...).
            weights: the tensors to use instead of the module's parameters, by name.

        Raises:
            ComputeError: the model does not use one of the layers.
        """
        taken: dict[int, Tensor] = {}
        handles = []
        for index, (layer, takes_input) in enumerate(self._layers):

            def take(_layer: Any, inputs: Any, *outputs: Any, index: int = index) -> None:
                taken[index] = outputs[0] if outputs else inputs[0]

            register: Any = (
                layer.register_forward_pre_hook if takes_input else layer.register_forward_hook
            )
            handles.append(register(take))
        try:
            output: Tensor = (
                self._module(x) if weights is None else functional_call(self._module, weights, (x,))
            )
        finally:
            for handle in handles:
                handle.remove()
        if len(taken) < len(self._layers):
            raise ComputeError("a layer that the loss reads is not used by the model")
        return [output, *(taken[index].flatten(1) for index in range(len(self._layers)))]

    def _found(self, name: str) -> tuple[nn.Module, bool]:
        """Return a layer, and whether its input is meant instead of its output."""
        layers = dict(self._module.named_modules())
        if name == LAST:
            *_, last = (
                layer
                for layer in layers.values()
                if any(parameter.requires_grad for parameter in layer.parameters(recurse=False))
            )
            return last, True
        if name not in layers:
            raise ComputeError(unknown("layer of the model", name, [one for one in layers if one]))
        return layers[name], False
