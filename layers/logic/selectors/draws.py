"""Draws of clients without replacement, and replacements for clients that are left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layers.logic.client_sizes import ClientSizes
from layers.logic.core.round import PlannedLane
from layers.logic.seeds import generator

SMALL = 10_000
"""Up to this number of clients, a draw may take a random number for each of them."""


def draw_uniform(rng: np.random.Generator, clients: int, number: int) -> np.ndarray:
    """Return `number` different places below `clients`, in the order in which they were drawn.

    Among more than `SMALL` clients the cost grows with `number` alone, if that is at most a
    fiftieth of them (Floyd's algorithm, as numpy has it).
    """
    if clients <= SMALL:
        return np.asarray(rng.permutation(clients)[:number])
    return rng.choice(clients, number, replace=False)


def draw_by_size(rng: np.random.Generator, sizes: ClientSizes, number: int) -> np.ndarray:
    """Return `number` different places among `sizes.ids`, in the order in which they were drawn.

    Each draw takes one of the places that are left, with a probability in proportion to its size.
    The draws are those of numpy's `Generator.choice`, at a cost that, among more than `SMALL`
    clients, grows with `number` and the logarithm of the population.
    """
    if len(sizes.ids) <= SMALL:
        shares = sizes.sizes.astype(np.float64)
        places = rng.choice(len(shares), number, replace=False, p=shares / shares.sum())
        return np.asarray(places)
    ends = sizes.once("ends of the shares", lambda: np.cumsum(sizes.sizes.astype(np.float64)))
    drawn = np.zeros(0, np.int64)
    while drawn.size < number:
        new = _places(rng.random(number - drawn.size), ends, np.sort(drawn))
        _, first = np.unique(new, return_index=True)
        new = new[np.sort(first)]
        drawn = np.concatenate([drawn, new[~np.isin(new, drawn)]])
    return drawn


def _places(points: np.ndarray, ends: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """Return the places of points from 0 to 1 on a line of pieces, without the pieces in `gone`.

    Args:
        points: float64 (k,).
        ends: float64 (n,), where each piece ends.
        gone: int64 (m,), ascending.
    """
    begins = np.where(gone > 0, ends[gone - 1], 0.0)
    removed = np.cumsum(ends[gone] - begins)
    before = removed - (ends[gone] - begins)
    at = points * (ends[-1] - (removed[-1] if gone.size else 0.0))
    # A point at or beyond the begin of a piece that is gone lies behind it.
    passed = np.searchsorted(begins - before, at, side="right")
    at = at + np.concatenate([[0.0], removed])[passed]
    return np.asarray(np.minimum(np.searchsorted(ends, at, side="right"), ends.size - 1))


def draw_weighted(rng: np.random.Generator, weights: np.ndarray, number: int) -> np.ndarray:
    """Return `number` different places, in the order in which they were drawn.

    Each draw takes one of the places that are left, with a probability in proportion to its weight
    (Efraimidis and Spirakis 2006). A place of weight 0 is drawn when no other is left.

    Args:
        rng: the generator; it draws one number for each place.
        weights: float64 (n,), each 0 or more.
        number: of draws, at most n.
    """
    waits = rng.exponential(size=weights.size)
    with np.errstate(divide="ignore"):
        waits = np.where(weights > 0, waits / weights, np.inf)
    return np.argsort(waits, kind="stable")[:number]


def replaced(
    lanes: Sequence[PlannedLane],
    clients: Sequence[int],
    without: Sequence[int],
    seed: int,
    round: int,
) -> Sequence[PlannedLane]:
    """Return lanes in which other clients replace those that are left out.

    If there are too few others, the cohort is smaller. It fits selectors that go by the clients'
    numbers alone. Let S be a uniform draw of m clients. Given that it holds k of those that are
    left out, its others are a uniform draw of m - k of all others, and with k more of these, drawn
    uniformly, one of m: the cohort is distributed as if those that are left out had never been
    there. A round that selects none of them has the same bits with and without them.

    Args:
        lanes: lanes of one client.
        clients: the clients that were there to select, those that are left out among them.
        without: the clients that are left out.
        seed: seed of the run.
        round: number of the round, from 1.
    """
    cohort = [client for lane in lanes for client in lane.clients]
    stay = [client for client in cohort if client not in without]
    missing = len(cohort) - len(stay)
    if not missing:
        return lanes
    taken = {*cohort, *without}
    others = [client for client in clients if client not in taken]
    drawn = draw_uniform(generator(seed, "replace", round), len(others), min(missing, len(others)))
    return [PlannedLane((one,)) for one in sorted([*stay, *(others[place] for place in drawn)])]
