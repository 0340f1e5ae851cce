"""Seeds for MXNet's own random numbers (dropout), derived from the engine's."""

from __future__ import annotations

import mxnet as mx
import numpy as np


def seed_mxnet(*seed: int) -> None:
    """Seed the random numbers that MXNet's operators draw in the calling thread."""
    mx.random.seed(int(np.random.SeedSequence(seed).generate_state(1)[0] & 0x7FFFFFFF))
