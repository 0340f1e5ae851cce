"""Sparse ternary compression (Sattler et al. 2019, algorithm 1): in each tensor -mu, 0 or mu."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from layers.logic.compression.codec import bytes_of, scales_of
from layers.logic.compression.golomb import unpack
from layers.logic.compression.largest import at_least, check_share, exactly, kept_of, top
from layers.logic.compression.positions import decode_head, encode_positions


@dataclass(frozen=True, eq=False)
class Ternary:
    """A vector in which each tensor has the values -mu, 0 and mu only.

    Attributes:
        parts: int64 (tensors + 1,), the tensors' boundaries.
        positions: int64 (n,), of the non-zeros in the whole vector, ascending.
        positive: bool (n,), which of the non-zeros are positive.
        scales: float32 (tensors,), each tensor's mu.
    """

    parts: np.ndarray
    positions: np.ndarray
    positive: np.ndarray
    scales: np.ndarray

    def values(self) -> np.ndarray:
        """Return the non-zeros, float32 (n,)."""
        counts = np.diff(np.searchsorted(self.positions, self.parts))
        values = np.repeat(self.scales, counts)
        np.negative(values, out=values, where=~self.positive)
        return values

    def dense(self) -> np.ndarray:
        """Return the vector, float32 (d,)."""
        vector = np.zeros(self.parts[-1], np.float32)
        vector[self.positions] = self.values()
        return vector


def ternarise(
    vector: np.ndarray,
    parts: np.ndarray,
    p: float,
    exact_k: bool = False,
    literal: bool = False,
) -> Ternary:
    """Return a float32 (d,) vector with each tensor in its sparse ternary form (algorithm 1).

    For a tensor T of n values, k = min(n, max(1, ceil(n p))), v is the k-th largest |T|, and mu the
    mean of the non-zeros among the k largest |T|. The result is mu sign(T) where |T| >= v and
    T != 0, and 0 elsewhere.

    Args:
        vector: float32 (d,).
        parts: int64 (tensors + 1,), the tensors' boundaries.
        p: share of the values that are kept.
        exact_k: whether exactly k values are kept: of those equal to v the first ones. If not, all
            of them are kept.
        literal: whether mu is the sum of all kept |T| divided by k, as algorithm 1 says when it is
            read literally; that is too large with ties, too small with fewer than k non-zeros.
    """
    scales = np.zeros(parts.size - 1, np.float32)
    kept = []
    for index, (start, stop) in enumerate(pairwise(parts)):
        if start == stop:
            continue
        tensor = vector[start:stop]
        k = kept_of(tensor.size, p)
        largest = top(tensor, k)
        threshold = largest[0]
        positions = exactly(tensor, threshold, k) if exact_k else at_least(tensor, threshold)
        if literal:
            mean = np.abs(tensor[positions]).sum(dtype=np.float64) / k
        else:
            mean = largest.sum(dtype=np.float64) / max(1, np.count_nonzero(largest))
        del largest
        scales[index] = mean
        kept.append(positions + start if start else positions)
    positions = np.concatenate(kept) if kept else np.zeros(0, np.int64)
    return Ternary(parts, positions, vector[positions] > 0, scales)


@dataclass(frozen=True)
class TernaryCodec:
    """The number of non-zeros, the mu of each tensor, and the coded positions with their signs.

    Attributes:
        p: share of the values that are kept.
        exact_k: see `ternarise`.
        literal: see `ternarise`.
    """

    p: float = 0.1
    exact_k: bool = False
    literal: bool = False

    def __post_init__(self) -> None:
        check_share("p", self.p)

    def encode(self, vector: np.ndarray, parts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the payload of the ternary form of `vector`."""
        return encode_ternary(ternarise(vector, parts, self.p, self.exact_k, self.literal))

    def decode(self, payload: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Return the vector of a payload."""
        return decode_ternary(payload, parts).dense()


def encode_ternary(ternary: Ternary) -> np.ndarray:
    """Return the payload of a ternary vector, uint8 (bytes,)."""
    size = int(ternary.parts[-1])
    scales = bytes_of(ternary.scales)
    return encode_positions(ternary.positions, size, scales, ternary.positive)


def decode_ternary(payload: np.ndarray, parts: np.ndarray) -> Ternary:
    """Return the ternary vector of a payload.

    Raises:
        Rejected: `encode_ternary` cannot have made it.
    """
    size = int(parts[-1])
    count, bits, rest = decode_head(payload, size)
    scales, stream = scales_of(rest, parts)
    positions, positive = unpack(stream, count, bits, size, signed=True)
    return Ternary(parts, positions, positive, scales)
