"""Which values of a tensor are the largest."""

from __future__ import annotations

import numpy as np

from layers.logic.errors import LogicError


def kept_of(size: int, p: float) -> int:
    """Return k = min(n, max(1, ceil(n p))), the number of values that a share of p is.

    The small number taken off lets 100 * 0.07 = 7.000000000000001 be 7.
    """
    return min(size, max(1, int(np.ceil(size * p - 1e-9))))


def top(vector: np.ndarray, k: int) -> np.ndarray:
    """Return the k largest absolute values, in no order but for the smallest, which is first."""
    magnitudes: np.ndarray = np.abs(vector)
    at = vector.size - k
    magnitudes.partition(at)
    return magnitudes[at:]


def at_least(vector: np.ndarray, threshold: float) -> np.ndarray:
    """Return where |x| >= threshold and x != 0, ascending int64."""
    if not threshold:
        return np.flatnonzero(vector)
    chosen = vector >= threshold
    chosen |= vector <= -threshold
    return np.flatnonzero(chosen)


def exactly(vector: np.ndarray, threshold: float, k: int) -> np.ndarray:
    """Return k of `at_least`'s positions: of those at the threshold the lowest ones."""
    positions = at_least(vector, threshold)
    if positions.size <= k:
        return positions
    tied = np.abs(vector[positions]) == threshold
    surplus = positions.size - k
    return np.delete(positions, np.flatnonzero(tied)[-surplus:])


def check_share(name: str, share: float) -> None:
    """Raise `LogicError` for what is no share of something."""
    if not 0 < share <= 1:
        raise LogicError(f"{name} must be more than 0 and at most 1, not {share}")
