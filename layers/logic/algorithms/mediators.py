"""Mediators: the labels that clients reported, and groups of clients by them or at random.

A client whose answer is not a histogram or a distance counts as one that has not answered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from layers.logic.core.messages import Slot
from layers.logic.core.survey import Question
from layers.logic.seeds import derive

MOST = 1 << 53  # up to here float64 counts exactly
LABELS = "labels"
"""The question for a histogram; the question for a distance has the name of the distance."""

HISTOGRAM, DISTANCE = "histogram", "distance"


@dataclass(frozen=True, eq=False)
class ReportedLabels:
    """What n clients reported of their labels.

    Attributes:
        question: the question that they answered.
        clients: ascending.
        values: the histograms, float64 (n, C); for another question than `LABELS` how far each is
            from uniform, float64 (n,).
    """

    question: Question
    clients: tuple[int, ...]
    values: np.ndarray

    @classmethod
    def of(cls, answers: Mapping[int, Slot], question: Question) -> ReportedLabels:
        """Return the answers to a question."""
        if question.name == LABELS:
            known, values = reported_histograms(answers, question.classes)
        else:
            known = [client for client in sorted(answers) if _is_distance(answers[client])]
            values = np.array([answers[client][DISTANCE] for client in known], np.float64)
        return cls(question, tuple(known), values)

    def kept(self, answers: Mapping[int, Slot]) -> dict[int, Slot]:
        """Return these answers alone; clients without one are asked again."""
        key = HISTOGRAM if self.question.name == LABELS else DISTANCE
        return {client: {key: answers[client][key]} for client in self.clients}


def reported_histograms(answers: Mapping[int, Any], classes: int) -> tuple[list[int], np.ndarray]:
    """Return the clients that reported a histogram, ascending, and float64 (n, classes)."""
    clients = [client for client in sorted(answers) if _is_histogram(answers[client], classes)]
    counts = np.array([answers[client][HISTOGRAM] for client in clients], np.float64)
    return clients, counts.reshape(len(clients), classes)


def _is_histogram(answer: Mapping[str, Any], classes: int) -> bool:
    reported = answer.get(HISTOGRAM)
    return (
        isinstance(reported, np.ndarray)
        and reported.shape == (classes,)
        and reported.dtype.kind in "iu"
        and bool((reported >= 0).all() and (reported <= MOST).all())
        and 0 < int(reported.astype(np.float64).sum()) <= MOST
    )


def _is_distance(answer: Mapping[str, Any]) -> bool:
    reported = answer.get(DISTANCE)
    return isinstance(reported, (int, float)) and 0 <= reported < math.inf


Lines = tuple[tuple[int, ...], ...]
Away = Callable[[np.ndarray], np.ndarray]
"""The distances (k,) of histograms (k, C) from the distribution that they should have."""

DIGITS = 9  # distances that agree in these are equal: rounding must not decide ties


def even(clients: int, mediators: int) -> list[int]:
    """Return the number of clients of each mediator; the first ones may have one more."""
    mediators = min(mediators, clients)
    return [clients // mediators + (m < clients % mediators) for m in range(mediators)]


def of_size(clients: int, size: int) -> list[int]:
    """Return the number of clients of each mediator, `size` or, for the last one, the rest."""
    return [min(size, clients - start) for start in range(0, clients, size)]


def greedy_fill(counts: np.ndarray, sizes: Sequence[int], away: Away) -> list[list[int]]:
    """Fill one mediator after the other, always with the client that brings it nearest.

    Nearest is the least distance of the pooled histogram; ties go to the lowest row. Clients with
    equal histograms are tried once: n times the number of different histograms is the number of
    distances that are computed.

    Args:
        counts: (n, C), a client's histogram a row.
        sizes: of the mediators; they add up to n.
        away: the distance that is kept small.

    Returns:
        The rows of each mediator, in the order in which they were added.
    """
    kinds, kind_of = np.unique(counts, axis=0, return_inverse=True)
    kind_of = kind_of.reshape(-1)  # numpy 2.0 alone gives it another dimension
    order = np.argsort(kind_of, kind="stable")
    first = np.searchsorted(kind_of[order], np.arange(len(kinds)))  # the next client of each kind
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
            if first[kind] == last[kind]:  # none of this kind is left: the last kind takes its row
                for column in (kinds, first, last):
                    column[kind] = column[-1]
                kinds, first, last = kinds[:-1], first[:-1], last[:-1]
        lines.append(line)
    return lines


def balanced(counts: np.ndarray, sizes: Sequence[int], away: Away) -> list[list[int]]:
    """Give each client, the most biased first, to the mediator that it balances best and that is
    not full.

    Ties go to the lowest row, then to the mediator with the fewest clients, then to the first
    mediator. Arguments and result are those of `greedy_fill`.
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


def at_random(clients: Sequence[int], sizes: Sequence[int], seed: int) -> list[list[int]]:
    """Deal out the clients in a random order, which each client's number and the seed decide."""
    order = sorted(range(len(clients)), key=lambda row: derive(seed, "mediators", clients[row]))
    ends = np.cumsum([0, *sizes])
    return [order[a:b] for a, b in pairwise(ends)]


def kept_lines(lines: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    """Return the clients of each mediator as two named arrays."""
    return {
        "line": np.array([client for line in lines for client in line], np.int64),
        "lengths": np.array([len(line) for line in lines], np.int64),
    }


def lines_of(memory: Mapping[str, Any]) -> Lines:
    """Return the lanes from which `kept_lines` made arrays; no lane if nothing was kept."""
    if "lengths" not in memory:
        return ()
    clients, ends = memory["line"].tolist(), np.cumsum([0, *memory["lengths"]])
    return tuple(tuple(clients[a:b]) for a, b in pairwise(ends))


def present(lines: Lines, there: Collection[int]) -> Lines:
    """Return the lanes with the available clients; lanes without any are left out."""
    left = (tuple(client for client in line if client in there) for line in lines)
    return tuple(line for line in left if line)
