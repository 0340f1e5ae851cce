"""Round robin: the clients take part in turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from layers.logic.core.plan import Plan, Population, single_lanes
from layers.logic.core.selector import Selector
from layers.logic.selectors.uniform import check_size, cohort_size


@dataclass(frozen=True)
class RoundRobin(Selector):
    """The next m clients in ascending order; after the last client comes the first one again.

    Attributes:
        fraction: C, the share of the population in a round; m = max(round(C K), 1) clients.
        count: m itself, instead of a fraction.
    """

    fraction: float = 0.0
    count: int | None = None

    by_number = True

    def __post_init__(self) -> None:
        check_size(self.fraction, self.count)

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
