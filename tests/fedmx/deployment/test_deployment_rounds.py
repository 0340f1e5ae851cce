"""From one round to the next over sockets: who was declined, comes back, or is still at work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from fedmx.deployment.remote_clients import RemoteClients
from fedmx.protocol.messages import Ready, Setup
from fedmx.server.server import Server
from layers.logic import Hook, Offer, ServerHalf, Verdict
from layers.logic.core.plan import Plan, single_lanes
from layers.logic.core.selector import Selector
from layers.logic.selectors.uniform import Uniform
from tests.fedmx.processes import until
from tests.fedmx.scripted import Least, Scripted, fleet, honest, listening, update_of
from tests.network.conftest import Certificates


@dataclass(frozen=True)
class FirstOne(Selector):
    """Everybody; one update is enough in round 1."""

    def select(self, population, memory, round, rng) -> Plan:  # type: ignore[no-untyped-def]
        return Plan(single_lanes(population.clients), enough=1 if round == 1 else None)


def ready(server: Server, client: int) -> bool:
    assert isinstance(server.network, RemoteClients)
    server.network.population()
    return client in server.network._sessions.there.ready


def test_an_update_of_a_client_that_was_not_needed_does_not_cost_it_the_next_round(
    certificates: Certificates,
) -> None:
    def slow(client: Scripted) -> None:
        task = client.task()
        assert not client.expect(Verdict).granted
        client.task()
        client.say(update_of(task))
        client.say(update_of(task, round=2))
        honest(client)

    server = listening(certificates, last=2, wait_for=2, selector=FirstOne())
    with server, fleet(server, certificates, {0: honest, 1: slow}):
        first, second = server.rounds()
    assert (first.participants, first.report.of("declined")) == ((0,), (1,))
    (declined,) = [one for one in first.report.clients if one.client == 1]
    assert declined.times is not None
    assert declined.times.ended_s is not None
    assert second.participants == (0, 1)
    assert second.rejected_connections == (
        "client 1: its update of round 1 came too late, or again",
    )


@dataclass(frozen=True)
class Hasty(Least):
    """In round 1 the first offer is granted, and everybody else is declined at once."""

    def on_offers(self, pending, so_far):  # type: ignore[no-untyped-def]
        first = pending.offers[0]
        if first.round > 1:
            return super().on_offers(pending, so_far)
        late = [Verdict(1, client, granted=False) for client in pending.waiting]
        return [Verdict(1, first.client, granted=True), *late], None


def test_an_offer_of_a_client_that_was_declined_before_it_does_not_cost_it_the_next_round(
    certificates: Certificates,
) -> None:
    def offering(client: Scripted) -> None:
        while True:
            task = client.task()
            client.say(Offer(task.round, task.client, 10, 1.0))
            assert client.expect(Verdict).granted
            client.say(update_of(task))

    def slow(client: Scripted) -> None:
        task = client.task()
        assert not client.expect(Verdict).granted
        second = client.task()
        client.say(Offer(task.round, task.client, 10, 1.0))
        client.say(Offer(second.round, second.client, 10, 1.0))
        assert client.expect(Verdict).granted
        client.say(update_of(second))

    server = listening(certificates, last=2, wait_for=2, selector=Hasty())
    with server, fleet(server, certificates, {0: offering, 1: slow}):
        first, second = server.rounds()
    assert (first.participants, first.report.of("declined")) == ((0,), (1,))
    assert second.participants == (0, 1)
    assert second.rejected_connections == (
        "client 1: its offer of round 1 came too late, or again",
    )


@dataclass(frozen=True)
class Doing(Uniform):
    """Everybody; does something while it selects for a round."""

    what: dict[int, Callable[[], Any]] = field(default_factory=dict)

    def select(self, population, memory, round, rng) -> Plan:  # type: ignore[no-untyped-def]
        self.what.get(round, lambda: None)()
        return super().select(population, memory, round, rng)


@pytest.mark.parametrize("kept", [tuple(range(100)), ()])
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

    pump = RemoteClients._pump

    def pump_until_back(self: RemoteClients) -> None:
        pump(self)
        while selecting.is_set() and 1 not in self._sessions.there.ready:
            pump(self)
            time.sleep(0.001)

    monkeypatch.setattr(RemoteClients, "_pump", pump_until_back)
    selector = Doing(1.0, what={2: selecting.set})
    server = listening(certificates, last=2, wait_for=2, selector=selector)
    with server, fleet(server, certificates, {0: honest, 1: restless}) as clients:
        rounds = server.rounds()
        next(rounds)
        until(lambda: (ready(server, 1), connected.is_set())[1], lambda: "not back")
        (second,) = rounds
    assert second.participants == (0, 1)
    assert second.rejected_connections == ()
    last = 1 if kept else 0
    assert [(task.round, task.last_accepted_round) for task in clients[1].tasks] == [
        (1, 0),
        (2, last),
    ]


@dataclass(frozen=True)
class Failing(Hook):
    """Its server half fails once, when the first update is folded."""

    fails: list[str] = field(default_factory=lambda: ["the disk is full"], compare=False)

    def server(self) -> ServerHalf:
        return _Fails(self.fails)


class _Fails(ServerHalf):
    def __init__(self, fails: list[str]) -> None:
        self.fails = fails

    def on_accepted(self, update, context):  # type: ignore[no-untyped-def]
        if self.fails:
            raise OSError(self.fails.pop())


def test_a_client_that_is_back_after_a_round_that_failed_gets_no_task_of_it(
    certificates: Certificates,
) -> None:
    failed = threading.Event()

    def at_work(client: Scripted) -> None:
        client.task()
        assert failed.wait(60)
        client.hang_up()
        client.connect()
        client.be_ready()
        honest(client)

    server = listening(certificates, wait_for=2, hooks=[Failing()])
    with server, fleet(server, certificates, {0: honest, 1: at_work}) as clients:
        with pytest.raises(OSError, match="disk is full"):
            list(server.rounds())
        failed.set()
        until(lambda: not ready(server, 1), lambda: "client 1 is still there")
        until(lambda: ready(server, 1), lambda: "client 1 is not back")
        (round,) = server.rounds()
    assert round.participants == (0, 1)
    assert [task.round for task in clients[1].tasks] == [1, 1]
