"""How far two arrays are apart: how many values differ, and the largest difference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

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
