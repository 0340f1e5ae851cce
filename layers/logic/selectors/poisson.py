"""Poisson sampling: each client decides by a coin of its own whether it takes part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from layers.logic.core.round import OpenRound
from layers.logic.core.selector import Selector
from layers.settings import PositiveShare


@dataclass(frozen=True)
class Poisson(Selector):
    """Each client takes part in a round with probability q, whoever else does.

    The number of clients varies from round to round, and may be 0; set `min_updates` to 0. The
    draws follow the server's secret: privacy is amplified by sampling only if nobody knows who was
    drawn.

    Attributes:
        probability: q, above 0 and at most 1.
    """

    name = "poisson"

    probability: PositiveShare = 0.1

    def select(self, round: OpenRound) -> Iterable[int]:
        clients = round.sizes.ids
        if not clients.size:
            return ()
        # One draw for each number, so that no client's draw depends on who else is there.
        draws = round.secret.draws("cohort")
        drawn = draws.below(self.probability, int(clients.max()) + 1)[clients]
        chosen: list[int] = clients[drawn].tolist()
        return chosen
