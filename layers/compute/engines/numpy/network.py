"""An architecture's layers on arrays, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from layers.compute.engines.architectures import (
    Architecture,
    Convolution,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPooling,
    Relu,
)
from layers.compute.engines.numpy.operators import Node, Operators
from layers.compute.errors import ComputeError, unknown
from layers.compute.losses.loss import LAST

OPERATORS = Operators()


class Network:
    """An architecture.

    Args:
        architecture: the layers.
    """

    def __init__(self, architecture: Architecture):
        self._layers = architecture.layers
        self._last = max(
            (i for i, one in enumerate(self._layers) if isinstance(one, Dense | Convolution)),
            default=0,
        )

    def index(self, name: str) -> int:
        """Return after how many layers the output of the layer `name` is there.

        Raises:
            ComputeError: there is no such layer.
        """
        if name == LAST:
            return self._last
        names = [str(index) for index in range(len(self._layers))]
        if name not in names:
            raise ComputeError(unknown("layer of the model", name, names))
        return int(name) + 1

    def outputs(
        self,
        x: np.ndarray,
        tensors: Mapping[str, Node],
        layers: Sequence[str],
        rng: np.random.Generator | None,
    ) -> list[Node]:
        """Return the model's output, then that of each of the layers, flattened to (n, values).

        Args:
            x: the inputs, (n, ...).
            tensors: the parameters by name.
            layers: the names of layers.
            rng: draws for dropout; None: there is no dropout.
        """
        values = [Node(x)]
        for number, layer in enumerate(self._layers):
            values.append(_applied(layer, values[-1], tensors, str(number), rng))
        return [values[-1], *(_flat(values[self.index(name)]) for name in layers)]


def _applied(
    layer: Layer, x: Node, tensors: Mapping[str, Node], name: str, rng: np.random.Generator | None
) -> Node:
    """Return the output of a layer, with its activation."""
    match layer:
        case Flatten():
            return _flat(x)
        case Relu():
            return OPERATORS.relu(x)
        case Dense(relu=relu):
            y = _dense(_flat(x), tensors[f"{name}.weight"], tensors[f"{name}.bias"])
            return OPERATORS.relu(y) if relu else y
        case Convolution(padding=padding, relu=relu):
            y = _convolution(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"], padding)
            return OPERATORS.relu(y) if relu else y
        case MaxPooling(size=size):
            return _max_pooling(x, size)
        case Dropout(rate=rate, channels=channels):
            if rng is None:
                return x
            shape = x.array.shape[:2] + (1,) * (x.array.ndim - 2) if channels else x.array.shape
            kept = rng.random(shape, np.float32) >= rate
            return x * (kept * np.float32(1 / (1 - rate)))


def _flat(x: Node) -> Node:
    return x if x.array.ndim == 2 else OPERATORS.reshape(x, (len(x.array), -1))


def _dense(x: Node, weight: Node, bias: Node) -> Node:
    return Node(
        x.array @ weight.array.T + bias.array,
        (x, lambda g: g @ weight.array),
        (weight, lambda g: g.T @ x.array),
        (bias, lambda g: g.sum(axis=0)),
    )


def _convolution(x: Node, weight: Node, bias: Node, padding: int) -> Node:
    """Return the convolution (n, channels, h, w) as one product of matrices (im2col)."""
    edge = (padding, padding)
    padded = np.pad(x.array, ((0, 0), (0, 0), edge, edge)) if padding else x.array
    channels, *_, size = weight.array.shape
    axes: Any = (2, 3)  # numpy 1.23 types it as one number
    windows = sliding_window_view(padded, (size, size), axis=axes)
    n, _, height, width = windows.shape[:4]
    # One row for each place, with the values below the kernel: channel, row, column.
    rows = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * height * width, -1)
    kernel = weight.array.reshape(channels, -1)

    def by_place(g: np.ndarray) -> np.ndarray:
        return g.transpose(0, 2, 3, 1).reshape(-1, channels)

    def to_x(g: np.ndarray) -> np.ndarray:
        parts = (by_place(g) @ kernel).reshape(n, height, width, -1, size, size)
        whole = np.zeros((n, *padded.shape[2:], padded.shape[1]), np.float32)
        for i in range(size):
            for j in range(size):
                whole[:, i : i + height, j : j + width] += parts[..., i, j]
        inner = slice(padding, -padding or None)
        return whole[:, inner, inner].transpose(0, 3, 1, 2)

    return Node(
        (rows @ kernel.T + bias.array).reshape(n, height, width, channels).transpose(0, 3, 1, 2),
        (x, to_x),
        (weight, lambda g: (by_place(g).T @ rows).reshape(weight.array.shape)),
        (bias, lambda g: by_place(g).sum(axis=0)),
    )


def _max_pooling(x: Node, size: int) -> Node:
    """Return the maxima; the gradient goes to the first one of each square."""
    height, width = (side // size * size for side in x.array.shape[2:])
    places = [
        (..., slice(i, height, size), slice(j, width, size))
        for i in range(size)
        for j in range(size)
    ]
    value = x.array[places[0]]
    for place in places[1:]:
        value = np.maximum(value, x.array[place])

    def back(g: np.ndarray) -> np.ndarray:
        whole = np.zeros_like(x.array)
        free = np.ones(value.shape, bool)
        for place in places:
            here = free & (x.array[place] == value)
            whole[place] = g * here
            free &= ~here
        return whole

    return Node(value, (x, back))
