"""Random streams derived from (seed, purpose, round, client), never from the order of arrival."""

from __future__ import annotations

import hashlib

import numpy as np


def derive(seed: int, purpose: str, *numbers: int) -> int:
    """Return a 63-bit seed that depends on every argument and on nothing else.

    Args:
        seed: the experiment's seed.
        purpose: purpose of the draws, e.g. ``"select"``; two purposes never share a stream.
        numbers: round and client, in this order, and further ones.
    """
    text = "/".join([str(int(seed)), purpose, *(str(int(number)) for number in numbers)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """Return the random generator of one purpose; the same arguments give the same draws."""
    return np.random.Generator(np.random.PCG64(derive(seed, purpose, *numbers)))
