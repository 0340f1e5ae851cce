"""8 or 16 bits for each value, with stochastic rounding (Alistarh et al. 2017, section 3.1).

The scale s of a tensor is its largest absolute value, and L is 127 or 32767. A value x becomes
floor(L x / s + u) with u uniform in [0, 1), which is L x / s on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from layers.logic.compression.codec import bytes_of, scales_of
from layers.logic.errors import LogicError, Rejected

BLOCK = 1 << 16  # values at a time, so that the draws stay in the processor's cache


@dataclass(frozen=True)
class QuantisedCodec:
    """The scale of each tensor, and `bits` bits for each value.

    Attributes:
        bits: 8 or 16.
    """

    bits: Literal[8, 16] = 8

    def __post_init__(self) -> None:
        if self.bits not in (8, 16):
            raise LogicError(f"bits must be 8 or 16, not {self.bits}")

    @property
    def levels(self) -> int:
        """The largest value on the wire, L."""
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
                # The largest value itself may be rounded to a bit more than L, with either sign.
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
