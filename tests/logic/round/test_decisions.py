"""A round decides by its events alone: each case has events, and the commands that they cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from layers.logic import (
    ClientLost,
    Offer,
    OpenRound,
    RoundMachine,
    Run,
    Selector,
    StateLost,
    TimerFired,
    Update,
    Verdict,
)
from layers.logic.round.exchange import (
    Begin,
    Cancel,
    Close,
    Command,
    Costs,
    Event,
    Joined,
    Left,
    ReportCosts,
    SendTask,
    SetTimer,
)
from layers.logic.round.patience import FIRST_S, PATIENCE, Patience
from tests.logic.memory_carrier import a_logic, a_state, alone


def update(client: int, round: int = 1) -> Update:
    delta = np.full(3, 0.5, np.float32)
    return Update(round, client, 10, 1, delta, np.zeros(1, np.float32), {"loss": 1.0})


def offer(client: int) -> Offer:
    return Offer(1, client, 10, 1.0, metrics={"loss": 1.0})


def lost(client: int) -> ClientLost:
    return ClientLost(1, client, "cable cut")


@dataclass(frozen=True)
class Offering(Selector):
    """All clients offer; after 5 s the selector grants the offers of even numbers."""

    def run(self, round: OpenRound) -> Run[None]:
        for client in round.clients:
            round.train(client, offer=True)
        while (yield from round.next(until_s=5.0)) is not None:
            pass
        for offer in list(round.offers.values()):
            (round.decline if offer.client % 2 else round.grant)(offer)
        yield from round.until_all()


@dataclass(frozen=True)
class First(Selector):
    """The first of everybody is enough."""

    def run(self, round: OpenRound) -> Run[None]:
        for client in round.clients:
            round.train(client)
        yield from round.until(accepted=1)


@dataclass
class Case:
    """A round of clients 0 to 2, its events with their times, and what comes of it.

    Attributes:
        events: the events, each with its time in seconds.
        commands: the commands that the last event causes, but for the end of the round.
        fates: the fate of each client.
        logic: settings of the logic.
        patience: of the round.
        memory: of the state before it.
    """

    events: Sequence[tuple[float, Event]]
    commands: Sequence[Command]
    fates: dict[int, str]
    selector: Selector = alone(0, 1, 2)  # noqa: RUF009 - it is frozen
    deadline_s: float | None = None
    patience: Patience | None = None
    memory: dict[str, Any] | None = None


CASES = {
    "all come": Case(
        [(1.0, update(2)), (2.0, update(0)), (3.0, update(1))],
        [],
        {0: "accepted", 1: "accepted", 2: "accepted"},
    ),
    "the deadline passes": Case(
        [(1.0, update(2)), (4.0, TimerFired("deadline"))],
        [Cancel(0), Cancel(1)],
        {0: "lost", 1: "lost", 2: "accepted"},
        deadline_s=4.0,
    ),
    "enough have come": Case(
        [(1.0, update(2))],
        [Verdict(1, 0, False), Verdict(1, 1, False)],
        {0: "declined", 1: "declined", 2: "accepted"},
        selector=First(),
    ),
    "one is lost, and the others come": Case(
        [(1.0, lost(1)), (2.0, update(0)), (3.0, update(2))],
        [],
        {0: "accepted", 1: "lost", 2: "accepted"},
    ),
    "one is silent for too long": Case(
        [(1.0, update(0)), (1.5, update(2)), (6.0, TimerFired("patience"))],
        [Cancel(1, "connected, but no answer within 6 s")],
        {0: "accepted", 1: "lost", 2: "accepted"},
        patience=Patience(limit_s=6.0),
    ),
    "the patience follows the answers of before and of this round": Case(
        [(1.0, update(0)), (1.5, update(2)), (900.0, TimerFired("patience"))],
        [Cancel(1, "connected, but no answer within 900 s")],
        {0: "accepted", 1: "lost", 2: "accepted"},
        patience=Patience(times=10.0),
        memory={PATIENCE: {"took_s": np.array([90.0, 100.0, 110.0])}},
    ),
    "offers are decided at their moment, and all that is open at the end is declined": Case(
        [
            (1.0, offer(0)),
            (2.0, offer(1)),
            (5.0, TimerFired("offers")),
            (6.0, update(0)),
            (7.0, lost(2)),
        ],
        [],
        {0: "accepted", 1: "declined", 2: "lost"},
        selector=Offering(),
    ),
    "somebody joins and leaves in the meantime": Case(
        [
            (1.0, Joined(7, 10)),
            (1.0, Left(1)),
            (2.0, update(0)),
            (3.0, update(1)),
            (4.0, update(2)),
        ],
        [],
        {0: "accepted", 1: "rejected", 2: "accepted"},  # nobody of that number is known any more
    ),
}


def driven(case: Case) -> tuple[RoundMachine, list[Sequence[Command]]]:
    logic = a_logic(case.selector, deadline_s=case.deadline_s)
    state = replace(a_state(logic), memory=case.memory or {})
    round = RoundMachine(state, logic, untrusted=True, patience=case.patience)
    given = [round.start(dict.fromkeys(range(3), 10))]
    for at_s, event in case.events:
        given.append(round.handle(event, at_s))
    return round, given


@pytest.mark.parametrize("name", CASES)
def test_the_events_of_a_round_decide_its_commands_and_fates(name: str) -> None:
    case = CASES[name]
    round, given = driven(case)
    first, last = given[0], list(given[-1])
    assert first[0] == Begin(1)
    assert [one.task.client for one in first if isinstance(one, SendTask)] == [0, 1, 2]
    assert last[-2:] == [Close(), ReportCosts()]
    timers = [one for one in last if isinstance(one, SetTimer) and one not in case.commands]
    assert all(one.at_s is None for one in timers), "no timer is left at the end"
    assert [one for one in last[:-2] if one not in timers] == list(case.commands)
    assert not round.done
    round.handle(Costs(7.5), 7.5)
    _, report = round.result()
    assert {one.client: one.status for one in report.clients} == case.fates
    assert report.took_s == 7.5


@pytest.mark.parametrize(
    ("name", "limit_s", "expected"),
    [
        # Client 1 was asked first, and all the time.
        ("one is silent for too long", 6.0, [("patience", 6.0)]),
        ("the deadline passes", 60.0, [("deadline", 4.0), ("patience", 60.0), ("patience", None)]),
    ],
)
def test_a_timer_is_set_when_it_changes_and_not_again(name, limit_s, expected) -> None:
    _, given = driven(replace(CASES[name], patience=Patience(limit_s=limit_s)))
    timers = [one for commands in given for one in commands if isinstance(one, SetTimer)]
    assert [(one.name, one.at_s) for one in timers] == expected


def test_without_a_deadline_the_first_clients_have_the_first_limit_alone() -> None:
    _, given = driven(Case([], [], {}, patience=Patience(times=10.0)))
    assert SetTimer("patience", FIRST_S) in given[0]


def test_a_client_without_its_memory_gets_another_task_and_new_patience() -> None:
    logic = a_logic(alone(0))
    state = replace(a_state(logic), round=4, last_accepted={0: 3})
    round = RoundMachine(state, logic, untrusted=True, patience=Patience(limit_s=6.0))
    tasks = [one.task for one in round.start({0: 10}) if isinstance(one, SendTask)]
    again = round.handle(StateLost(5, 0), 2.0)
    tasks += [one.task for one in again if isinstance(one, SendTask)]
    assert [task.last_accepted_round for task in tasks] == [3, 0]
    assert SetTimer("patience", 8.0) in again
