"""A codec: a pure pair of functions between a flat vector and the bytes that travel for it."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from layers.logic.core.messages import Layout
from layers.logic.errors import Rejected


class Codec(Protocol):
    """A way between a float32 (d,) vector and its payload, uint8 (bytes,).

    `parts` are the boundaries of the tensors in the vector, int64 (tensors + 1,), from 0 to d. Both
    ends know them, so they do not travel.
    """

    def encode(self, vector: np.ndarray, parts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the payload of a vector of finite values; `rng` is for stochastic rounding."""

    def decode(self, payload: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Return the float32 (d,) vector that the payload stands for.

        Whatever the bytes are, the result is a vector of d finite values, or an error; time and
        memory are bounded by d.

        Raises:
            Rejected: `encode` cannot have made these bytes.
        """


def parts_of(layout: Layout, flat: bool = False) -> np.ndarray:
    """Return the boundaries of the tensors in the flat vector, int64 (tensors + 1,).

    With `flat` the whole vector counts as one tensor.
    """
    stops = [tensor.stop for tensor in layout]
    return np.array([0, *(stops[-1:] if flat else stops)], np.int64)


def floats_of(payload: np.ndarray, count: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the first `count` little-endian float32 of a payload, and the bytes behind them.

    Args:
        what: what the values are, for the error's message.

    Raises:
        Rejected: there are too few bytes, or values that are not finite.
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
    """Return the scale of each tensor, float32 (tensors,), and the bytes behind the scales.

    Raises:
        Rejected: there are too few bytes, or scales that are negative or not finite.
    """
    scales, rest = floats_of(payload, parts.size - 1, "scales")
    if scales.min(initial=0) < 0:
        raise Rejected("scales that are negative")
    return scales, rest


def bytes_of(values: np.ndarray) -> np.ndarray:
    """Return float32 values as little-endian bytes, uint8 (4 n,)."""
    return np.ascontiguousarray(values, "<f4").view(np.uint8)
