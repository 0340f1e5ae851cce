"""What the server's round sees of deployed clients, event by event, without a network."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedmx.deployment import membership, round_events
from fedmx.deployment.patience import Patience
from fedmx.deployment.remote_clients import RemoteClients
from fedmx.errors import FedmxError
from fedmx.experiment.sections import MOST_VIOLATIONS
from fedmx.protocol.messages import CODEC
from fedmx.server.clients import Overhead
from layers.logic import (
    Answer,
    ClientLost,
    Offer,
    Question,
    StateLost,
    Task,
    TimerFired,
    Traffic,
    Training,
    Update,
    Verdict,
)

EMPTY = np.zeros(0, np.float32)


def a_task(client: int, round: int = 2, offer: bool = False, after: int = 0) -> Task:
    weights = np.zeros(3, np.float32)
    return Task(round, client, 0, Training(), weights, EMPTY, after, offer=offer)


def an_update(client: int, round: int = 2) -> Update:
    return Update(round, client, 10, 1, np.zeros(3, np.float32), EMPTY, {})


def an_offer(client: int, round: int = 2) -> Offer:
    return Offer(round, client, 10, 1.0)


class NoNetwork:
    """A listener that keeps what is sent, and counts as many bytes as a test says."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.bytes = {"sent_bytes": 0, "received_bytes": 0}
        self.bytes |= {"file_bytes_sent": 0, "file_bytes_received": 0}

    def send(
        self, peer: str, message: Any, address: str | None = None, replace: bool = False
    ) -> int:
        self.sent.append((peer, message))
        return 100

    def next_event(self, timeout_s: float, last: int | None = None) -> None:
        return None

    def last_event(self) -> int:
        return 0

    def disconnect(self, peer: str, reason: str, final: bool) -> None:
        self.sent.append((peer, reason))

    def traffic(self) -> Any:
        return SimpleNamespace(**self.bytes)


class Opened(NoNetwork):
    """A listener that is started and closed, and at which nobody may wait."""

    address = "127.0.0.1:1"

    def start(self) -> None:
        self.sent.append(("all", "started"))

    def close(self, linger_s: float, reason: str, final: bool) -> None:
        self.sent.append(("all", "closed"))

    def next_event(self, timeout_s: float, last: int | None = None) -> None:
        assert timeout_s == 0.0, "waits for clients"


class Round:
    """Round 2 with clients 0 to 3, who are ready; `come` gives it what they send."""

    def __init__(self, tasks: list[Task]) -> None:
        self.network: Any = NoNetwork()
        self.clients: Any = RemoteClients(self.network, rejoin_s=60.0)
        self.sessions = self.clients._sessions
        for client in range(4):
            self.sessions.membership.join(client, 10)
        self.outstanding: dict[int, Task] = {}
        self.clients.begin(2, None, self.outstanding, None)
        self.outstanding.update({task.client: task for task in tasks})
        self.clients.send(tasks)

    def come(self, *events: Any) -> list[Any]:
        """Return what the round sees of these events; a seen update or loss ends its task."""
        seen = []
        for event in events:
            passed = self.clients._tasks.of_round(event)
            if passed is not None:
                seen.append(passed)
            if isinstance(passed, Update | ClientLost):
                self.clients._tasks.end_task(event.client)
                self.outstanding.pop(event.client, None)
        return seen

    @property
    def rejections(self) -> tuple[str, ...]:
        return self.clients.overhead().rejected_connections


def test_an_update_of_the_round_is_seen_and_its_memory_is_known() -> None:
    round = Round([a_task(1, after=1), a_task(2)])
    update = an_update(1)
    assert round.come(update) == [update]
    assert round.clients.remembers(1, 1)
    assert round.clients.remembers(1, 2)
    assert not round.clients.remembers(1, 3)
    assert not round.clients.remembers(2, 2)
    assert round.rejections == ()


def in_pass(message: Any, number: int) -> Any:
    return replace(message, slots={"pass": {"number": number}})


def test_an_update_of_an_earlier_pass_that_comes_again_is_reported_and_not_seen() -> None:
    round = Round([a_task(1, after=1)])
    round.come(an_update(1))
    later = in_pass(a_task(1, after=2), 2)
    round.outstanding[1] = later
    round.clients.send([later])
    assert round.network.sent[-1] == ("client-1", later)
    assert round.come(an_update(1)) == []
    assert round.rejections == ("client 1: its update of round 2 came too late, or again",)
    update = in_pass(an_update(1), 2)
    assert round.come(update) == [update]
    assert round.clients.remembers(1, 2)
    assert round.clients.remembers(1, 1), "the round may be run again"


def test_an_update_that_comes_again_is_reported_and_not_seen() -> None:
    round = Round([a_task(1)])
    round.come(an_update(1))
    round.clients._tasks.round = 3
    assert round.come(an_update(1)) == []
    assert round.rejections == ("client 1: its update of round 2 came too late, or again",)


