"""What the server's round sees of deployed clients, event by event, without a network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmx.deployment.remote_clients import RemoteClients
from fedmx.errors import FedmxError
from fedmx.experiment.sections import MOST_VIOLATIONS
from layers.logic import (
    Answer,
    ClientLost,
    Question,
    ServerState,
    StateLost,
    TimerFired,
    Traffic,
    Verdict,
)
from layers.logic.core.report import Overhead
from layers.logic.round.exchange import (
    Answered,
    Ask,
    Begin,
    Cancel,
    Close,
    Joined,
    Left,
    SendTask,
    SetTimer,
)
from tests.fedmx.deployment.round_without_network import (
    EMPTY,
    Opened,
    Round,
    a_task,
    an_offer,
    an_update,
)

STATE = ServerState(0, EMPTY, EMPTY)


def test_an_update_of_the_round_is_seen_and_its_memory_is_known() -> None:
    round = Round([a_task(1), a_task(2)])
    round.sessions.memory_rounds[1] = {1}  # a client keeps that of one round besides the last
    update = an_update(1)
    assert round.come(update) == [update]
    assert (round.knows(1), round.knows(2)) == ({0, 2}, set())
    assert round.rejections == ()


def in_pass(message: Any, number: int) -> Any:
    return replace(message, pass_number=number)


def test_an_update_of_an_earlier_pass_that_comes_again_is_reported_and_not_seen() -> None:
    round = Round([a_task(1)])
    round.come(an_update(1))
    later = in_pass(a_task(1, after=2), 2)
    round.carry(SendTask(later))
    assert round.network.sent[-1] == ("client-1", later)
    assert round.come(an_update(1)) == []
    (reason,) = round.rejections
    assert reason.startswith("client 1: its update of round 2")
    update = in_pass(an_update(1), 2)
    assert round.come(update) == [update]
    assert round.knows(1) >= {0, 2}, "the round may be run again"


def test_an_update_without_a_task_is_seen_until_there_are_too_many() -> None:
    """The round rejects them, and says why in its record."""
    round = Round([])
    updates = [an_update(1, 7) for _ in range(MOST_VIOLATIONS + 1)]
    assert round.come(*updates) == updates[:-1]
    assert round.network.sent[-1][0] == "client-1"
    (reason,) = round.rejections
    assert reason.startswith("client 1: sent an update")


@pytest.mark.parametrize("number", [2, 7])
def test_an_offer_that_was_not_asked_for_loses_the_task(number: int) -> None:
    round = Round([a_task(1)])
    (lost,) = round.come(an_offer(1, number))
    assert (lost.round, lost.client, lost.rejected) == (2, 1, True)
    assert f"round {number}" in lost.reason
    (reason,) = round.rejections
    assert reason.startswith("client 1: sent an offer")


def test_an_offer_is_seen_where_it_was_asked_for_and_a_lost_memory_only_with_a_task() -> None:
    round = Round([a_task(1, offer=True), a_task(2)])
    lost = StateLost(2, 2)
    offer, seen = round.come(an_offer(1), lost, StateLost(2, 3), StateLost(1, 2))
    assert (offer.client, seen) == (1, lost)
    assert 2 in round.knows(1)
    assert round.rejections == ()


def test_an_offer_that_comes_again_is_seen_without_its_numbers() -> None:
    round = Round([a_task(1, offer=True)])
    offer = replace(an_offer(1), metrics={"x": 1.0})
    assert [one.metrics for one in round.come(offer, offer)] == [{"x": 1.0}, {}]


@pytest.mark.parametrize("late", [an_offer(1, 1), an_update(1, 1)])
def test_what_comes_late_for_a_task_of_before_does_not_cost_the_task_under_way(late: Any) -> None:
    round = Round([])
    round.clients.restore({"over": {1: 1}})
    round.carry(SendTask(a_task(1, offer=True)))
    assert round.come(late) == []
    (reason,) = round.rejections
    assert reason.startswith("client 1: its")
    assert "round 1" in reason
    assert round.come(an_offer(1)) != []


def test_a_survey_that_fails_too_late_is_reported_and_does_not_cost_the_task_under_way() -> None:
    round = Round([a_task(1)])
    round.sessions.byte_counter.received(1, "Failed", 0, 7)
    assert round.come(ClientLost(0, 1, "no labels")) == []
    accounts = round.accounts()
    assert accounts.traffic == {1: Traffic(100, 0)}, "it belongs to no round"
    (reason,) = accounts.overhead.rejected_connections
    assert reason.startswith("client 1: sent an answer")
    update = an_update(1)
    assert round.come(update) == [update]


def test_an_answer_without_a_question_is_a_violation() -> None:
    round = Round([a_task(1)])
    assert round.come(Answer(1, "labels", {}, 2)) == []
    (reason,) = round.rejections
    assert reason.startswith("client 1: sent an answer")


def test_a_verdict_is_sent_and_a_decline_ends_the_task() -> None:
    round = Round([a_task(1, offer=True), a_task(2, offer=True)])
    verdicts = [Verdict(2, 1, granted=True), Verdict(2, 2, granted=False)]
    round.network.sent.clear()
    round.carry(*verdicts)
    assert round.network.sent == [("client-1", verdicts[0]), ("client-2", verdicts[1])]
    assert round.clients.tree() == {"over": {2: 2}}
    accounts = round.accounts()
    times = accounts.times
    assert (times[1].sending_s is None, times[1].ended_s is None) == (False, True)
    assert (times[2].sending_s is None, times[2].ended_s is None) == (True, False)
    assert accounts.traffic == {1: Traffic(200, 0), 2: Traffic(200, 0)}


def test_an_update_that_was_on_its_way_when_its_client_was_declined_is_late_once() -> None:
    round = Round([a_task(1), a_task(2)])
    round.carry(Verdict(2, 1, granted=False))
    assert round.come(an_update(1)) == []
    (reason,) = round.rejections
    assert reason == "client 1: its update of round 2 came too late, or again"
    assert len(round.come(an_update(1))) == 1, "the round rejects and records it"


def test_the_ends_of_tasks_survive_a_checkpoint_and_a_round_that_is_run_again() -> None:
    round = Round([a_task(1), a_task(2)])
    round.come(an_update(1))
    kept = round.clients.tree()
    assert kept == {"over": {1: 2}}
    again = Round([])
    again.clients.restore(kept)
    again.carry(SendTask(a_task(1)))
    assert again.clients.tree() == {"over": {1: 1}}


def test_an_update_of_an_earlier_round_is_late_also_when_a_round_is_run_again() -> None:
    round = Round([a_task(1)])
    round.come(an_update(1))
    for _ in range(2):  # the second attempt at round 3
        round.carry(Close(), Begin(3), SendTask(a_task(1, 3)))
    assert round.come(an_update(1)) == []
    update = an_update(1, 3)
    assert round.come(update) == [update]


def test_a_closed_round_ends_its_tasks_and_a_cancelled_one_is_late() -> None:
    round = Round([a_task(1), a_task(2), a_task(3)])
    round.come(an_update(1))
    round.carry(Cancel(3), Close())
    assert round.clients.tree()["over"] == {1: 2, 2: 2, 3: 2}


def test_what_comes_for_a_round_that_was_taken_back_is_too_late() -> None:
    round = Round([a_task(1), a_task(2)])
    round.come(an_update(2))
    round.network.sent.clear()
    round.clients.forget("the run steps back")
    assert round.network.sent == [("client-1", "the run steps back")]
    round.sessions._events.append(an_update(1))
    assert round.clients._next() is None
    assert round.clients._kept == {}
    (reason,) = round.rejections
    assert reason.startswith("client 1: its update of round 2 came too late")


def test_a_timer_fires_once_and_the_deadline_after_the_others() -> None:
    round = Round([a_task(1)])
    round.carry(SetTimer("deadline", 0.0), SetTimer("offers", 0.0))
    assert [round.clients._next() for _ in range(2)] == [
        TimerFired("offers"),
        TimerFired("deadline"),
    ]
    assert round.clients._next() is None
    round.carry(SetTimer("patience", 0.0), SetTimer("patience", None))
    assert round.clients._next() is None


def test_a_client_that_is_not_back_in_time_is_lost_and_cannot_be_asked() -> None:
    round = Round([a_task(1), a_task(2)])
    round.sessions.membership.leave(1)
    round.sessions.membership.clock.now_s += 61.0
    round.clients._next()
    left, lost = round.seen()
    assert (left, lost.round, lost.client) == (Left(1), 2, 1)
    assert "60 s" in lost.reason
    assert round.clients.tree() == {"over": {1: 2}}


def test_a_client_is_given_up_when_the_round_says_so() -> None:
    round = Round([a_task(1), a_task(2)])
    round.carry(Cancel(1, "silent for 5 s"))
    assert round.network.sent[-1] == ("client-1", "silent for 5 s")
    assert list(round.clients._tasks) == [2]
    assert round.rejections == ("client 1: silent for 5 s",)


def asking(*clients: int) -> Round:
    """A round that asks clients before it begins to collect."""
    round = Round([])
    round.carry(Close())
    round.network.sent.clear()
    round.carry(Ask(Question("labels", classes=3, round=2), clients))
    return round


def test_a_survey_takes_one_answer_of_each_client() -> None:
    round = asking(0, 1, 2)
    answers = {client: Answer(client, "labels", {}, 2) for client in range(3)}
    old, other = Answer(1, "labels", {}, 1), Answer(1, "times", {}, 2)
    failed = ClientLost(0, 0, "no labels")
    seen = round.come(answers[2], old, other, ClientLost(1, 1, "task"), failed, answers[1])
    assert seen == [Answered(answers[2]), replace(failed, round=2), Answered(answers[1])]
    assert round.sessions.questions == {}
    assert [peer for peer, _ in round.network.sent] == ["client-0", "client-1", "client-2"]
    reasons = round.rejections
    assert any(one.startswith("client 0") and "no labels" in one for one in reasons)
    assert any(one.startswith("client 1: sent an answer") and "(2 times)" in one for one in reasons)


@pytest.mark.parametrize(
    "values",
    [
        {"histogram": np.array([1, 2, 3]), "junk": bytes(1 << 20)},
        {"histogram": np.zeros(4, np.int64)},
        {"histogram": "1 2 3"},
    ],
    ids=["another name", "more values", "text"],
)
def test_what_no_client_of_ours_would_answer_counts_as_no_answer(values: dict[str, Any]) -> None:
    round = asking(1, 2)
    good = Answer(2, "labels", {"histogram": np.array([1, 2, 3])}, 2)
    lost, answered = round.come(Answer(1, "labels", values, 2), good)
    assert (lost.round, lost.client, lost.rejected) == (2, 1, True)
    assert answered == Answered(good)
    (reason,) = round.rejections
    assert reason.startswith("client 1: ")
    assert "'labels'" in reason


def test_a_survey_does_not_wait_for_a_client_that_is_not_back_in_time() -> None:
    round = asking(1)
    round.sessions.membership.leave(1)
    round.sessions.membership.clock.now_s += 61.0
    round.clients._next()
    assert [type(event) for event in round.seen()] == [Left, ClientLost]
    assert round.rejections == ()  # it has not kept the survey until its deadline


def test_a_cancelled_question_is_reported() -> None:
    round = asking(3)
    round.carry(Cancel(3, within_s=2.0))
    (reason,) = round.rejections
    assert reason.startswith("client 3: no answer")
    assert "2 s" in reason
    assert round.sessions.questions == {}


def test_a_task_in_flight_is_sent_again_to_a_client_that_came_back_between_the_rounds() -> None:
    round = Round([])
    round.sessions.reconnected = {1, 3}
    round.carry(Begin(3, late=(a_task(1), a_task(2))))
    assert [peer for peer, _ in round.network.sent] == ["client-1"]
    assert round.sessions.reconnected == set()


def test_a_task_in_flight_is_lost_when_its_client_is_not_back_in_time() -> None:
    round = Round([])
    round.carry(Begin(3, late=(a_task(7),)))  # the client has not connected since a restart
    round.sessions.membership.clock.now_s += 61.0
    round.clients._next()
    left, lost = round.seen()
    assert (left, lost.round, lost.client) == (Left(7), 2, 7)


def test_a_client_that_is_not_back_between_the_rounds_is_given_up_and_its_task_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    round = Round([a_task(1)])
    round.carry(Close())
    round.sessions.membership.leave(1)
    round.sessions.membership.clock.now_s += 61.0
    round.clients._assembled = True
    _, population = round.clients.open_round(STATE)
    assert population == {0: 10, 2: 10, 3: 10}
    assert "client 1 is not back" in caplog.text
    round.carry(Begin(3, late=(a_task(1),)))
    round.sessions.membership.clock.now_s += 61.0
    round.clients._next()
    *_, lost = round.seen()
    assert (type(lost), lost.round, lost.client) == (ClientLost, 2, 1)


def test_a_round_that_ended_with_an_error_leaves_no_task_to_the_next() -> None:
    round = Round([a_task(1), a_task(2)])
    round.come(an_update(1))
    round.clients._assembled = True
    round.clients.open_round(STATE)
    assert round.clients.tree() == {"over": {1: 2, 2: 2}}
    round.carry(Begin(3))
    assert round.come(an_update(2)) == []
    (reason,) = round.rejections
    assert reason.startswith("client 2: its update of round 2 came too late")


def test_a_client_that_has_other_samples_than_before_is_told_to_the_round() -> None:
    round = Round([a_task(1)])
    round.sessions.membership.join(1, 20)
    round.sessions.changes.extend([Joined(1, 15), Joined(1, 20), Left(1)])
    update = an_update(1)
    assert round.come(update) == [Joined(1, 20), update]


def test_the_listener_is_open_from_the_first_with_statement_to_the_end_of_the_last() -> None:
    network: Any = Opened()
    clients = RemoteClients(network)
    with clients:
        assert network.sent == [("all", "started")]
        with clients:
            pass
        assert network.sent == [("all", "started")]
    assert network.sent == [("all", "started"), ("all", "closed")]
    with pytest.raises(FedmxError, match="with server"):
        clients.open_round(STATE)[1]


def test_the_first_round_waits_for_more_clients_than_the_others() -> None:
    network: Any = Opened()
    with RemoteClients(network, wait_for=3, at_least=2) as clients:
        known = clients._sessions.membership.samples
        known.update({0: 10, 1: 10})
        with pytest.raises(AssertionError, match="waits for clients"):
            clients.open_round(STATE)[1]
        known[2] = 10
        assert clients.open_round(STATE)[1] == {0: 10, 1: 10, 2: 10}
        del known[1]
        assert clients.open_round(STATE)[1] == {0: 10, 2: 10}
        del known[0]
        with pytest.raises(AssertionError, match="waits for clients"):
            clients.open_round(STATE)[1]


def test_files_are_told_apart_from_control_traffic() -> None:
    round = Round([a_task(1)])  # 100 bytes
    round.network.bytes.update(sent_bytes=150, received_bytes=70)
    round.network.bytes.update(file_bytes_sent=40, file_bytes_received=3)
    assert round.accounts().overhead == Overhead(control_bytes=77, file_bytes=43)
    assert round.accounts().overhead == Overhead()


def test_other_versions_are_in_the_record_of_one_round_in_the_order_of_the_clients() -> None:
    round = Round([])
    round.sessions.other_versions.update({3: "client 3 has fedmx 2", 1: "client 1 has fedmx 3"})
    told = [round.accounts().overhead.other_versions for _ in range(2)]
    assert told == [("client 1 has fedmx 3", "client 3 has fedmx 2"), ()]
