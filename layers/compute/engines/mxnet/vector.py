"""The flat vector: one float32 buffer, seen by numpy as a whole and by MXNet tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np

ALIGNMENT_BYTES = 64


class Tensor(NamedTuple):
    """Where one tensor lies in a flat vector: elements `start` to `stop`, in C order."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int


Layout = tuple[Tensor, ...]


def lay_out(shapes: Iterable[tuple[str, tuple[int, ...]]]) -> Layout:
    """Return the layout of named shapes, one after the other without gaps."""
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
    """Return zeros whose first byte is on a 64-byte boundary, as oneDNN's kernels prefer it."""
    kind = np.dtype(dtype)
    length = prod(shape) * kind.itemsize
    raw = np.zeros(length + ALIGNMENT_BYTES, np.uint8)
    offset = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[offset : offset + length].view(kind).reshape(shape)


def share(array: np.ndarray) -> Any:
    """Return an NDArray over the memory of a C-contiguous array, which stays writable.

    Before numpy touches the memory, MXNet must have finished with it (`mx.nd.waitall`).
    """
    # from_numpy makes its argument read-only, so it gets a view.
    return mx.nd.from_numpy(array.view(), zero_copy=True)


class FlatVector:
    """One contiguous, 64-byte aligned float32 vector (d,) and an NDArray view for each tensor.

    Each view is an NDArray of its own over its part of the memory, not an MXNet slice: some
    operators refuse slices, and none minds where in the vector a tensor starts.
    """

    def __init__(self, layout: Layout):
        self.layout = layout
        self.array = aligned((size(layout),))
        # MXNet has no zero-length arrays outside its numpy mode.
        self.views: dict[str, Any] = {
            t.name: share(self.array[t.start : t.stop].reshape(t.shape))
            for t in layout
            if t.stop > t.start
        }
        self.readonly = self.array.view()
        self.readonly.flags.writeable = False
