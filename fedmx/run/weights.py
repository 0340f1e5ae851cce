"""The final model as a plain safetensors file: one named tensor for each parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from fedmx.run.durable import write_durably
from fedmx.run.errors import RunError

Layout = Sequence[tuple[str, tuple[int, ...]]]


def export_weights(path: str | Path, layout: Layout, vector: NDArray[Any]) -> None:
    """Cut the flat ``vector`` into the ``(name, shape)`` pairs of ``layout``, in order, and write.

    The file is written whole or not at all, and the same vector gives the same bytes. Raises
    RunError when the layout does not fit the vector, or the file cannot be written.
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


def load_weights(path: str | Path, layout: Layout) -> NDArray[np.float32]:
    """Read the tensors that ``layout`` names from ``path`` into one flat float32 vector.

    Raises RunError when the file cannot be read, or its names, shapes or type are not the layout's.
    """
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError, ValueError) as error:
        raise RunError(f"{path}: cannot read the model ({error})") from None
    wanted = {name for name, _ in layout}
    if missing := sorted(wanted - set(tensors)):
        raise RunError(f"{path}: not this model's weights: {_some(missing)} missing")
    if surplus := sorted(set(tensors) - wanted):
        raise RunError(f"{path}: not this model's weights: {_some(surplus)} not in the model")
    for name, shape in layout:
        if tensors[name].shape != tuple(shape) or tensors[name].dtype != np.float32:
            found = f"{tensors[name].dtype} {tensors[name].shape}"
            raise RunError(f"{path}: {name!r} is {found}, the model has float32 {tuple(shape)}")
    parts = [tensors[name].reshape(-1) for name, _ in layout]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more are"
