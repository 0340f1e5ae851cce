"""Codecs: a codec turns a flat vector into bytes, and the bytes back into a vector.

A codec has no state. `encode` takes the vector, the tensors' boundaries and a random generator;
`decode` takes untrusted bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np

from layers.logic.compression.golomb import decode_head, encode_positions, unpack
from layers.logic.core.messages import Layout
from layers.logic.errors import LogicError, Rejected
from layers.settings import PositiveShare, Settings

BLOCK = 1 << 16  # values to quantise at a time, so that the draws stay in the processor's cache


class Codec(Protocol):
    """Encodes a float32 (d,) vector as a payload, uint8 (bytes,), and decodes it.

    `parts` are the boundaries of the tensors in the vector, int64 (tensors + 1,), from 0 to d. Both
    ends know them, so the payload does not hold them.
    """

    def encode(self, vector: np.ndarray, parts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the payload of a vector of finite values; `rng` is for stochastic rounding."""

    def decode(self, payload: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Return the float32 (d,) vector that a payload encodes.

        Any bytes give d finite values or an error. Time and memory are bounded by d.

        Raises:
            Rejected: `encode` cannot have made these bytes.
        """


def parts_of(layout: Layout, flat: bool = False) -> np.ndarray:
    """Return the boundaries of the tensors in the flat vector, int64 (tensors + 1,).

    With `flat` the whole vector counts as one tensor.
    """
    stops = [tensor.stop for tensor in layout]
    return np.array([0, *(stops[-1:] if flat else stops)], np.int64)


# --- values in a payload ---------------------------------------------------------------------


def bytes_of(values: np.ndarray) -> np.ndarray:
    """Return float32 values as little-endian bytes, uint8 (4 n,)."""
    return np.ascontiguousarray(values, "<f4").view(np.uint8)


def floats_of(payload: np.ndarray, count: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the first `count` little-endian float32 of a payload, and the remaining bytes.

    Args:
        payload: uint8 (bytes,).
        count: number of values.
        what: a noun for the values, for error messages.

    Raises:
        Rejected: there are too few bytes, or a value is not finite.
    """
    if payload.size < 4 * count:
        raise Rejected(
            f"a payload of {payload.size} bytes; its {count} {what} alone take {4 * count}"
        )
    values = np.frombuffer(payload[: 4 * count].tobytes(), "<f4")
    if not np.isfinite(values).all():
        raise Rejected(f"{what} that are not finite")
    return values, payload[4 * count :]


def scales_of(payload: np.ndarray, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scale of each tensor, float32 (tensors,), and the remaining bytes.

    Raises:
        Rejected: there are too few bytes, or a scale is negative or not finite.
    """
    scales, rest = floats_of(payload, parts.size - 1, "scales")
    if scales.min(initial=0) < 0:
        raise Rejected("scales that are negative")
    return scales, rest


# --- a few bits for every value --------------------------------------------------------------


class _Settings(Settings):
    refusal = LogicError


@dataclass(frozen=True)
class QuantisedCodec(_Settings):
    """A scale for each tensor and `bits` bits for each value (Alistarh et al. 2017, section 3.1).

    The scale s of a tensor is its largest absolute value, and L is 127 or 32767. A value x becomes
    floor(L x / s + u) with u uniform in [0, 1), so that the mean is L x / s.

    Attributes:
        bits: 8 or 16.
    """

    bits: Literal[8, 16] = 8

    @property
    def levels(self) -> int:
        """L, the largest encoded value."""
        return (1 << (self.bits - 1)) - 1

    @property
    def _type(self) -> np.dtype[np.signedinteger]:
        return np.dtype(f"<i{self.bits // 8}")

    def encode(self, vector: np.ndarray, parts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the scales and the rounded values."""
        scales = np.zeros(parts.size - 1, np.float32)
        rounded = np.zeros(vector.size, self._type)
        for index, (start, stop) in enumerate(pairwise(parts)):
            tensor = vector[start:stop]
            largest = max(-float(tensor.min(initial=0)), float(tensor.max(initial=0)))
            scales[index] = largest
            for low in range(start, stop, BLOCK) if largest > 0 else ():
                block = slice(low, min(low + BLOCK, stop))
                # In float64: the inverse of a tiny float32 scale is infinite in float32.
                scaled = np.multiply(vector[block], self.levels / largest, dtype=np.float64)
                scaled += rng.random(scaled.size)
                np.floor(scaled, out=scaled)
                # The largest value itself may be rounded to slightly more than L.
                rounded[block] = np.clip(scaled, -self.levels, self.levels, out=scaled)
        return np.concatenate((bytes_of(scales), rounded.view(np.uint8)))

    def decode(self, payload: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Return the vector of a payload."""
        size = int(parts[-1])
        scales, rest = scales_of(payload, parts)
        if rest.size != size * self._type.itemsize:
            raise Rejected(f"{rest.size} bytes of {self.bits}-bit values for {size} of them")
        rounded = np.frombuffer(rest.tobytes(), self._type)
        if rounded.min(initial=0) < -self.levels:
            raise Rejected(f"a value below -{self.levels}, which is the least of {self.bits} bits")
        vector = rounded.astype(np.float32)
        for scale, start, stop in zip(scales, parts[:-1], parts[1:], strict=True):
            vector[start:stop] *= np.float32(scale / self.levels)
        return vector


@dataclass(frozen=True)
class SignCodec:
    """(|x|_1 / n) sign(x) of each tensor (Karimireddy et al. 2019, algorithm 2).

    Zero counts as positive because it has no bit of its own; error feedback corrects that later.
    """

    def encode(self, vector: np.ndarray, parts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the scales, and one bit for each value."""
        scales = np.zeros(parts.size - 1, np.float32)
        for index, (start, stop) in enumerate(pairwise(parts)):
            if start < stop:
                scales[index] = np.abs(vector[start:stop]).mean(dtype=np.float64)
        return np.concatenate((bytes_of(scales), np.packbits(vector >= 0)))

    def decode(self, payload: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Return the vector of a payload."""
        size = int(parts[-1])
        scales, packed = scales_of(payload, parts)
        if packed.size != -(-size // 8):
            raise Rejected(f"{packed.size} bytes of signs for {size} values")
        positive = np.unpackbits(packed)
        if positive[size:].any():
            raise Rejected(f"signs behind the last of {size}; the bits there must be zero")
        vector = np.repeat(scales, np.diff(parts))
        np.negative(vector, out=vector, where=positive[:size] == 0)
        return vector


# --- the largest values ----------------------------------------------------------------------


def kept_of(size: int, p: float) -> int:
    """Return k = min(n, max(1, ceil(n p))), the number of values that the share p keeps of n.

    A small number is subtracted first, because 100 * 0.07 = 7.000000000000001 must give 7.

    Args:
        size: n.
        p: share, above 0 and at most 1.
    """
    return min(size, max(1, int(np.ceil(size * p - 1e-9))))


def top(vector: np.ndarray, k: int) -> np.ndarray:
    """Return the k largest absolute values, (k,): the smallest first, the others unsorted."""
    magnitudes: np.ndarray = np.abs(vector)
    at = vector.size - k
    magnitudes.partition(at)
    return magnitudes[at:]


def at_least(vector: np.ndarray, threshold: float) -> np.ndarray:
    """Return the positions where |x| >= threshold and x != 0, ascending int64."""
    if not threshold:
        return np.flatnonzero(vector)
    chosen = vector >= threshold
    chosen |= vector <= -threshold
    return np.flatnonzero(chosen)


def exactly(vector: np.ndarray, threshold: float, k: int) -> np.ndarray:
    """Return k of the positions of `at_least`; ties at the threshold go to the first positions."""
    positions = at_least(vector, threshold)
    if positions.size <= k:
        return positions
    tied = np.abs(vector[positions]) == threshold
    surplus = positions.size - k
    return np.delete(positions, np.flatnonzero(tied)[-surplus:])


def largest_positions(vector: np.ndarray, parts: np.ndarray, p: float) -> np.ndarray:
    """Return the positions of the ceil(n p) largest |x| of each tensor, ascending int64.

    Ties go to the first positions. Zeros are left out.

    Args:
        vector: float32 (d,).
        parts: int64 (tensors + 1,), the tensors' boundaries.
        p: share of the values to keep.
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
    """Return the positions, int64 (n,), and the values, float32 (n,), of a payload.

    Raises:
        Rejected: `encode_sparse` cannot have made it.
    """
    count, bits, rest = decode_head(payload, size)
    values, stream = floats_of(rest, count, "values")
    positions, _ = unpack(stream, count, bits, size)
    return positions, values


@dataclass(frozen=True)
class SparseCodec(_Settings):
    """The largest values of each tensor in full precision, with Golomb-coded positions.

    Attributes:
        p: share of the values to keep.
    """

    p: PositiveShare = 0.01

    def encode(self, vector: np.ndarray, parts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the payload of the largest values of `vector`."""
        positions = largest_positions(vector, parts, self.p)
        return encode_sparse(positions, vector[positions], vector.size)

    def decode(self, payload: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Return the vector of a payload."""
        vector = np.zeros(parts[-1], np.float32)
        positions, values = decode_sparse(payload, vector.size)
        vector[positions] = values
        return vector


# --- sparse ternary compression --------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Ternary:
    """A vector whose values are -mu, 0 or mu, with one mu for each tensor.

    Attributes:
        parts: int64 (tensors + 1,), the tensors' boundaries.
        positions: int64 (n,), of the non-zeros in the whole vector, ascending.
        positive: bool (n,), the signs of the non-zeros.
        scales: float32 (tensors,), each tensor's mu.
    """

    parts: np.ndarray
    positions: np.ndarray
    positive: np.ndarray
    scales: np.ndarray

    def dense(self) -> np.ndarray:
        """Return the vector, float32 (d,)."""
        counts = np.diff(np.searchsorted(self.positions, self.parts))
        values = np.repeat(self.scales, counts)
        np.negative(values, out=values, where=~self.positive)
        vector = np.zeros(self.parts[-1], np.float32)
        vector[self.positions] = values
        return vector


def ternarise(
    vector: np.ndarray,
    parts: np.ndarray,
    p: float,
    exact_k: bool = False,
    literal: bool = False,
) -> Ternary:
    """Return the sparse ternary form of a vector (Sattler et al. 2019, algorithm 1).

    For a tensor T of n values, k = min(n, max(1, ceil(n p))), v is the k-th largest |T|, and mu the
    mean of the non-zeros among the k largest |T|. The result is mu sign(T) where |T| >= v and
    T != 0, and 0 elsewhere.

    Args:
        vector: float32 (d,).
        parts: int64 (tensors + 1,), the tensors' boundaries.
        p: share of the values to keep.
        exact_k: keep exactly k values: ties at v go to the first positions. If not, all values
            equal to v are kept.
        literal: read algorithm 1 literally: mu is the sum of all kept |T| divided by k. That is too
            large with ties, and too small with fewer than k non-zeros.
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


@dataclass(frozen=True)
class TernaryCodec(_Settings):
    """The number of non-zeros, each tensor's mu, and the coded positions with their signs.

    Attributes:
        p: share of the values to keep.
        exact_k: see `ternarise`.
        literal: see `ternarise`.
    """

    p: PositiveShare = 0.1
    exact_k: bool = False
    literal: bool = False

    def encode(self, vector: np.ndarray, parts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the payload of the ternary form of `vector`."""
        return encode_ternary(ternarise(vector, parts, self.p, self.exact_k, self.literal))

    def decode(self, payload: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Return the vector of a payload."""
        return decode_ternary(payload, parts).dense()
