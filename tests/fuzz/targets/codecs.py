"""The payloads of all codecs: bytes decode to a vector of the model's length, or are rejected.

The first byte of an input chooses the tensors of the model.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from layers.logic import Rejected
from layers.logic.compression.codecs import Codec
from tests.fuzz.target import Target
from tests.logic.compression.test_codecs import CODECS

LAYOUTS = tuple(
    np.array(stops, np.int64)
    for stops in ([0], [0, 0], [0, 1], [0, 7, 7, 30], [0, 100], [0, 300, 301, 1000], [0, 40_000])
)


def reader(name: str, codec: Codec) -> Target:
    """Return the target of a codec."""

    def read(data: bytes) -> None:
        parts = LAYOUTS[(data[0] if data else 0) % len(LAYOUTS)]
        payload = np.frombuffer(data, np.uint8)[1:]
        vector = codec.decode(payload, parts)
        assert vector.dtype == np.float32
        assert vector.shape == (parts[-1],)
        assert np.isfinite(vector).all()

    return Target(name, read, (Rejected,))


TARGETS = tuple(reader(name, codec) for name, codec in CODECS.items())


def sample(codec: Codec, layout: int) -> bytes:
    """Return a valid input: an encoded vector with this layout."""
    parts = LAYOUTS[layout]
    rng = np.random.default_rng(layout)
    vector = rng.standard_normal(int(parts[-1])).astype(np.float32)
    for start, stop in pairwise(parts):
        vector[start : start + (stop - start) // 2] = 0
    return bytes([layout]) + codec.encode(vector, parts, rng).tobytes()
