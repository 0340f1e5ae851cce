"""What ends a task in flight between two rounds: what the next round sees of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fedmx.deployment import remote_clients
from fedmx.protocol.messages import CODEC
from layers.logic import Answer, ClientLost, Question, ServerState, StateLost, Task, Update, Verdict
from layers.logic.round.exchange import Answered, Ask, Begin, Cancel, Close
from tests.fedmx.deployment.round_without_network import EMPTY, Round, a_task, an_offer, an_update

LATE = "its update of round 2"


def in_flight(round: Round) -> None:
    """Let the round be over while its clients still work on their tasks."""
    round.carry(Close())
    round.network.sent.clear()


def asked(round: Round, client: int = 3) -> None:
    """Ask a client a question, which it answers after all that has come before."""
    round.carry(Ask(Question("labels", round=3), (client,)))
    answer = Answer(client, "labels", {}, 3)
    round.sessions._events.append(answer)
    seen = [round.clients._next() for _ in range(len(round.sessions._events))]
    assert [one for one in seen if one is not None] == [Answered(answer)]


def waited(round: Round) -> None:
    """Wait for clients until all that has come is taken, and one more has joined."""
    members, following = round.sessions.membership, round.network.next_event
    known = len(members.samples)
    round.clients._assembled = False
    round.clients._wait_for = known + 1

    def next_event(timeout_s: float, last: int | None = None) -> None:
        if timeout_s:
            members.join(known, 10)
        return following(timeout_s, last)

    round.network.next_event = next_event
    _, population = round.clients.open_round(ServerState(2, EMPTY, EMPTY))
    assert len(population) == known + 1
    round.network.next_event = following


def asked_itself(round: Round) -> None:
    asked(round, 1)


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


def next_round(round: Round, *tasks: Task) -> list[Any]:
    """Begin round 3, which accepts the late updates of tasks; return what it sees at once."""
    round.carry(Begin(3, late=tuple(task.without_vectors() for task in tasks)))
    return round.seen()


@pytest.mark.parametrize("between", [asked, asked_itself, waited, asked_and_waited])
@pytest.mark.parametrize("event", [an_update(1), ClientLost(2, 1, "no memory left")])
def test_what_ends_a_task_in_flight_between_two_rounds_is_seen_once_in_the_next(
    event: Any, between: Callable[[Round], None]
) -> None:
    task = a_task(1)
    round = Round([task])
    in_flight(round)
    round.sessions._events.append(event)
    between(round)
    assert next_round(round, task) == [event]
    assert (2 in round.knows(1)) == isinstance(event, Update)
    assert round.clients.tree() == {"over": {1: 2}}
    assert round.rejections == ()
    assert round.come(event) == []
    (reason,) = round.rejections
    assert LATE in reason


def test_of_what_ends_a_task_in_flight_only_the_first_is_kept() -> None:
    task = a_task(1)
    round = Round([task])
    in_flight(round)
    first = an_update(1)
    round.sessions._events.extend([first, an_update(1), ClientLost(2, 1, "again")])
    waited(round)
    (seen,) = next_round(round, task)
    assert seen is first
    (reason,) = round.rejections
    assert LATE in reason
    assert "(2 times)" in reason


def test_an_update_too_large_to_keep_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = {client: a_task(client) for client in (1, 2)}
    size = CODEC.encode(an_update(1)).size
    monkeypatch.setattr(remote_clients, "KEPT_BYTES", 2 * size - 1)
    round = Round(list(tasks.values()))
    in_flight(round)
    round.sessions._events.extend([an_update(1), an_update(2), an_update(2)])
    waited(round)
    assert [event.client for event in next_round(round, *tasks.values())] == [1]
    (reason,) = round.rejections
    assert "client 2" in reason, "the first one is asked for again, and the second unasked"
    monkeypatch.setattr(remote_clients, "KEPT_BYTES", size)
    for first in (1, 2):  # an update that is kept no longer takes no memory
        round.carry(Begin(2, late=tuple(tasks.values())))
        in_flight(round)
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
    assert 2 in round.knows(1)
    round.sessions.memory_rounds[1] = set()  # it is back, and has said that it has none
    assert len(next_round(round, a_task(1))) == 1
    assert 2 not in round.knows(1)


@pytest.mark.parametrize("other", [None, a_task(1, round=1), a_task(2)])
def test_a_kept_update_that_the_next_round_does_not_accept_comes_too_late(
    other: Task | None,
) -> None:
    round = round_with_kept(1)
    assert next_round(round, *([] if other is None else [other])) == []
    (reason,) = round.rejections
    assert LATE in reason


def test_an_update_of_a_task_that_is_not_in_flight_is_not_kept() -> None:
    round = Round([a_task(1)])
    round.carry(Cancel(1))
    in_flight(round)
    round.sessions._events.extend([an_update(1), an_update(2, 7)])
    waited(round)
    first, second = round.rejections
    assert first.startswith("client 1")
    assert LATE in first
    assert second.startswith("client 2")


def test_kept_updates_that_a_round_did_not_need_are_seen_in_the_one_after_it() -> None:
    round = round_with_kept(1, 2)
    round.carry(Begin(3, late=(a_task(1), a_task(2))))
    assert round.clients._next().client == 1
    round.carry(Close())
    waited(round)
    assert [event.client for event in next_round(round, a_task(2))] == [2]
    assert round.rejections == ()


def test_a_kept_update_of_a_round_that_has_enough_comes_too_late() -> None:
    round = round_with_kept(1, 2)
    round.carry(Begin(3, late=(a_task(1), a_task(2))))
    assert round.clients._next().client == 1
    round.carry(Verdict(2, 2, granted=False))
    assert round.seen() == []
    (reason,) = round.rejections
    assert reason.startswith(f"client 2: {LATE}")


@pytest.mark.parametrize("how", ["a step back", "a revoked certificate"])
def test_a_kept_update_is_dropped_after(how: str) -> None:
    round = round_with_kept(1)
    if how == "a step back":
        round.clients.forget("the run steps back")
    else:
        round.sessions.membership.bar(1)
    round.carry(Begin(3, late=(a_task(1).without_vectors(),)))
    assert list(round.clients._kept) == []


def test_a_client_that_came_back_without_its_memory_between_rounds_is_asked_again() -> None:
    task = a_task(1, after=1)
    round = Round([])
    round.carry(Begin(2, late=(task,)))
    in_flight(round)
    round.sessions._events.append(StateLost(2, 1))
    asked(round)
    round.carry(Begin(3, late=(task.without_vectors(),)))
    assert [(peer, type(sent)) for peer, sent in round.network.sent[-1:]] == [("client-1", Task)]


def test_an_offer_between_two_rounds_is_too_late_and_the_update_after_it_is_not() -> None:
    round = Round([a_task(1, offer=True)])
    in_flight(round)
    round.sessions._events.extend([an_offer(1), an_update(1)])
    waited(round)
    assert [type(one) for one in round.clients._kept.values()] == [Update]
    assert [one.round for one in next_round(round, a_task(1, offer=True))] == [2]
    (reason,) = round.rejections
    assert reason == "client 1: its offer of round 2 came too late, or again"
