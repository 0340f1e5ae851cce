"""Random shares of a whole, samples cut by them, and what is done for those who got too little."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from layers.compute.data.errors import PartitionError
from layers.compute.data.partitions.partition import Indices

# Beyond these, a draw is one client's all or everyone's equal part as far as a float can tell.
_LEAST_ALPHA = 1e-3
_MOST_ALPHA = 1e6


def check_alpha(alpha: float, what: str) -> None:
    """Refuse a concentration that is not a number from 0.001 to 1,000,000."""
    if not _LEAST_ALPHA <= alpha <= _MOST_ALPHA:
        raise PartitionError(
            f"{what}: alpha must be from {_LEAST_ALPHA:g} to {_MOST_ALPHA:,.0f}, not {alpha}"
        )


def check_least(min_samples: int, what: str) -> None:
    """Refuse a least number of samples that is negative."""
    if min_samples < 0:
        raise PartitionError(f"{what}: min_samples must be 0 or more, not {min_samples}")


def draw_shares(alpha: float, clients: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Draw ``clients`` shares that add up to 1 from a symmetric Dirichlet distribution."""
    return rng.dirichlet(np.full(clients, alpha))


def cut(samples: Indices, shares: npt.NDArray[np.float64]) -> list[Indices]:
    """Cut ``samples`` into consecutive parts of these shares, rounded; none is lost."""
    ends = np.rint(np.cumsum(shares)[:-1] * len(samples)).astype(np.int64)
    return np.split(samples, ends)


def fill_up(parts: list[Indices], least: int) -> list[Indices]:
    """Move samples from the largest parts until every part has ``least``.

    There must be enough of them in all. Ties go to the lower client, so that it is the same always.
    """
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    given: list[list[Indices]] = [[part] for part in parts]
    for poor in np.flatnonzero(sizes < least):
        while sizes[poor] < least:
            # Somebody has more than the least, or there would not be enough in all.
            rich = int(np.argmax(sizes))
            sizes[rich] -= 1
            sizes[poor] += 1
            # The parts shrink from their ends; what was moved is never moved again.
            given[poor].append(parts[rich][sizes[rich] : sizes[rich] + 1])
    return [
        np.concatenate([pieces[0][:size], *pieces[1:]]) if len(pieces) > 1 else pieces[0][:size]
        for pieces, size in zip(given, sizes, strict=True)
    ]
