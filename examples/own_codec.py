"""Your own codec: bfloat16, the upper half of each float32, for half the bytes both ways."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmx import CodecHook, Rejected


class UpperHalf:
    def encode(self, vector: np.ndarray, parts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.ascontiguousarray(vector, "<f4").view("<u2")[1::2].copy().view(np.uint8)

    def decode(self, payload: np.ndarray, parts: np.ndarray) -> np.ndarray:
        size = int(parts[-1])  # from the model, not from the sender
        if payload.size != 2 * size:
            raise Rejected(f"{payload.size} bytes for {size} values of 2")
        halves = np.zeros(2 * size, "<u2")
        halves[1::2] = np.frombuffer(payload.tobytes(), "<u2")
        vector = halves.view("<f4").astype(np.float32)
        if not np.isfinite(vector).all():
            raise Rejected("values that are not finite")
        return vector


@dataclass(frozen=True)
class BFloat16(CodecHook):
    def codecs(self) -> tuple[UpperHalf, UpperHalf]:  # of updates, and of the model's changes
        return UpperHalf(), UpperHalf()
