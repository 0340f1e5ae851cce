"""Arrays of tasks and updates: their numbers, and how two versions of one array differ."""

from __future__ import annotations

import re
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


_BITS = {"float32": np.int32, "float64": np.int64}


@dataclass(frozen=True)
class OtherValues:
    """Two versions of one array that are not the same bits.

    Attributes:
        name: name of the array.
        differing: how many values differ; 0 if the shapes or the types do.
        values: how many values the array has.
        how: the largest difference in words; or the two values, shapes or types.
    """

    name: str
    differing: int
    values: int
    how: str

    def __str__(self) -> str:
        name = re.sub("^[0-9]+:", "", self.name)  # of a slot: without the place of its hook
        if not self.differing:
            return f"{name}: {self.how}"
        if self.values == 1:
            return f"{name} {self.how}"
        verb = "differs" if self.differing == 1 else "differ"
        text = f"{self.differing:,} of {self.values:,} values {verb}, {self.how}"
        return text if self.name in ("weights", "update") else f"{name}: {text}"


def first_other(
    one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]
) -> OtherValues | None:
    """Return the first array that is not the same bits in both; None: all are."""
    for name in dict.fromkeys((*one, *other)):
        if name not in one or name not in other:
            return OtherValues(name, 0, 0, "only one of the two has it")
        found = compared(name, one[name], other[name])
        if found is not None:
            return found
    return None


def compared(name: str, one: np.ndarray, other: np.ndarray) -> OtherValues | None:
    """Return how two arrays differ; None: they are the same bits."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        shapes = f"{one.dtype} {one.shape} against {other.dtype} {other.shape}"
        return OtherValues(name, 0, 0, shapes)
    if one.tobytes() == other.tobytes():
        return None
    one, other = np.atleast_1d(one).ravel(), np.atleast_1d(other).ravel()
    bits = f"u{one.dtype.itemsize}"
    places = one.view(bits) != other.view(bits)
    number = int(np.count_nonzero(places))
    if one.size == 1:
        texts = (f"{x:.9g}" if isinstance(x, float) else str(x) for x in (one.item(), other.item()))
        return OtherValues(name, 1, 1, " against ".join(texts))
    return OtherValues(name, number, one.size, _largest(one[places], other[places]))


def _largest(one: np.ndarray, other: np.ndarray) -> str:
    """Return the largest difference of values that differ, in words."""
    if one.dtype.name not in _BITS:
        apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
        return f"the largest by {apart.max():.6g}"
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return "some of them not finite"
    units = max(abs(a - b) for a, b in zip(_places(one), _places(other), strict=True))
    if not units:
        return "in the sign of zero"
    if units <= 1000:
        return f"the largest by {units} {'unit' if units == 1 else 'units'} in the last place"
    apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return f"the largest by {apart.max():.3g}"


def _places(values: np.ndarray) -> list[int]:
    """Return the places of values among all floating-point numbers, in order; 0 and -0 have one."""
    bits = values.view(_BITS[values.dtype.name])
    lowest = int(np.iinfo(bits.dtype).min)
    return [one if one >= 0 else lowest - one for one in bits.tolist()]