def test_an_update_without_a_task_is_seen_until_there_are_too_many() -> None:
    """The logic layer rejects them, and says why in the round's record."""
    round = Round([])
    updates = [an_update(1, 7) for _ in range(MOST_VIOLATIONS + 1)]
    assert round.come(*updates) == updates[:-1]
    assert round.network.sent[-1][0] == "client-1"
    assert round.rejections == ("client 1: sent an update that it was not asked for",)


@pytest.mark.parametrize("number", [2, 7])
def test_an_offer_that_was_not_asked_for_loses_the_task(number: int) -> None:
    round = Round([a_task(1)])
    reason = f"sent an offer of round {number}, not its update"
    assert round.come(an_offer(1, number)) == [ClientLost(2, 1, reason, rejected=True)]
    assert round.rejections == ("client 1: sent an offer that it was not asked for",)


def test_an_offer_is_seen_where_it_was_asked_for_and_a_lost_memory_only_with_a_task() -> None:
    round = Round([a_task(1, offer=True), a_task(2)])
    offer, lost = an_offer(1), StateLost(2, 2)
    assert round.come(offer, lost, StateLost(2, 3), StateLost(1, 2)) == [offer, lost]
    assert round.clients.remembers(1, 2)
    assert round.rejections == ()


def test_an_answer_without_a_question_is_a_violation() -> None:
    round = Round([a_task(1)])
    assert round.come(Answer(1, "labels", {}, 2)) == []
    assert round.rejections == ("client 1: sent an answer that it was not asked for",)


def test_a_verdict_is_sent_and_a_decline_ends_the_task() -> None:
    round = Round([a_task(1, offer=True), a_task(2, offer=True)])
    verdicts = [Verdict(2, 1, granted=True), Verdict(2, 2, granted=False)]
    round.network.sent.clear()
    round.clients.answer(verdicts)
    assert round.network.sent == [("client-1", verdicts[0]), ("client-2", verdicts[1])]
    assert round.clients.tree() == {"over": {2: 2}}
    times = round.clients.times()
    assert (times[1].sending_s is None, times[1].ended_s is None) == (False, True)
    assert (times[2].sending_s is None, times[2].ended_s is None) == (True, False)
    assert round.clients.traffic() == {1: Traffic(200, 0), 2: Traffic(200, 0)}


def test_the_ends_of_tasks_survive_a_checkpoint_and_a_round_that_is_run_again() -> None:
    round = Round([a_task(1), a_task(2)])
    round.come(an_update(1))
    kept = round.clients.tree()
    assert kept == {"over": {1: 2}}
    again = Round([])
    again.clients.restore(kept)
    again.clients.send([a_task(1)])
    assert again.clients.tree() == {"over": {}}


def test_a_round_that_is_left_ends_its_tasks() -> None:
    round = Round([a_task(1), a_task(2)])
    events = round.clients.events()
    round.sessions._events.extend([an_update(1)])
    assert next(events).client == 1
    del round.outstanding[1]
    events.close()
    assert round.clients.tree()["over"] == {1: 2, 2: 2}


def test_the_timer_fires_once() -> None:
    round = Round([a_task(1)])
    round.clients.set_timer(0.0)
    round.sessions._events.extend([StateLost(2, 1), StateLost(2, 1), an_update(1)])
    events = round.clients.events()
    seen = [type(next(events)) for _ in range(4)]
    assert seen == [StateLost, TimerFired, StateLost, Update]
    events.close()


def test_a_client_that_is_not_back_in_time_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 5000.0
    monkeypatch.setattr(membership, "time", SimpleNamespace(monotonic=lambda: now_s))
    round = Round([a_task(1), a_task(2)])
    round.sessions.membership.leave(1)
    now_s += 61.0
    events = round.clients.events()
    reason = "disconnected, and not back within 60 s"
    assert next(events) == ClientLost(2, 1, reason)
    assert round.clients.tree() == {"over": {1: 2}}
    events.close()


def test_a_survey_takes_one_answer_of_each_client_in_the_order_of_their_numbers() -> None:
    round = Round([])
    events = round.sessions._events
    answers = {client: Answer(client, "labels", {}, 2) for client in range(3)}
    old, other = Answer(1, "labels", {}, 1), Answer(1, "times", {}, 2)
    failed = ClientLost(0, 0, "no labels")
    events.extend([answers[2], old, other, ClientLost(1, 1, "task"), failed, answers[1]])
    assert round.clients.ask(Question("labels", round=2), [0, 1, 2], None) == [
        answers[1],
        answers[2],
    ]
    assert events == deque()
    reasons = round.rejections
    assert "client 0: no answer: no labels" in reasons
    assert "client 1: sent an answer that it was not asked for (2 times)" in reasons
    assert [peer for peer, sent in round.network.sent if isinstance(sent, Question)] == [
        "client-0",
        "client-1",
        "client-2",
    ]


