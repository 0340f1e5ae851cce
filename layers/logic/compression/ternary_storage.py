"""A vector stored without loss: as bits if it is ternary, otherwise as it is.

A ternary update has one magnitude in each tensor. It is stored as one bit for each value (zero or
not), one bit for each non-zero (its sign), and each magnitude once. That takes a 32nd to a 16th of
the float32 vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from layers.logic.core.state import Memory

SAMPLE = 1 << 14  # the first values, by which most vectors that are not ternary are recognised


def pack(vector: np.ndarray) -> Memory:
    """Return a float32 (d,) vector as named arrays: in ternary form if that is smaller."""
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
    """Return the float32 (d,) vector that `pack` was given; a negative zero comes back as zero."""
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
    """Return whether the magnitudes change so often that storing runs of them saves nothing."""
    magnitudes = np.abs(sample[sample != 0])
    changes = int(np.count_nonzero(magnitudes[1:] != magnitudes[:-1]))
    return changes > len(magnitudes) // 4
