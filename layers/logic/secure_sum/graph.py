"""Who shares secrets with whom: a Harary graph, and the degree and threshold that it needs.

Source: Bell et al. 2020, "Secure single-server aggregation with (poly)logarithmic overhead".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np

from layers.logic.errors import LogicError

Trust: TypeAlias = Literal["malicious", "honest"]
"""What a server may do: anything, or look at all that it gets and follow the protocol."""

COMPLETE_UP_TO = 100
"""With so many clients or fewer, each is a neighbour of all others (Bonawitz et al. 2017)."""
LEAST_CLIENTS = 3
CORRUPT = DROPPING = 0.05
SECURITY_BITS, FAILURE_BITS = 40, 20
_SMALL = 1e-14  # so that 0.33 of 100 is 33


@dataclass(frozen=True)
class Degree:
    """The number of neighbours of a client, and how many of them open its masks together."""

    neighbours: int
    threshold: int


def neighbours_on_ring(order: Sequence[int], degree: int) -> list[list[int]]:
    """Return the neighbours of each client, ascending: those at most degree / 2 places away.

    Args:
        order: the client at each place of the ring, numbers from 0.
        degree: their number; the number of clients minus 1 makes all of them neighbours.
    """
    clients, half = len(order), degree // 2
    if degree >= clients - 1:
        return [[one for one in range(clients) if one != client] for client in range(clients)]
    found: list[list[int]] = [[] for _ in order]
    for place, client in enumerate(order):
        around = (order[(place + step) % clients] for step in range(-half, half + 1) if step)
        found[client] = sorted(around)
    return found


@lru_cache(maxsize=64)
def degree_for(clients: int, server: Trust = "malicious") -> Degree:
    """Return degree and threshold for a round with so many clients.

    Raises:
        LogicError: there are too few.
    """
    if clients < LEAST_CLIENTS:
        raise LogicError(f"a sum of {clients} clients hides nothing; it needs {LEAST_CLIENTS}")
    if clients > COMPLETE_UP_TO:
        return sparse_degree(clients, CORRUPT, DROPPING, server)
    degree = clients - 1
    corrupt = corrupt_among(clients)
    if server == "malicious":
        return Degree(degree, max((degree + corrupt) // 2 + 1, 2))
    return Degree(degree, max(degree // 2, corrupt + 1, 2))


def sparse_degree(
    clients: int,
    corrupt: float,
    dropping: float,
    server: Trust = "malicious",
    security_bits: int = SECURITY_BITS,
    failure_bits: int = FAILURE_BITS,
) -> Degree:
    """Return the least even degree that hides each client's value, and the least threshold.

    Three events must be unlikely: that the honest clients that are left fall into two parts with a
    sum each; that a client has so many corrupt neighbours that they open its mask (in spite of a
    malicious server, which asks some of its neighbours for one secret and the others for another:
    2 threshold > degree + corrupt neighbours); and that too few neighbours are left to open it.

    Args:
        clients: n.
        corrupt: gamma, the share of the clients that are in league with the server.
        dropping: delta, the share of the clients that are lost in the round.
        server: what the server may do.
        security_bits: sigma; a value is not hidden with probability 2^-sigma at most.
        failure_bits: eta; a sum cannot be opened with probability 2^-eta at most.

    Raises:
        LogicError: there is no such degree.
    """
    bad, lost = _share_of(clients, corrupt), _share_of(clients, dropping)
    left = math.ceil((1 - dropping - _SMALL) * clients)
    secure = -(security_bits + 1) * math.log(2)
    opened = -failure_bits * math.log(2) - math.log(clients)
    for degree in range(2, clients - 1, 2):
        if _log_cut(clients, bad + lost, degree) >= secure:
            continue
        most_corrupt = _fewest_above(_log_of(clients, bad, degree), secure - math.log(clients))
        most_gone = _fewest_above(_log_of(clients, clients - left, degree), opened)
        threshold = most_corrupt + 1
        if server == "malicious":
            threshold = (degree + most_corrupt) // 2 + 1
        if threshold <= degree - most_gone:
            return Degree(degree, max(threshold, 2))
    raise LogicError(
        f"no graph of {clients} clients hides their values if {corrupt:g} of them are corrupt and "
        f"{dropping:g} drop out"
    )


def corrupt_among(clients: int) -> int:
    """Return how many of so many clients may be in league with the server."""
    return _share_of(clients, CORRUPT)


def _share_of(clients: int, share: float) -> int:
    return math.floor((share + _SMALL) * clients)


@lru_cache(maxsize=4)
def _log_factorials(most: int) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, most + 1)))])


def _log_cut(clients: int, gone: int, degree: int) -> float:
    """Return log P, at most, that the graph without those that are gone falls apart.

    The ring must have two gaps of degree / 2 clients.
    """
    if degree > gone:
        return -math.inf
    log = _log_factorials(clients)
    gaps = math.log(clients) + math.log(clients - degree - 1) - math.log(2)
    return float(gaps + log[gone] + log[clients - degree] - log[clients] - log[gone - degree])


def _log_of(clients: int, marked: int, degree: int) -> np.ndarray:
    """Return log P[i neighbours of a client are marked], (degree + 1,): a hypergeometric law."""
    log, i = _log_factorials(clients), np.arange(degree + 1)
    found = np.full(degree + 1, -np.inf)
    some = (i <= marked) & (degree - i <= clients - marked)
    i = i[some]
    others = clients - marked
    found[some] = (
        (log[marked] - log[i] - log[marked - i])
        + (log[others] - log[degree - i] - log[others - degree + i])
        - (log[clients] - log[degree] - log[clients - degree])
    )
    return found


def _fewest_above(log: np.ndarray, most: float) -> int:
    """Return the least i with log P[more than i] at most `most`."""
    reached = np.logaddexp.accumulate(log[::-1])[::-1]  # at i: log P[i or more]
    return int(np.argmax(np.append(reached[1:], -np.inf) <= most))
