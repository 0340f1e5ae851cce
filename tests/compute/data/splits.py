"""Labels for tests to split, and the sizes of what a split gives."""

from __future__ import annotations

import numpy as np


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def balanced(classes: int, each: int) -> np.ndarray:
    return generator(9).permutation(np.repeat(np.arange(classes), each))


def sizes(parts: list[np.ndarray]) -> list[int]:
    return [len(part) for part in parts]
