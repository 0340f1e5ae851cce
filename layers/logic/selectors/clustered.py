"""Clustered sampling by size (Fraboni et al. 2021, algorithm 1): a client of each distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layers.logic.client_sizes import ClientSizes
from layers.logic.core.declaration import Need
from layers.logic.core.round import OpenRound, Run
from layers.logic.selectors.uniform import CohortSelector

MOST = 1 << 62


@dataclass(frozen=True)
class Clustered(CohortSelector):
    """One client is drawn from each of m distributions over the clients.

    The clients lie side by side on a line, each on a piece of length m n_k: the largest first, and
    the higher number first between equal ones. The line is cut into m equal parts: the
    distributions. On average a client is drawn m n_k / n times, as in m draws by size; a client of
    2 n / m samples or more is always drawn. The mean is sum_k (draws of k / m) w_k: a client that
    is drawn twice trains once and has the weight 2 / m. Use it with `aggregator: {name: mean,
    weights: plan}`; rules that count all clients alike, such as `median`, count one that is drawn
    twice once. It keeps nothing.

    Attributes:
        fraction: C, the share of the population in a round; m = max(round(C K), 1) draws.
    """

    name = "clustered"

    requires = frozenset({Need.EQUAL_WEIGHTS, Need.PLAN_WEIGHTS})

    def run(self, round: OpenRound) -> Run[None]:
        sizes = round.sizes
        clients = sizes.ids
        if not clients.size:
            return
        m = self.size(clients.size)
        draws = round.asked(m)
        largest_first, ends = sizes.once(("line", draws), lambda: _line(sizes, draws))
        total = int(ends[-1]) // draws
        points = np.arange(draws) * total + round.rng.integers(total, size=draws)
        drawn = clients[largest_first[np.searchsorted(ends, points, side="right")]]
        chosen, times = np.unique(drawn, return_counts=True)
        for client, weight in zip(chosen, (times / draws).tolist(), strict=True):
            round.train(client, weight=weight)
        yield from round.until(accepted=-(-chosen.size * m // draws))  # all without over-selection


def _line(clients: ClientSizes, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the clients on the line, int64 (n,), and where each piece ends."""
    # Clients may report absurd sizes: the line must not become too long for int64.
    sizes = np.minimum(clients.sizes, MOST // (clients.ids.size * draws))
    largest_first = np.lexsort((-clients.ids, -sizes))
    return largest_first, np.cumsum(sizes[largest_first]) * draws
