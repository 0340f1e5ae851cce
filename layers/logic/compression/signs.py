"""One bit for each value: a tensor becomes its mean absolute value times its signs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from layers.logic.compression.codec import bytes_of, scales_of
from layers.logic.errors import Rejected


@dataclass(frozen=True)
class SignCodec:
    """(|x|_1 / n) sign(x) of each tensor (Karimireddy et al. 2019, algorithm 2).

    A zero counts as positive, because it has no bit of its own; error feedback corrects that later.
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
