"""Cohorts drawn uniformly, in turn, or in proportion to the clients' sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from layers.logic.core.declaration import Need, Trait
from layers.logic.core.plan import Plan, Population, single_lanes
from layers.logic.core.selector import Selector
from layers.logic.selectors.draws import draw_by_size, draw_uniform
from layers.settings import Count, Share


@dataclass(frozen=True)
class Uniform(Selector):
    """All clients are drawn with the same probability.

    Source: McMahan et al. 2017, algorithm 1 (the random set S_t).

    Attributes:
        fraction: C, the share of the population in a round; m = max(round(C K), 1) clients.
        count: m itself, instead of a fraction.
    """

    name = "uniform"

    fraction: Share = 0.1
    count: Count | None = None

    provides = frozenset({Trait.BY_NUMBER})

    def select(
        self,
        population: Population,
        memory: Mapping[str, Any],
        round: int,
        rng: np.random.Generator,
    ) -> Plan:
        """Draw a cohort."""
        clients = population.clients
        m = cohort_size(self.fraction, self.count, len(clients))
        drawn = draw_uniform(rng, len(clients), population.asked(m))
        return Plan(single_lanes(clients[place] for place in drawn), enough=max(m, 1))


def cohort_size(fraction: float, count: int | None, clients: int) -> int:
    """Return m = max(round(C K), 1), or `count` if given; at most the number of clients."""
    wanted = count if count is not None else max(int(np.floor(fraction * clients + 0.5)), 1)
    return min(wanted, clients)


@dataclass(frozen=True)
class RoundRobin(Selector):
    """The next m clients in ascending order; after the last client comes the first one again.

    Attributes:
        fraction: C, the share of the population in a round; m = max(round(C K), 1) clients.
        count: m itself, instead of a fraction.
    """

    name = "round-robin"

    fraction: Share = 0.0
    count: Count | None = None

    provides = frozenset({Trait.BY_NUMBER})

    def select(
        self,
        population: Population,
        memory: Mapping[str, Any],
        round: int,
        rng: np.random.Generator,
    ) -> Plan:
        """Take the next clients."""
        clients = population.clients
        m = cohort_size(self.fraction, self.count, len(clients))
        first = (round - 1) * m
        asked = population.asked(m)
        taken = tuple(clients[(first + step) % len(clients)] for step in range(asked))
        return Plan(single_lanes(taken), enough=max(m, 1))


@dataclass(frozen=True)
class BySize(Selector):
    """Draws clients with a probability in proportion to n_k, without replacement.

    With `aggregator: {name: mean, weights: uniform}` the expected update is that of FedAvg over all
    clients: exactly if one client is drawn, and nearly if the cohort is small compared with the
    population. An aggregator with `weights: samples` is refused: it would count sizes twice.

    Attributes:
        fraction: C, the share of the population in a round; m = max(round(C K), 1) clients.
        count: m itself, instead of a fraction.
    """

    name = "by-size"

    fraction: Share = 0.1
    count: Count | None = None

    requires = frozenset({Need.EQUAL_WEIGHTS})

    def select(
        self,
        population: Population,
        memory: Mapping[str, Any],
        round: int,
        rng: np.random.Generator,
    ) -> Plan:
        """Draw a cohort."""
        clients = population.clients
        if not clients:
            return Plan(())
        m = cohort_size(self.fraction, self.count, len(clients))
        asked = population.asked(m)
        drawn = draw_by_size(rng, population.sizes, asked)
        return Plan(single_lanes(clients[place] for place in drawn), enough=m)
