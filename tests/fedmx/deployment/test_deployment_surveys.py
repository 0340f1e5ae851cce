"""Surveys of a deployed server: which answers count, and how one ends that is not answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fedmx.protocol.messages import Failed
from layers.logic import Answer, Question
from layers.logic.core.plan import Plan, single_lanes
from layers.logic.selectors.uniform import Uniform
from tests.fedmx.scripted import (
    Scripted,
    fleet,
    honest,
    listening,
    update_of,
)
from tests.network.conftest import Certificates


@dataclass(frozen=True)
class Surveyed(Uniform):
    """Everybody, whatever they answer to the question for their labels."""

    def surveys(self) -> tuple[Question, ...]:
        return (Question("labels", classes=3),)


def answering(client: Scripted) -> None:
    asked = client.expect(Question)
    client.say(Answer(client.client, "labels", {"histogram": np.array([1, 2, 3])}, asked.round))
    honest(client)


@dataclass(frozen=True)
class Asking(Uniform):
    """Everybody who answers this round's questions; `heard` has what was told, by round."""

    heard: dict[int, dict[int, float]] = field(default_factory=dict)

    def inquire(self, population, memory, round, rng):  # type: ignore[no-untyped-def]
        return [(Question(name), population.clients) for name in ("loss", "times")]

    def select(self, population, memory, round, rng) -> Plan:  # type: ignore[no-untyped-def]
        told = population.answers["times"]
        self.heard[round] = {client: float(one["train_s"]) for client, one in told.items()}  # type: ignore[arg-type]
        return Plan(single_lanes(told))


def test_an_answer_that_comes_too_late_is_not_taken_for_that_to_a_later_question(
    certificates: Certificates,
) -> None:
    def reply(client: Scripted, asked: Question, train_s: float) -> None:
        values = {"loss": 1.0} if asked.name == "loss" else {"train_s": train_s}
        client.say(Answer(client.client, asked.name, values, asked.round))

    def quick(client: Scripted) -> None:
        while True:
            reply(client, client.expect(Question), 1.0)
            reply(client, client.expect(Question), 1.0)
            client.say(update_of(client.task()))

    def slow(client: Scripted) -> None:
        first = [client.expect(Question) for _ in range(2)]
        for asked in (*first, client.expect(Question)):  # the first ones when they are over
            reply(client, asked, 99.0)
        reply(client, client.expect(Question), 2.0)
        client.say(update_of(client.task()))

    selector = Asking(1.0)
    server = listening(certificates, wait_for=2, last=2, deadline_s=1.0, selector=selector)
    with server, fleet(server, certificates, {0: quick, 1: slow}):
        rounds = list(server.rounds())
    assert selector.heard == {1: {0: 1.0}, 2: {0: 1.0, 1: 2.0}}
    assert [round.participants for round in rounds] == [(0,), (0, 1)]


def test_a_survey_ends_whoever_does_not_answer(certificates: Certificates) -> None:
    def failing(client: Scripted) -> None:
        client.expect(Question)
        client.say(Failed(0, client.client, "ValueError: no labels", "Traceback"))
        honest(client)

    def vanishing(client: Scripted) -> None:
        client.expect(Question)
        client.hang_up()

    def lying(client: Scripted) -> None:
        client.expect(Question)
        client.say(Answer(0, "labels", {}))
        honest(client)

    scripts = {0: answering, 1: failing, 2: vanishing, 3: lying}
    server = listening(certificates, wait_for=4, rejoin_s=0.2, selector=Surveyed(1.0))
    with server, fleet(server, certificates, scripts):
        (round,) = server.rounds()
    assert round.participants == (0, 1, 3)
    assert list(server.state.memory["survey"]["labels"]) == [0]
    assert set(round.rejected_connections) == {
        "client 1: no answer: ValueError: no labels",
        "client 3: no answer: sent a message in the name of client 0",
        "client 3: sent a message in the name of client 0",
    }


def test_a_survey_that_is_not_answered_ends_at_the_deadline(certificates: Certificates) -> None:
    server = listening(certificates, wait_for=1, deadline_s=2.0, selector=Surveyed(1.0))
    with server, fleet(server, certificates, {0: honest}):
        (round,) = server.rounds()
    assert round.participants == (0,)
    (why,) = round.rejected_connections
    assert why.startswith("client 0: no answer")
    assert "deadline of 2 s" in why


@pytest.mark.parametrize(
    "values",
    [
        {"histogram": np.array([1, 2, 3]), "junk": bytes(1 << 20)},
        {"histogram": np.zeros(4, np.int64)},
        {"histogram": "1 2 3"},
    ],
    ids=["another name", "more values", "text"],
)
def test_what_no_client_of_ours_would_answer_counts_as_no_answer_and_is_not_kept(
    certificates: Certificates, values: dict[str, Any]
) -> None:
    def talkative(client: Scripted) -> None:
        asked = client.expect(Question)
        client.say(Answer(client.client, "labels", values, asked.round))
        honest(client)

    server = listening(certificates, wait_for=2, selector=Surveyed(1.0))
    with server, fleet(server, certificates, {0: answering, 1: talkative}):
        (round,) = server.rounds()
    assert list(server.state.memory["survey"]["labels"]) == [0]
    assert round.participants == (0, 1)
    assert round.rejected_connections == (
        "client 1: sent something else than the answer to the question 'labels'",
    )
