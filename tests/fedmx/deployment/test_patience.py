"""A client that is connected and silent is given up in the end, and an honest one is not."""

from __future__ import annotations

import logging
import math
import threading

import numpy as np
import pytest

from fedmx.deployment import patience as module
from fedmx.deployment.patience import ANSWERS, LEAST_S, Patience
from layers.logic import Question
from tests.fedmx.deployment.test_deployment_surveys import Surveyed, answering
from tests.fedmx.scripted import Scripted, after_one_round, fleet, honest, listening, update_of
from tests.network.conftest import Certificates


class Clock:
    """The module's `time`, as far as it needs it."""

    def __init__(self) -> None:
        self.now_s = 5000.0

    def monotonic(self) -> float:
        return self.now_s

    time = monotonic

    def localtime(self, at_s: float) -> float:
        return at_s

    def strftime(self, form: str, at_s: float) -> str:
        return f"{at_s:.0f}"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def a_round(patience: Patience, clock: Clock, *took_s: float) -> None:
    patience.begin_round(())
    for client in range(len(took_s)):
        patience.ask(client)
    began = clock.now_s
    for client in sorted(range(len(took_s)), key=took_s.__getitem__):
        clock.now_s = began + took_s[client]
        patience.answered(client)
    patience.end_round()


def test_the_limit_is_some_times_the_median_of_answers_and_holds_from_the_second_round_on(
    clock: Clock,
) -> None:
    patience = Patience(10.0, None)
    patience.begin_round(())
    patience.ask(7)
    clock.now_s += 1e9
    assert (patience.limit_s, patience.spent(), patience.typical_s) == (math.inf, [], None)
    a_round(patience, clock, 100.0, 90.0, 110.0)
    assert (patience.limit_s, patience.typical_s) == (1000.0, 100.0)
    patience.begin_round([7])
    patience.ask(8)
    clock.now_s += 1000.0
    assert patience.spent() == []
    clock.now_s += 0.001
    assert patience.spent() == [7, 8]


def test_quick_rounds_do_not_make_the_server_impatient_nor_slow_clients_patient_without_end(
    clock: Clock,
) -> None:
    patience = Patience(10.0, None)
    a_round(patience, clock, 0.1, 0.1)
    assert patience.limit_s == LEAST_S
    for _ in range(ANSWERS):
        a_round(patience, clock, 100.0, 100.0, patience.limit_s - 1.0)
    assert patience.limit_s == 1000.0


def test_a_limit_of_ones_own_holds_from_the_first_round_on_and_none_is_none(clock: Clock) -> None:
    own, never = Patience(10.0, 5.0), Patience(None, None)
    a_round(never, clock, 1.0)
    for patience in (own, never):
        patience.begin_round(())
        patience.ask(1)
    clock.now_s += 5.001
    assert (own.spent(), never.spent(), never.limit_s) == ([1], [], math.inf)


def test_time_in_which_it_is_the_servers_turn_does_not_count(clock: Clock) -> None:
    patience = Patience(10.0, 5.0)
    patience.ask(1)
    patience.pause(1)
    clock.now_s += 100.0
    assert patience.spent() == []
    patience.ask(1)
    clock.now_s += 5.0
    assert patience.spent() == []


def test_a_task_in_flight_keeps_its_time_over_rounds_and_the_others_are_forgotten(
    clock: Clock,
) -> None:
    patience = Patience(10.0, 5.0)
    patience.ask(1)
    patience.ask(2)
    clock.now_s += 4.0
    patience.end_round()
    patience.begin_round([1, 3])
    clock.now_s += 1.001
    assert patience.spent() == [1]


def test_a_resumed_server_knows_what_an_answer_takes(clock: Clock) -> None:
    before, after = Patience(10.0, None), Patience(10.0, None)
    after.restore(before.typical_s)
    assert after.limit_s == math.inf
    a_round(before, clock, 200.0)
    after.restore(before.typical_s)
    assert after.limit_s == before.limit_s == 2000.0


def test_the_operator_reads_since_when_until_when_and_what_to_type(clock: Clock) -> None:
    patience = Patience(10.0, None)
    patience.begin_round(())
    patience.ask(1)
    clock.now_s += 60.0
    assert patience.text(patience.since([1, 2])) == (
        "since 5000 (60 s); there is no limit. To wait for SECONDS at most: Ctrl-C, then fedmx "
        "resume RUN --patience SECONDS"
    )
    patience.answered(1)
    patience.end_round()
    assert "each is given up 600 s after it was asked" in patience.text(5000.0)


def silent(client: Scripted) -> None:
    """Answer nothing; the heartbeat of a real client would go on."""
    client.task()
    client.until_told()


def test_a_silent_client_is_given_up_and_the_others_go_on(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    server = listening(certificates, last=2, wait_for=2, patience_s=4.0, rejoin_s=0.0)
    model = server.weights.copy()
    with (
        caplog.at_level(logging.INFO, "fedmx.server"),
        server,
        fleet(server, certificates, {0: honest, 1: silent}) as clients,
    ):
        first, second = server.rounds()
        clients[1].wait()
    assert (first.participants, first.report.of("lost")) == ((0,), (1,))
    (why,) = [one.reason for one in first.report.clients if one.client == 1]
    assert why == "connected, but no answer within 4 s"
    assert why in clients[1].over
    assert any("it is given up" in text for text in caplog.messages)
    assert second.participants == (0,)
    expected = after_one_round(after_one_round(model, (0,)), (0,))
    np.testing.assert_array_equal(server.weights, expected)


def test_a_client_that_was_given_up_takes_part_again_when_it_is_ready(
    certificates: Certificates,
) -> None:
    ready = threading.Event()

    def slow(client: Scripted) -> None:
        client.task()
        try:
            client.until_told()
        except Exception:  # noqa: BLE001, it was given up
            client.connect()
            client.be_ready()
            ready.set()
        honest(client)

    def quick(client: Scripted) -> None:
        client.say(update_of(client.task()))
        task = client.task()
        assert ready.wait(60)
        client.say(update_of(task))
        honest(client)

    server = listening(certificates, last=3, wait_for=2, patience_s=4.0, rejoin_s=60.0)
    with server, fleet(server, certificates, {0: quick, 1: slow}):
        rounds = list(server.rounds())
    assert rounds[0].report.of("lost") == (1,)
    assert rounds[2].participants == (0, 1)


def test_a_silent_client_does_not_hold_up_a_survey(certificates: Certificates) -> None:
    def asked(client: Scripted) -> None:
        client.expect(Question)
        client.until_told()

    server = listening(
        certificates, wait_for=2, patience_s=4.0, rejoin_s=0.0, selector=Surveyed(1.0)
    )
    with server, fleet(server, certificates, {0: answering, 1: asked}):
        (round,) = server.rounds()
    assert round.participants == (0,)
    assert "client 1: connected, but no answer within 4 s" in round.rejected_connections
