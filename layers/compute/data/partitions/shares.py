"""Random shares, cutting and dealing samples by them, and filling up parts that are too small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from layers.compute.data.errors import PartitionError
from layers.compute.data.partitions.partition import Indices, Labels

# Beyond these, a float cannot tell a draw from one client with everything, or from equal parts.
_LEAST_ALPHA = 1e-3
_MOST_ALPHA = 1e6


def check_alpha(alpha: float, what: str) -> None:
    """Check that a concentration is from 0.001 to 1,000,000.

    Raises:
        PartitionError: it is not; `what` names the partition.
    """
    if not _LEAST_ALPHA <= alpha <= _MOST_ALPHA:
        raise PartitionError(
            f"{what}: alpha must be from {_LEAST_ALPHA:g} to {_MOST_ALPHA:,.0f}, not {alpha}"
        )


def check_least(samples: int, what: str) -> None:
    """Check that a least number of samples is not negative.

    Raises:
        PartitionError: it is; `what` names the partition and its setting.
    """
    if samples < 0:
        raise PartitionError(f"{what} must be 0 or more, not {samples}")


def draw_shares(alpha: float, clients: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return `clients` shares that add up to 1, drawn from a symmetric Dirichlet distribution."""
    return rng.dirichlet(np.full(clients, alpha))


def cut(samples: Indices, shares: npt.NDArray[np.float64]) -> list[Indices]:
    """Return `samples` cut into consecutive parts of these shares, rounded; no sample is lost."""
    return np.split(samples, _ends(len(samples), shares))


def cut_sizes(number: int, shares: npt.NDArray[np.float64]) -> Indices:
    """Return how many of `number` samples each part of `cut` has, int64 (parts,)."""
    return np.diff(_ends(number, shares), prepend=0, append=number)


def _ends(number: int, shares: npt.NDArray[np.float64]) -> Indices:
    return np.asarray(np.rint(np.cumsum(shares)[:-1] * number), np.int64)


def fill_up(parts: list[Indices], least: int) -> list[Indices]:
    """Return the parts with samples moved from the largest until every part has `least`.

    There must be enough samples in all. Of two parts that are equally large the first one gives, so
    that the result is always the same.
    """
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    given: list[list[Indices]] = [[part] for part in parts]
    for poor in np.flatnonzero(sizes < least):
        while sizes[poor] < least:
            # There are enough samples in all, so some part has more than `least`.
            rich = int(np.argmax(sizes))
            sizes[rich] -= 1
            sizes[poor] += 1
            # A part shrinks from its end; a sample that was moved is not moved again.
            given[poor].append(parts[rich][sizes[rich] : sizes[rich] + 1])
    return [
        np.concatenate([pieces[0][:size], *pieces[1:]]) if len(pieces) > 1 else pieces[0][:size]
        for pieces, size in zip(given, sizes, strict=True)
    ]


def deal_classes(
    labels: Labels, holders: Mapping[int, Sequence[int]], clients: int, rng: np.random.Generator
) -> list[Indices]:
    """Return each client's indices, ascending: the holders of a class divide it evenly.

    All clients divide a class of which no holders are known.
    """
    parts: list[list[Indices]] = [[np.zeros(0, dtype=np.int64)] for _ in range(clients)]
    for label in np.unique(labels).tolist():
        who = holders.get(label, range(clients))
        samples = rng.permutation(np.flatnonzero(labels == label))
        for client, part in zip(who, np.array_split(samples, len(who)), strict=True):
            parts[client].append(part)
    return [np.sort(np.concatenate(part)) for part in parts]
