"""Cohorts drawn uniformly, in turn, or in proportion to the clients' sizes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from layers.logic.core.declaration import Need, Trait
from layers.logic.core.round import OpenRound, Run
from layers.logic.core.selector import Selector
from layers.logic.selectors.draws import draw_by_size, draw_uniform
from layers.settings import Count, Share

FEW = 10
"""The most clients that all take part in each round, if no fraction is given."""


@dataclass(frozen=True)
class CohortSelector(Selector):
    """Selects cohorts of a given size.

    Attributes:
        fraction: C, the share of the population in a round; m = max(round(C K), 1) clients. null:
            0.1, and all of a population of up to 10.
        count: m itself, instead of a fraction.
    """

    fraction: Share | None = 0.1
    count: Count | None = None

    def size(self, clients: int) -> int:
        """Return m, the size of a cohort of so many clients."""
        return cohort_size(self.fraction, self.count, clients)


def cohort_size(fraction: float | None, count: int | None, clients: int) -> int:
    """Return m = max(round(C K), 1), or `count` if given; at most the number of clients.

    Without a fraction, all of up to `FEW` clients are a cohort, and a tenth of more.
    """
    if fraction is None:
        fraction = 1.0 if clients <= FEW else 0.1
    wanted = count if count is not None else max(int(np.floor(fraction * clients + 0.5)), 1)
    return min(wanted, clients)


class Draw(CohortSelector):
    """A selector that is a draw of clients: the first m of them to return are enough."""

    @abstractmethod
    def draw(self, round: OpenRound, number: int) -> Iterable[int]:
        """Return `number` different clients, or fewer if no more can take part."""

    def run(self, round: OpenRound) -> Run[None]:
        """Draw m clients, and more with over-selection; the first m to return count."""
        if m := self.size(len(round.clients)):  # max(C K, 1)
            for client in sorted(self.draw(round, round.asked(m))):  # S_t
                round.train(client)
            yield from round.until(accepted=m)


@dataclass(frozen=True)
class Uniform(Draw):
    """All clients are drawn with the same probability.

    Source: McMahan et al. 2017, algorithm 1 (the random set S_t).
    """

    name = "uniform"

    fraction: Share | None = None

    provides = frozenset({Trait.BY_NUMBER})

    def draw(self, round: OpenRound, number: int) -> Iterable[int]:
        clients = round.clients
        return (clients[place] for place in draw_uniform(round.rng, len(clients), number))


@dataclass(frozen=True)
class RoundRobin(Draw):
    """The next m clients in ascending order; after the last client comes the first one again.

    Attributes:
        fraction: C, the share of the population in a round; m = max(round(C K), 1) clients.
    """

    name = "round-robin"

    fraction: Share = 0.0

    provides = frozenset({Trait.BY_NUMBER})

    def draw(self, round: OpenRound, number: int) -> Iterable[int]:
        clients = round.clients
        first = (round.number - 1) * self.size(len(clients))
        return (clients[(first + step) % len(clients)] for step in range(number))


@dataclass(frozen=True)
class BySize(Draw):
    """Draws clients with a probability in proportion to n_k, without replacement.

    With `aggregator: {name: mean, weights: uniform}` the expected update is that of FedAvg over all
    clients: exactly if one client is drawn, and nearly if the cohort is small compared with the
    population. An aggregator with `weights: samples` is refused: it would count sizes twice.
    """

    name = "by-size"

    requires = frozenset({Need.EQUAL_WEIGHTS})

    def draw(self, round: OpenRound, number: int) -> Iterable[int]:
        drawn = draw_by_size(round.rng, round.sizes, number)
        return (round.clients[place] for place in drawn)
