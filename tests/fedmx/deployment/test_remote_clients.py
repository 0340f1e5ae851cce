"""What the server's round sees of deployed clients, event by event, without a network."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fedmx.deployment import membership
from fedmx.deployment.remote_clients import RemoteClients
from fedmx.errors import FedmxError
from fedmx.experiment.sections import MOST_VIOLATIONS
from fedmx.server.clients import Overhead
from layers.logic import (
    Answer,
    ClientLost,
    Question,
    StateLost,
    TimerFired,
    Traffic,
    Update,
    Verdict,
)
from tests.fedmx.deployment.round_without_network import (
    Opened,
    Round,
    a_task,
    an_offer,
    an_update,
)


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
