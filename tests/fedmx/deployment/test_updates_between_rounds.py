"""What ends a task in flight between two rounds: what the next round sees of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fedmx.deployment import round_events
from fedmx.deployment.patience import Patience
from fedmx.protocol.messages import CODEC
from layers.logic import (
    Answer,
    ClientLost,
    Question,
    StateLost,
    Task,
    Update,
    Verdict,
)
from tests.fedmx.deployment.round_without_network import (
    Round,
    a_task,
    an_update,
)


def in_flight(round: Round) -> None:
    """Let the round be over while its clients still work on their tasks."""
    round.clients._tasks.end_tasks()
    round.network.sent.clear()


def asked(round: Round) -> None:
    """Ask client 3 a question, which it answers after all that has come before."""
    round.sessions._events.append(Answer(3, "labels", {}, 3))
    answers = round.clients.ask(Question("labels", round=3), [3], 5.0)
    assert [answer.client for answer in answers] == [3]


def waited(round: Round) -> None:
    """Wait for clients until all that has come is taken, and one more has joined."""
    members, following = round.sessions.membership, round.network.next_event
    known = len(members.samples)
    round.clients._entered, round.clients._assembled = 1, False
    round.clients._wait_for = known + 1

    def next_event(timeout_s: float, last: int | None = None) -> None:
        if timeout_s:
            members.join(known, 10)
        return following(timeout_s, last)

    round.network.next_event = next_event
    assert len(round.clients.population()) == known + 1
    round.network.next_event = following


def asked_and_waited(round: Round) -> None:
    asked(round)
    waited(round)
    asked(round)


def round_with_kept(*clients: int) -> Round:
    """Round 2, which is over; the updates of these clients came after it and were kept."""
    round = Round([a_task(client) for client in clients])
    in_flight(round)
    round.sessions._events.extend(map(an_update, clients))
    waited(round)
    return round


def next_round(round: Round, task: Task | None) -> list[Any]:
    """Begin round 3, which accepts the late update of `task`; return what it sees at once."""
    round.outstanding = {} if task is None else {task.client: task.without_vectors()}
    round.clients.begin(3, None, round.outstanding, 1.0)
    seen = []
    for event in round.clients.events():
        seen.append(event)
        round.outstanding.pop(event.client)
    return seen


@pytest.mark.parametrize("between", [asked, waited, asked_and_waited])
@pytest.mark.parametrize("event", [an_update(1), ClientLost(2, 1, "no memory left")])
def test_what_ends_a_task_in_flight_between_two_rounds_is_seen_once_in_the_next(
    event: Any, between: Callable[[Round], None]
) -> None:
    task = a_task(1)
    round = Round([task])
    in_flight(round)
    round.sessions._events.append(event)
    between(round)
    assert round.rejections == ()
    assert next_round(round, task) == [event]
    assert round.clients.remembers(1, 2) == isinstance(event, Update)
    assert round.clients.tree() == {"over": {1: 2}}
    assert round.come(event) == []
    assert round.rejections == ("client 1: its update of round 2 came too late, or again",)


def test_of_what_ends_a_task_in_flight_only_the_first_is_kept() -> None:
    task = a_task(1)
    round = Round([task])
    in_flight(round)
    first = an_update(1)
    round.sessions._events.extend([first, an_update(1), ClientLost(2, 1, "again")])
    waited(round)
    reason = "client 1: its update of round 2 came too late, or again"
    assert round.rejections == (f"{reason} (2 times)",)
    (seen,) = next_round(round, task)
    assert seen is first


def test_an_update_that_is_too_large_to_be_kept_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks = {client: a_task(client) for client in (1, 2)}
    size = CODEC.encode(an_update(1)).size
    monkeypatch.setattr(round_events, "KEPT_BYTES", 2 * size - 1)
    round = Round(list(tasks.values()))
    in_flight(round)
    round.sessions._events.extend([an_update(1), an_update(2), an_update(2)])
    waited(round)
    reason = "client 2: its update of round 2 came too late, or again"
    assert round.rejections == (reason,), "the first one is asked for again, and the second unasked"
    assert [event.client for event in next_round(round, tasks[1])] == [1]
    monkeypatch.setattr(round_events, "KEPT_BYTES", size)
    for first in (1, 2):  # what is kept no longer takes no memory
        in_flight(round)
        round.outstanding = tasks
        round.clients._tasks.outstanding = tasks
        round.sessions._events.append(an_update(first))
        waited(round)
        assert [event.client for event in next_round(round, tasks[first])] == [first]


def test_a_client_whose_update_was_kept_is_not_asked_for_it_again() -> None:
    round = round_with_kept(1)
    round.sessions.reconnected.add(1)
    assert len(next_round(round, a_task(1))) == 1
    assert round.network.sent == []


def test_a_memory_that_was_lost_after_its_update_was_kept_stays_lost() -> None:
    round = round_with_kept(1)
    assert round.clients.remembers(1, 2)
    round.sessions.memory_rounds[1] = set()  # it is back, and has said that it has none
    assert len(next_round(round, a_task(1))) == 1
    assert not round.clients.remembers(1, 2)


@pytest.mark.parametrize("other", [None, a_task(1, round=1), a_task(2)])
def test_a_kept_update_that_the_next_round_does_not_accept_comes_too_late(
    other: Task | None,
) -> None:
    round = round_with_kept(1)
    round.clients.begin(3, None, {} if other is None else {other.client: other}, 0.0)
    assert list(round.clients.events()) == []
    assert round.rejections == ("client 1: its update of round 2 came too late, or again",)


def test_an_update_of_a_task_that_is_not_in_flight_is_not_kept() -> None:
    round = Round([a_task(1)])
    in_flight(round)
    round.outstanding.clear()  # the round has given it up
    round.sessions._events.extend([an_update(1), an_update(2, 7)])
    waited(round)
    assert round.rejections == (
        "client 1: its update of round 2 came too late, or again",
        "client 2: sent an update that it was not asked for",
    )


def round_with_two_kept() -> Round:
    """Round 3, which has just begun, with the updates of clients 1 and 2 that came before it."""
    round = round_with_kept(1, 2)
    round.outstanding = {client: a_task(client).without_vectors() for client in (1, 2)}
    round.clients.begin(3, None, round.outstanding, 1.0)
    return round


def test_kept_updates_that_a_round_did_not_need_are_seen_in_the_one_after_it() -> None:
    round = round_with_two_kept()
    events = round.clients.events()
    assert next(events).client == 1
    del round.outstanding[1]
    events.close()
    waited(round)
    assert [event.client for event in next_round(round, a_task(2))] == [2]
    assert round.rejections == ()


def test_a_kept_update_of_a_round_that_has_enough_comes_too_late() -> None:
    round = round_with_two_kept()
    seen = []
    for event in round.clients.events():
        seen.append(event.client)
        round.clients.answer([Verdict(2, 2, granted=False)])
        round.outstanding.clear()
    assert seen == [1]
    round.clients.begin(4, None, {}, 0.0)
    assert round.rejections == ("client 2: its update of round 2 came too late, or again",)


def test_the_patience_with_a_client_ends_when_its_update_is_kept() -> None:
    round = round_with_kept(1)
    round.clients._patience = Patience(None, limit_s=0.0)  # which everybody has used up
    round.clients._patience.ask(1)
    assert [type(event) for event in next_round(round, a_task(1))] == [Update]


@pytest.mark.parametrize("how", ["a step back", "a revoked certificate"])
def test_a_kept_update_is_dropped_after(how: str) -> None:
    round = round_with_kept(1)
    if how == "a step back":
        round.clients.go_back("the run steps back")
    else:
        round.sessions.membership.bar(1)
    round.clients.begin(3, None, {1: a_task(1).without_vectors()}, 0.0)
    assert list(round.clients._tasks.kept) == []


def test_a_client_that_came_back_without_its_memory_between_rounds_is_asked_again() -> None:
    task = a_task(1, after=1)
    round = Round([task])
    in_flight(round)
    round.sessions._events.append(StateLost(2, 1))
    asked(round)
    round.clients.begin(3, None, {1: task.without_vectors()}, None)
    assert [(peer, type(sent)) for peer, sent in round.network.sent[-1:]] == [("client-1", Task)]