def test_a_survey_does_not_wait_for_a_client_that_is_not_back_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 5000.0
    monkeypatch.setattr(membership, "time", SimpleNamespace(monotonic=lambda: now_s))
    round = Round([])
    round.sessions.membership.leave(1)
    now_s += 61.0
    assert round.clients.ask(Question("labels", round=2), [1], 5.0) == []
    assert round.rejections == ()  # it has not kept the survey until its deadline


def test_a_survey_ends_with_its_deadline() -> None:
    round = Round([])
    assert round.clients.ask(Question("labels", round=2), [3], 0.0) == []
    assert round.rejections == ("client 3: no answer within 0 s",)
    assert round.sessions.questions == {}


def test_a_task_in_flight_is_sent_again_to_a_client_that_came_back_between_the_rounds() -> None:
    round = Round([])
    round.sessions.reconnected = {1, 3}
    round.clients.begin(3, None, {1: a_task(1), 2: a_task(2)}, None)
    assert [peer for peer, _ in round.network.sent] == ["client-1"]
    assert round.sessions.reconnected == set()


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
    task = a_task(1)
    round = Round([task])
    in_flight(round)
    round.sessions._events.append(an_update(1))
    waited(round)
    round.sessions.reconnected.add(1)
    assert len(next_round(round, task)) == 1
    assert round.network.sent == []


def test_a_memory_that_was_lost_after_its_update_was_kept_stays_lost() -> None:
    task = a_task(1)
    round = Round([task])
    in_flight(round)
    round.sessions._events.append(an_update(1))
    waited(round)
    assert round.clients.remembers(1, 2)
    round.sessions.memory_rounds[1] = set()  # it is back, and has said that it has none
    assert len(next_round(round, task)) == 1
    assert not round.clients.remembers(1, 2)


@pytest.mark.parametrize("other", [None, a_task(1, round=1), a_task(2)])
def test_a_kept_update_that_the_next_round_does_not_accept_comes_too_late(
    other: Task | None,
) -> None:
    round = Round([a_task(1)])
    in_flight(round)
    round.sessions._events.append(an_update(1))
    waited(round)
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
    tasks = {client: a_task(client) for client in (1, 2)}
    round = Round(list(tasks.values()))
    in_flight(round)
    round.sessions._events.extend([an_update(1), an_update(2)])
    waited(round)
    round.outstanding = {client: task.without_vectors() for client, task in tasks.items()}
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
    task = a_task(1)
    round = Round([task])
    in_flight(round)
    round.sessions._events.append(an_update(1))
    waited(round)
    round.clients._patience = Patience(None, limit_s=0.0)  # which everybody has used up
    round.clients._patience.ask(1)
    assert [type(event) for event in next_round(round, task)] == [Update]


@pytest.mark.parametrize("how", ["a step back", "a revoked certificate"])
def test_a_kept_update_is_dropped_after(how: str) -> None:
    task = a_task(1)
    round = Round([task])
    in_flight(round)
    round.sessions._events.append(an_update(1))
    waited(round)
    if how == "a step back":
        round.clients.go_back("the run steps back")
    else:
        round.sessions.membership.bar(1)
    round.clients.begin(3, None, {1: task.without_vectors()}, 0.0)
    assert list(round.clients._tasks.kept) == []


def test_a_client_that_came_back_without_its_memory_between_rounds_is_asked_again() -> None:
    task = a_task(1, after=1)
    round = Round([task])
    in_flight(round)
    round.sessions._events.append(StateLost(2, 1))
    asked(round)
    round.clients.begin(3, None, {1: task.without_vectors()}, None)
    assert [(peer, type(sent)) for peer, sent in round.network.sent[-1:]] == [("client-1", Task)]


def test_the_listener_is_open_from_the_first_with_statement_to_the_end_of_the_last() -> None:
    network: Any = Opened()
    clients = RemoteClients(network)
    with clients:
        assert network.sent == [("all", "started")]
        with clients:
            pass
        assert network.sent == [("all", "started")]
    assert network.sent == [("all", "started"), ("all", "closed")]
    with pytest.raises(FedmxError, match="the server does not listen"):
        clients.population()


def test_the_first_round_waits_for_more_clients_than_the_others() -> None:
    network: Any = Opened()
    with RemoteClients(network, wait_for=3, at_least=2) as clients:
        known = clients._sessions.membership.samples
        known.update({0: 10, 1: 10})
        with pytest.raises(AssertionError, match="waits for clients"):
            clients.population()
        known[2] = 10
        assert clients.population() == {0: 10, 1: 10, 2: 10}
        del known[1]
        assert clients.population() == {0: 10, 2: 10}
        del known[0]
        with pytest.raises(AssertionError, match="waits for clients"):
            clients.population()


def test_files_are_told_apart_from_control_traffic() -> None:
    round = Round([a_task(1)])  # 100 bytes
    round.network.bytes.update(sent_bytes=150, received_bytes=70)
    round.network.bytes.update(file_bytes_sent=40, file_bytes_received=3)
    assert round.clients.overhead() == Overhead(control_bytes=77, file_bytes=43)
    assert round.clients.overhead() == Overhead()
