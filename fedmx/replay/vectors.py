"""What a task or an update holds: its arrays by name, and the numbers that describe its vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from layers.logic import Task, Update


@dataclass(frozen=True)
class VectorNumbers:
    """The numbers of a vector.

    Attributes:
        values: how many values it has.
        norm: its Euclidean norm, without values that are not finite.
        zeros: share of its values that are zero, from 0 to 1; 0 for an empty one.
        largest: its largest absolute value, NaN left out.
        not_finite: how many values are NaN or infinite.
    """

    values: int
    norm: float
    zeros: float
    largest: float
    not_finite: int

    @classmethod
    def of(cls, vector: np.ndarray) -> VectorNumbers:
        """Return the numbers of a vector."""
        if not vector.size:
            return cls(0, 0.0, 0.0, 0.0, 0)
        wide = vector.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        numbers = np.abs(wide[~np.isnan(wide)])
        return cls(
            values=vector.size,
            norm=float(np.linalg.norm(finite)),
            zeros=float(np.count_nonzero(wide == 0)) / vector.size,
            largest=float(numbers.max(initial=0.0)),
            not_finite=int(vector.size - finite.size),
        )


def arrays_of(message: Task | Update) -> dict[str, np.ndarray]:
    """Return everything in a message that is counted or trained on, as arrays by name.

    A hook's slot is under its key, as in ``0:Stc/positions``.
    """
    found: dict[str, Any] = {}
    match message:
        case Task():
            found["weights"] = message.weights
            found["learning rate"] = message.training.learning_rate
        case Update():
            found["update"] = message.delta
            found |= {f"metric {name}": value for name, value in message.metrics.items()}
            found |= {"samples": message.samples, "steps": message.steps}
    found["buffers"] = message.buffers
    for key, slot in message.slots.items():
        found |= flat(slot, key)
    return {name: array for name, value in found.items() if (array := _array(value)) is not None}


def flat(tree: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the values of a tree by their paths, as in ``prefix/name``."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{prefix}/{name}"
        found |= flat(value, path) if isinstance(value, Mapping) else {path: value}
    return found


def vector_of(message: Task | Update) -> np.ndarray:
    """Return the vector that a message carries: dense, or the numbers in the hooks' slots."""
    dense = message.weights if isinstance(message, Task) else message.delta
    if dense.size:
        return dense
    coded = [
        value.ravel()
        for slot in message.slots.values()
        for value in slot.values()
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
    ]
    return np.concatenate(coded) if coded else dense


def payload_bytes(message: Task | Update, decoded: bool = False) -> int:
    """Return the bytes of a message's vectors and slots; of its vectors alone if it is decoded."""
    dense = message.weights if isinstance(message, Task) else message.delta
    number = dense.nbytes + message.buffers.nbytes
    if decoded and dense.size:
        return number
    slots = (value for slot in message.slots.values() for value in slot.values())
    arrays = (array for value in slots if (array := _array(value)) is not None)
    return number + sum(array.nbytes for array in arrays if array.ndim)


def _array(value: Any) -> np.ndarray | None:
    """Return a value of a slot as an array; text and bytes by their codes, nothing for None."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return np.frombuffer(value, np.uint8)
    return None if value is None else np.asarray(value)
