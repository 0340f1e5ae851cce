"""Which clients stand in line at which mediator: by label distributions, or at random."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from layers.logic.seeds import derive

Lines = tuple[tuple[int, ...], ...]
Away = Callable[[np.ndarray], np.ndarray]
"""How far histograms (k, C) are from where they should be, (k,)."""

DIGITS = 9  # distances that agree to so many are equal: ties must not hang on rounding


def even(clients: int, mediators: int) -> list[int]:
    """Return how many of the clients each mediator gets; the first ones get one more."""
    mediators = min(mediators, clients)
    return [clients // mediators + (m < clients % mediators) for m in range(mediators)]


def of_size(clients: int, size: int) -> list[int]:
    """Return how many of the clients each mediator gets that is closed at `size`."""
    return [min(size, clients - start) for start in range(0, clients, size)]


def greedy_fill(counts: np.ndarray, sizes: Sequence[int], away: Away) -> list[list[int]]:
    """Fill one mediator after the other, each time with who brings its pooled histogram nearest.

    Ties go to the lowest row. Clients with equal histograms are tried once, so that it takes
    n (number of different histograms) distances.

    Args:
        counts: (n, C), a client's histogram a row.
        sizes: of the mediators; they add up to n.
        away: the distance to be kept small.

    Returns:
        The rows of each mediator, in the order in which they were added.
    """
    kinds, kind_of = np.unique(counts, axis=0, return_inverse=True)
    order = np.argsort(kind_of, kind="stable")
    first = np.searchsorted(kind_of[order], np.arange(len(kinds)))  # who is next of each kind
    last = np.append(first[1:], len(order))
    lines = []
    for size in sizes:
        line: list[int] = []
        pooled = np.zeros(counts.shape[1])
        for _ in range(size):
            near = np.round(away(pooled + kinds), DIGITS)
            ties = np.flatnonzero(near == near.min())
            kind = ties[np.argmin(order[first[ties]])]
            line.append(int(order[first[kind]]))
            pooled += kinds[kind]
            first[kind] += 1
            if first[kind] == last[kind]:  # nobody of this kind is left: the last takes its row
                for column in (kinds, first, last):
                    column[kind] = column[-1]
                kinds, first, last = kinds[:-1], first[:-1], last[:-1]
        lines.append(line)
    return lines


def balanced(counts: np.ndarray, sizes: Sequence[int], away: Away) -> list[list[int]]:
    """Give each client, the most biased first, to the mediator that has room and is best with it.

    Ties go to the lowest row, and to the mediator with the fewest clients, the first of these.
    Arguments and result as of `greedy_fill`.
    """
    lines: list[list[int]] = [[] for _ in sizes]
    pooled = np.zeros((len(sizes), counts.shape[1]))
    alone = np.round(away(counts), DIGITS)
    for row in np.argsort(-alone, kind="stable"):
        near = np.round(away(pooled + counts[row]), DIGITS)
        best = min(
            (m for m, line in enumerate(lines) if len(line) < sizes[m]),
            key=lambda m: (near[m], len(lines[m])),
        )
        lines[best].append(int(row))
        pooled[best] += counts[row]
    return lines


def at_random(clients: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Deal the clients out in an order that their numbers fix and nothing else tells of."""
    order = sorted(range(len(clients)), key=lambda row: derive(0, "mediators", clients[row]))
    ends = np.cumsum([0, *sizes])
    return [order[a:b] for a, b in pairwise(ends)]


def kept_lines(lines: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    """Return the clients of each mediator as two named arrays."""
    return {
        "line": np.array([client for line in lines for client in line], np.int64),
        "lengths": np.array([len(line) for line in lines], np.int64),
    }


def lines_of(memory: Mapping[str, Any]) -> Lines:
    """Return what `kept_lines` made arrays of; no line where nothing was kept."""
    if "lengths" not in memory:
        return ()
    clients, ends = memory["line"].tolist(), np.cumsum([0, *memory["lengths"]])
    return tuple(tuple(clients[a:b]) for a, b in pairwise(ends))


def present(lines: Lines, there: Collection[int]) -> Lines:
    """Return the lines without who is not there, and without those that are empty then."""
    left = (tuple(client for client in line if client in there) for line in lines)
    return tuple(line for line in left if line)
