"""The flat vector of a model: the place of each tensor, and the vector's memory."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

import numpy as np

ALIGNMENT_BYTES = 64


class Tensor(NamedTuple):
    """The place of a tensor in a flat vector: elements `start` to `stop`, in C order."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int


Layout = tuple[Tensor, ...]


def lay_out(shapes: Iterable[tuple[str, tuple[int, ...]]]) -> Layout:
    """Return the layout of named shapes, in order and without gaps."""
    tensors, start = [], 0
    for name, shape in shapes:
        stop = start + prod(shape)
        tensors.append(Tensor(name, tuple(shape), start, stop))
        start = stop
    return tuple(tensors)


def size(layout: Layout) -> int:
    """Return the number of elements of a vector with this layout."""
    return layout[-1].stop if layout else 0


def aligned(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """Return zeros that start on a 64-byte boundary, where oneDNN's kernels are fastest."""
    kind = np.dtype(dtype)
    length = prod(shape) * kind.itemsize
    raw = np.zeros(length + ALIGNMENT_BYTES, np.uint8)
    offset = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[offset : offset + length].view(kind).reshape(shape)


class FlatVector:
    """One contiguous, 64-byte aligned float32 vector (d,).

    Attributes:
        layout: the place of each tensor.
        array: the vector.
        readonly: the vector as a read-only view.
    """

    def __init__(self, layout: Layout):
        self.layout = layout
        self.array = aligned((size(layout),))
        self.readonly = self.array.view()
        self.readonly.flags.writeable = False

    def tensors(self) -> dict[str, np.ndarray]:
        """Return a view of each tensor, in its shape, by its name."""
        return {
            one.name: self.array[one.start : one.stop].reshape(one.shape) for one in self.layout
        }
