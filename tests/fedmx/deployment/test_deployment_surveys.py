"""Surveys of a deployed server: which answers count, and how one ends that is not answered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmx.protocol.messages import Failed
from layers.logic import Answer, OpenRound, Question, Run
from layers.logic.selectors.uniform import Uniform
from tests.fedmx.scripted import Scripted, fleet, honest, listening
from tests.network.conftest import Certificates


@dataclass(frozen=True)
class Surveyed(Uniform):
    """Everybody, whatever they answer to the question for their labels."""

    asks = (Question("labels", classes=3),)

    def run(self, round: OpenRound) -> Run[None]:
        yield from round.ask(*self.asks, once=True)
        yield from super().run(round)


def answering(client: Scripted) -> None:
    asked = client.expect(Question)
    client.say(Answer(client.client, "labels", {"histogram": np.array([1, 2, 3])}, asked.round))
    honest(client)


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
