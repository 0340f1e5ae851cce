"""Cyclic participation: each client takes part in one round of a cycle, always in the same one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from layers.logic.core.round import OpenRound
from layers.logic.core.selector import Selector
from layers.logic.seeds import generator
from layers.settings import Count


@dataclass(frozen=True)
class Cyclic(Selector):
    """Each client takes part in one round of every `period` rounds, whoever else does.

    Source: Cho et al. 2023, "On the convergence of federated averaging with cyclic client
    participation"; all clients of a group take part.

    Of `period` clients with consecutive numbers, each takes part in another round of the cycle. The
    order is drawn from the experiment's seed. No other client replaces one that is not there.

    Attributes:
        period: R, the number of rounds of a cycle; about N / R clients take part in a round.
    """

    name = "cyclic"

    period: Count = 10

    def select(self, round: OpenRound) -> Iterable[int]:
        """Return the clients whose round of the cycle it is."""
        clients = round.sizes.ids
        if not clients.size:
            return ()
        # Row by row, so that no client's place depends on how many there are.
        rows = int(clients.max()) // self.period + 1
        draws = generator(round.seed, "cyclic").random((rows, self.period))
        order = draws.argsort(axis=1, kind="stable")
        places = order[clients // self.period, clients % self.period]
        chosen: list[int] = clients[places == (round.number - 1) % self.period].tolist()
        return chosen
