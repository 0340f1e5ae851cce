"""A vector in the smaller of two exact forms: ternary as bits, or as it is.

A ternary update has, tensor by tensor, one magnitude. What is kept of it is a bit a value (zero or
not), a bit a non-zero (its sign), and each magnitude once: a 32nd to a 16th of the float32 vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from layers.logic.core.state import Memory

SAMPLE = 1 << 14  # values by which a vector that is not ternary is told at once


def pack(vector: np.ndarray) -> Memory:
    """Return a float32 (d,) vector as named arrays, ternary if that is smaller."""
    if _is_dense(vector[:SAMPLE]):
        return {"dense": vector}
    places = vector != 0
    values = vector[places]
    magnitudes = np.abs(values)
    changes = np.flatnonzero(magnitudes[1:] != magnitudes[:-1]) + 1
    starts = np.concatenate([np.zeros(min(1, values.size), np.int64), changes])
    packed = {
        "size": vector.size,
        "places": np.packbits(places),
        "negative": np.packbits(values < 0),
        "starts": starts,  # of the runs of one magnitude, among the non-zeros
        "magnitudes": magnitudes[starts],
    }
    if sum(part.nbytes for part in packed.values() if isinstance(part, np.ndarray)) < vector.nbytes:
        return packed
    return {"dense": vector}


def unpack(packed: Mapping[str, Any]) -> np.ndarray:
    """Return the float32 (d,) vector that `pack` was given (a negative zero as a zero)."""
    if "dense" in packed:
        dense: np.ndarray = packed["dense"]
        return dense
    places = np.unpackbits(packed["places"], count=packed["size"]).view(bool)
    number = int(np.count_nonzero(places))
    lengths = np.diff(packed["starts"], append=number)
    values = np.repeat(packed["magnitudes"], lengths)
    negative = np.unpackbits(packed["negative"], count=number).view(bool)
    np.negative(values, out=values, where=negative)
    vector = np.zeros(packed["size"], np.float32)
    vector[places] = values
    return vector


def _is_dense(sample: np.ndarray) -> bool:
    """Whether the magnitudes of the non-zeros change so often that runs of them save nothing."""
    magnitudes = np.abs(sample[sample != 0])
    changes = int(np.count_nonzero(magnitudes[1:] != magnitudes[:-1]))
    return changes > len(magnitudes) // 4
