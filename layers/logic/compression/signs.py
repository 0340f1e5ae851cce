"""One bit a value: each tensor becomes its mean absolute value times its signs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from layers.logic.compression.codec import bytes_of, scales_of
from layers.logic.errors import Rejected


@dataclass(frozen=True)
class SignCodec:
    """(|x|_1 / n) sign(x) of each tensor (Karimireddy et al. 2019, algorithm 2).

    A zero counts as positive, as it has no bit of its own; error feedback takes that back.
    """

    def encode(self, vector: np.ndarray, parts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the scales and a bit a value."""
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
            raise Rejected(f"signs that go on behind the last of {size}")
        vector = np.repeat(scales, np.diff(parts))
        np.negative(vector, out=vector, where=positive[:size] == 0)
        return vector
