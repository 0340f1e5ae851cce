"""The final model as a plain safetensors file: one named tensor for each parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from fedmx.run.durable import write_durably
from fedmx.run.errors import RunError

Layout = Sequence[tuple[str, tuple[int, ...]]]


def export_weights(path: str | Path, layout: Layout, vector: NDArray[Any]) -> None:
    """Write a flat vector as named tensors.

    The file is written whole or not at all, and the same vector gives the same bytes.

    Args:
        path: the file.
        layout: the name and shape of each tensor, in the order of the vector.
        vector: (d,), all tensors one after the other.

    Raises:
        RunError: the layout does not fit the vector, or the file cannot be written.
    """
    names = [name for name, _ in layout]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RunError(f"{path}: the layout names the parameter {twice!r} twice")
    expected = sum(math.prod(shape) for _, shape in layout)
    if vector.shape != (expected,):
        raise RunError(
            f"{path}: the layout has {expected} numbers, the vector has shape {vector.shape}"
        )
    flat = np.ascontiguousarray(vector)
    tensors: dict[str, NDArray[Any]] = {}
    start = 0
    for name, shape in layout:
        stop = start + math.prod(shape)
        tensors[name] = flat[start:stop].reshape(shape)
        start = stop
    try:
        write_durably(Path(path), lambda temporary: save_file(tensors, temporary))
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path}: cannot write the model ({error})") from None
