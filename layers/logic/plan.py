"""Who takes part in a round, and in what order: lanes of clients, drawn from a population."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from layers.logic.errors import LogicError
from layers.logic.exchange import Slot


@dataclass(frozen=True)
class Population:
    """The clients that can be asked in this round.

    Attributes:
        samples: number of samples by client; a client without samples is never selected.
        answers: what each client answered to the surveys: question, then client.
    """

    samples: Mapping[int, int]
    answers: Mapping[str, Mapping[int, Slot]] = field(default_factory=dict)

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients that have samples, in ascending order."""
        return tuple(sorted(client for client, n in self.samples.items() if n > 0))


@dataclass(frozen=True)
class Plan:
    """The lanes of one round.

    A lane is an ordered list of clients, each of which starts from the weights that the one
    before it in the lane returned. FedAvg: K lanes of one client.

    Attributes:
        lanes: no client stands in two places.
        offers: whether clients offer their update before they send it; only with lanes of one
            client, since the next in a lane cannot begin before the verdict.
    """

    lanes: tuple[tuple[int, ...], ...]
    offers: bool = False

    def __post_init__(self) -> None:
        clients = self.clients
        if len(set(clients)) != len(clients):
            twice = sorted({client for client in clients if clients.count(client) > 1})
            raise LogicError(f"a plan names clients {twice} twice; a client has one place in it")
        if not all(self.lanes):
            raise LogicError("a plan has an empty lane; leave it out")
        if self.offers and any(len(lane) > 1 for lane in self.lanes):
            raise LogicError("a plan with offers has lanes of several clients; use single_lanes()")

    @property
    def clients(self) -> tuple[int, ...]:
        """Every client of the plan, lane by lane."""
        return tuple(client for lane in self.lanes for client in lane)


def single_lanes(clients: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return one lane a client, in ascending order, so that a cohort has one plan."""
    return tuple((client,) for client in sorted(clients))
