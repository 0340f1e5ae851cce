"""Vectors and tensor boundaries for the codecs' tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

VALUES = st.floats(-(2.0**60), 2.0**60, width=32)
VECTORS = hnp.arrays(np.float32, st.integers(0, 200), elements=VALUES)


def whole(size: int) -> np.ndarray:
    """Return the boundaries of one tensor."""
    return np.array([0, size], np.int64)


@st.composite
def parts_in(draw, size: int) -> np.ndarray:
    """Return the boundaries of some tensors, empty ones among them."""
    inner = draw(st.lists(st.integers(0, size), max_size=4))
    return np.array([0, *sorted(inner), size], np.int64)
