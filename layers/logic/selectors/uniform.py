"""Uniform selection without replacement (McMahan et al. 2017, algorithm 1: a random set S_t)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from layers.logic.core.plan import Plan, Population, single_lanes
from layers.logic.core.selector import Selector
from layers.logic.errors import LogicError
from layers.logic.selectors.weighted import draw_uniform


@dataclass(frozen=True)
class Uniform(Selector):
    """All clients are drawn with the same probability.

    Attributes:
        fraction: C, the share of the population in a round; m = max(round(C K), 1) clients.
        count: m itself, instead of a fraction.
    """

    fraction: float = 0.1
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
        """Draw a cohort."""
        clients = population.clients
        m = cohort_size(self.fraction, self.count, len(clients))
        drawn = draw_uniform(rng, len(clients), population.asked(m))
        return Plan(single_lanes(clients[place] for place in drawn), enough=max(m, 1))


def check_size(fraction: float, count: int | None) -> None:
    """Raise `LogicError` unless `fraction` is in [0, 1] and `count` is None or positive."""
    if not 0 <= fraction <= 1:
        raise LogicError(f"fraction must be between 0 and 1, not {fraction}")
    if count is not None and count < 1:
        raise LogicError(f"count must be 1 or more, not {count}")


def cohort_size(fraction: float, count: int | None, clients: int) -> int:
    """Return m = max(round(C K), 1), or `count` if given; at most the number of clients."""
    wanted = count if count is not None else max(int(np.floor(fraction * clients + 0.5)), 1)
    return min(wanted, clients)
