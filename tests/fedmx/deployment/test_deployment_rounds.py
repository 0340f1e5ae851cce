"""From one round to the next over sockets: who comes back, and who is gone for good."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from fedmx.deployment.client_sessions import ClientSessions
from fedmx.protocol.messages import Ready, Setup
from fedmx.server.server import Server
from layers.logic import Answer, Hook, Question, ServerSide
from layers.logic.core.round import OpenRound, Run
from layers.logic.core.selector import Selector
from layers.logic.errors import PartFailed
from layers.logic.selectors.uniform import Uniform
from tests.fedmx.processes import until
from tests.fedmx.scripted import Scripted, fleet, honest, listening, update_of
from tests.network.conftest import Certificates


def ready(server: Server, client: int) -> bool:
    server.network.open_round(server.state)
    return client in server.network._sessions.membership.ready


@dataclass(frozen=True)
class Doing(Uniform):
    """Everybody; does something while it selects for a round."""

    what: dict[int, Callable[[], Any]] = field(default_factory=dict)

    def run(self, round: OpenRound) -> Run[None]:
        self.what.get(round.number, lambda: None)()
        yield from super().run(round)


@pytest.mark.parametrize("kept", [(1,), ()])
def test_a_client_that_is_back_just_when_tasks_are_sent_gets_one(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, kept: tuple[int, ...]
) -> None:
    connected, selecting = threading.Event(), threading.Event()

    def restless(client: Scripted) -> None:
        client.say(update_of(client.task()))
        client.hang_up()
        client.connect()
        setup = client.expect(Setup)
        connected.set()
        assert selecting.wait(60)
        client.say(Ready(setup.run, client.client, client.samples, kept))
        honest(client)

    poll = ClientSessions.poll

    def poll_until_back(self: ClientSessions) -> None:
        poll(self)
        while selecting.is_set() and 1 not in self.membership.ready:
            poll(self)
            time.sleep(0.001)
        selecting.clear()

    monkeypatch.setattr(ClientSessions, "poll", poll_until_back)
    selector = Doing(1.0, what={2: selecting.set})
    server = listening(certificates, last=2, wait_for=2, selector=selector)
    with server, fleet(server, certificates, {0: honest, 1: restless}) as clients:
        rounds = server.rounds()
        next(rounds)
        until(lambda: (ready(server, 1), connected.is_set())[1], lambda: "not back")
        (second,) = rounds
    assert (second.participants, second.rejected_connections) == ((0, 1), ())
    last = 1 if kept else 0
    assert [(task.round, task.last_accepted_round) for task in clients[1].tasks] == [
        (1, 0),
        (2, last),
    ]


@dataclass(frozen=True)
class Failing(Hook):
    """Its server side fails once, when the first update is folded."""

    fails: list[str] = field(default_factory=lambda: ["the disk is full"], compare=False)

    class Server(ServerSide):
        def on_accepted(self, update, context):  # type: ignore[no-untyped-def]
            if self.hook.fails:
                raise OSError(self.hook.fails.pop())


def test_a_client_back_after_a_failed_round_gets_no_task_of_it(certificates: Certificates) -> None:
    failed, noticed = threading.Event(), threading.Event()

    def at_work(client: Scripted) -> None:
        client.task()
        assert failed.wait(60)
        client.hang_up()
        assert noticed.wait(60)
        client.connect()
        client.be_ready()
        honest(client)

    server = listening(certificates, wait_for=2, hooks=[Failing()])
    with server, fleet(server, certificates, {0: honest, 1: at_work}) as clients:
        with pytest.raises(PartFailed, match="failed: OSError: the disk is full"):
            list(server.rounds())
        failed.set()
        until(lambda: not ready(server, 1), lambda: "client 1 is still there")
        noticed.set()
        until(lambda: ready(server, 1), lambda: "client 1 is not back")
        (round,) = server.rounds()
    assert round.participants == (0, 1)
    assert [task.round for task in clients[1].tasks] == [1, 1]


# --- clients that are gone for good -------------------------------------------------------------


@dataclass(frozen=True)
class OneLane(Selector):
    """Client 1 starts from what client 0 returned."""

    def run(self, round: OpenRound) -> Run[None]:
        round.train_lane([0, 1])
        yield from round.until_all()


@dataclass(frozen=True)
class Asks(Hook):
    """Asks those who returned."""

    class Server(ServerSide):
        asks = frozenset({"returned"})

        def ask(self, phase, clients, context):  # type: ignore[no-untyped-def]
            return {"still": "there?"}


def answer_those_who_ask(client: Scripted) -> None:
    asked = client.expect(Question)
    slots: Any = {"0:Asks": {"still": "yes"}}
    client.say(Answer(client.client, asked.name, {}, asked.round, slots))


@pytest.mark.parametrize(
    ("settings", "participants"),
    [({"selector": OneLane()}, (0,)), ({"hooks": [Asks()]}, (0, 1))],
    ids=["the next of a lane", "one that is asked when it has returned"],
)
def test_nobody_waits_for_a_client_that_was_gone_for_good_before_it_was_asked(
    certificates: Certificates, settings: dict[str, Any], participants: tuple[int, ...]
) -> None:
    def leaves(client: Scripted) -> None:
        if "hooks" in settings:
            client.say(update_of(client.task()))
        client.hang_up()

    def waits(client: Scripted) -> None:
        task = client.task()
        until(lambda: 1 not in there.samples, lambda: "client 1 is still expected")
        client.say(update_of(task))
        if "hooks" in settings:
            answer_those_who_ask(client)

    server = listening(certificates, wait_for=2, rejoin_s=0.1, **settings)
    there = server.network._sessions.membership
    with server, fleet(server, certificates, {0: waits, 1: leaves}):
        (round,) = server.rounds()
    assert round.participants == participants
