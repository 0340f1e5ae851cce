"""The largest values of a tensor: how many a share of it is, and where they are."""

from __future__ import annotations

import numpy as np

from layers.logic.errors import LogicError


def kept_of(size: int, p: float) -> int:
    """Return k = min(n, max(1, ceil(n p))), how many of n values the share p is.

    A small number is subtracted first, because 100 * 0.07 = 7.000000000000001 must give 7.

    Args:
        size: n.
        p: share, above 0 and at most 1.
    """
    return min(size, max(1, int(np.ceil(size * p - 1e-9))))


def top(vector: np.ndarray, k: int) -> np.ndarray:
    """Return the k largest absolute values, (k,): the smallest first, the others unsorted."""
    magnitudes: np.ndarray = np.abs(vector)
    at = vector.size - k
    magnitudes.partition(at)
    return magnitudes[at:]


def at_least(vector: np.ndarray, threshold: float) -> np.ndarray:
    """Return the positions where |x| >= threshold and x != 0, ascending int64."""
    if not threshold:
        return np.flatnonzero(vector)
    chosen = vector >= threshold
    chosen |= vector <= -threshold
    return np.flatnonzero(chosen)


def exactly(vector: np.ndarray, threshold: float, k: int) -> np.ndarray:
    """Return k of the positions of `at_least`; of values equal to the threshold the first ones."""
    positions = at_least(vector, threshold)
    if positions.size <= k:
        return positions
    tied = np.abs(vector[positions]) == threshold
    surplus = positions.size - k
    return np.delete(positions, np.flatnonzero(tied)[-surplus:])


def check_share(name: str, share: float) -> None:
    """Check that a setting is a share of something.

    Raises:
        LogicError: it is not above 0 and at most 1.
    """
    if not 0 < share <= 1:
        raise LogicError(f"{name} must be more than 0 and at most 1, not {share}")
