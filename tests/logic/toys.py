"""Selectors of the tests' own that several files work with, and what a selector plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from layers.logic import Offer, OpenRound, Run, Selector, Trait
from layers.logic.core.messages import Slot
from layers.logic.core.round import Answers


@dataclass(frozen=True)
class InLanes(Selector):
    """The same lanes every round, gone through several times; without lanes each client alone."""

    lanes: tuple[tuple[int, ...], ...] | None = None
    passes: int = 1
    group: str = ""

    @property
    def tasks_per_round(self) -> int:
        return self.passes

    def run(self, round: OpenRound) -> Run[None]:
        lanes = [(one,) for one in round.clients] if self.lanes is None else self.lanes
        for line in lanes:
            round.train_lane(line, group=self.group, passes=self.passes)
        yield from round.until_all()


@dataclass(frozen=True)
class Offered(Selector):
    """Everybody offers, and every offer is granted."""

    def run(self, round: OpenRound) -> Run[None]:
        for client in round.clients:
            round.train(client, offer=True)
        while round.outstanding:
            match (yield from round.next()):
                case Offer() as offer:
                    round.grant(offer)


@dataclass(frozen=True)
class FirstBack(Selector):
    """Everybody without a task trains; the first ones back end a round, and the others go on."""

    enough: int = 1

    provides = frozenset({Trait.ASYNCHRONOUS})

    @property
    def tasks_per_round(self) -> int:
        return 10

    def run(self, round: OpenRound) -> Run[None]:
        for client in round.clients:
            if client not in round.in_flight:
                round.train(client)
        while round.accepted < self.enough and round.outstanding:
            yield from round.next()


def planned(
    selector: Selector,
    round: OpenRound,
    answers: Mapping[str, Mapping[int, Slot]] | None = None,
) -> list[int]:
    """The clients that a selector lets train before its first wait, in order.

    `answers` are what clients answer, by question, then by client; the lanes are in
    `round.planned`.
    """
    steps = selector.run(round)
    wait = next(steps, None)
    while isinstance(wait, Answers):
        given = (answers or {}).get(wait.question.name, {})
        try:
            wait = steps.send({one: given[one] for one in wait.clients if one in given})
        except StopIteration:
            break
    return [client for lane in round.planned for client in lane.clients]
