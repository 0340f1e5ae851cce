"""Sparse vectors: some values in full precision, with their coded positions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from layers.logic.compression.codec import bytes_of, floats_of
from layers.logic.compression.golomb import unpack
from layers.logic.compression.largest import check_share, exactly, kept_of, top
from layers.logic.compression.positions import decode_head, encode_positions


def largest_positions(vector: np.ndarray, parts: np.ndarray, p: float) -> np.ndarray:
    """Return the positions of the ceil(n p) largest |x| of each tensor, ascending int64.

    Of equal values the first ones are taken; zeros are left out.

    Args:
        vector: float32 (d,).
        parts: int64 (tensors + 1,), the tensors' boundaries.
        p: share of the values that are taken.
    """
    kept = []
    for start, stop in pairwise(parts):
        if start < stop:
            tensor = vector[start:stop]
            k = kept_of(tensor.size, p)
            kept.append(exactly(tensor, top(tensor, k)[0], k) + start)
    return np.concatenate(kept) if kept else np.zeros(0, np.int64)


def encode_sparse(positions: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Return the payload of a vector with `values` at `positions`, uint8 (bytes,)."""
    return encode_positions(positions, size, bytes_of(values))


def decode_sparse(payload: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions, int64 (n,), and values, float32 (n,), of a payload.

    Raises:
        Rejected: `encode_sparse` cannot have made it.
    """
    count, bits, rest = decode_head(payload, size)
    values, stream = floats_of(rest, count, "values")
    positions, _ = unpack(stream, count, bits, size)
    return positions, values


def dense(positions: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Return the float32 (d,) vector with `values` at `positions`."""
    vector = np.zeros(size, np.float32)
    vector[positions] = values
    return vector


@dataclass(frozen=True)
class SparseCodec:
    """The largest values of each tensor, in full precision.

    Attributes:
        p: share of the values that are kept.
    """

    p: float = 0.01

    def __post_init__(self) -> None:
        check_share("p", self.p)

    def encode(self, vector: np.ndarray, parts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the payload of the largest values of `vector`."""
        positions = largest_positions(vector, parts, self.p)
        return encode_sparse(positions, vector[positions], vector.size)

    def decode(self, payload: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Return the vector of a payload."""
        size = int(parts[-1])
        return dense(*decode_sparse(payload, size), size)
