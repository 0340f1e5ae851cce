"""Whom a deployed server waits for, for how long, and what becomes of those who come too late."""

from __future__ import annotations

import _thread
import logging
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

from fedmx import RemoteClients, Server, recorded
from fedmx.protocol.messages import CODEC, Setup
from layers.compute.data.targets import Targets
from layers.logic import ServerState
from layers.network import AddressError, Listener
from tests.fedmx.scripted import (
    Scripted,
    after_one_round,
    compute,
    fleet,
    honest,
    listening,
    update_of,
)
from tests.network.conftest import Certificates

START = ServerState(0, np.zeros(15, np.float32), np.zeros(0, np.float32))


def listeners() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "fedmx-listener" in thread.name]


def numbered(certificates: Certificates, clients: int, **settings: object) -> RemoteClients:
    """A listener that knows how many clients there are, as that of an experiment file."""
    listener = Listener("127.0.0.1:0", CODEC, tls=certificates.server)
    setup = Setup("run", "", "", 0, (4,), Targets("classes", 3))
    return RemoteClients(listener, setup, clients=clients, **settings)  # type: ignore[arg-type]


def test_a_late_update_is_dropped_and_told_and_the_next_counts(certificates: Certificates) -> None:
    over = threading.Event()

    def late(client: Scripted) -> None:
        task = client.task()
        assert over.wait(60)
        client.say(update_of(task))
        honest(client)

    server = listening(certificates, last=2, wait_for=2, deadline_s=2.0)
    model = server.weights.copy()
    with server, fleet(server, certificates, {0: honest, 1: late}):
        rounds = server.rounds()
        first = next(rounds)
        assert (first.participants, first.report.of("lost")) == ((0,), (1,))
        (why,) = [one.reason for one in first.report.clients if one.client == 1]
        assert "no answer before the round ended" in why
        over.set()
        (second,) = rounds
    assert second.participants == (0, 1)
    assert second.rejected_connections == (
        "client 1: its update of round 1 came too late, or again",
    )
    expected = after_one_round(after_one_round(model, (0,)), (0, 1))
    np.testing.assert_array_equal(server.weights, expected)


def test_a_client_back_in_time_is_asked_again_and_counts_once(certificates: Certificates) -> None:
    def restless(client: Scripted) -> None:
        client.task()
        client.hang_up()
        client.connect()
        client.samples = 99  # it has more samples now
        client.be_ready()
        honest(client)

    server = listening(certificates, last=2, wait_for=2)
    model = server.weights.copy()
    with server, fleet(server, certificates, {0: honest, 1: restless}) as clients:
        first, second = server.rounds()
    assert first.participants == second.participants == (0, 1)
    assert [task.round for task in clients[1].tasks] == [1, 1, 2]
    assert first.control_bytes > 0
    assert second.control_bytes >= 0
    down = [one.traffic.down_bytes for one in first.report.clients]
    assert down[1] == 2 * down[0]  # what crossed the wire twice is reported twice
    model = after_one_round(after_one_round(model, (0, 1)), (0, 1))
    np.testing.assert_array_equal(server.weights, model)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_wait_leaves_nothing_behind(certificates: Certificates) -> None:
    class Interrupt(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("waiting for clients"):
                _thread.interrupt_main()

    server = listening(certificates)
    log, handler = logging.getLogger("fedmx.server"), Interrupt()
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        with pytest.raises(KeyboardInterrupt), server:
            list(server.rounds())
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
    assert listeners() == []
    with socket.create_server(("127.0.0.1", int(server.address.rpartition(":")[2]))):
        pass  # the port is free


def test_a_port_in_use_leaves_no_folder_and_no_thread(
    certificates: Certificates, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        server = listening(certificates)
        there = RemoteClients(Listener(address, CODEC, tls=certificates.server))
        server = Server(there, server.logic, compute())

        def make() -> None:
            raise AssertionError("a folder before it is known that the server can listen")

        with pytest.raises(AddressError, match="the port is in use"):
            next(recorded(server, make))  # type: ignore[arg-type]
    assert listeners() == []


def test_a_server_that_closes_too_early_is_looked_for_again(certificates: Certificates) -> None:
    server = listening(certificates, last=9, wait_for=1)
    tls = certificates.client("client-0")
    with server:
        client = Scripted(server.address, 0, tls, honest)
        next(server.rounds())
    client.stop()
    assert client.over == "the server closes"


ENDED = ["the one round was run"]


def test_a_client_just_coming_back_learns_that_the_run_is_over(certificates: Certificates) -> None:
    gone, over = threading.Event(), threading.Event()

    def restless(client: Scripted) -> None:
        client.say(update_of(client.task()))
        client.hang_up()
        gone.set()
        assert over.wait(60)
        client.connect()

    def patient(client: Scripted) -> None:
        client.task()
        assert gone.wait(60)
        client.hang_up()  # a handshake later the server knows that the other one is gone
        client.connect()
        client.be_ready()
        client.say(update_of(client.task()))
        client.until_told()
        over.set()

    server = listening(certificates, wait_for=2)
    with server, fleet(server, certificates, {0: restless, 1: patient}) as clients:
        (round,) = server.rounds()
        clients[0].wait()
    assert round.participants == (0, 1)
    assert clients[0].told == clients[1].told == ENDED


class Idle(Scripted):
    """Connects, and says nothing."""

    def be_ready(self) -> Setup:
        self.connected.set()
        self.until_told()
        return Setup("", "", "", 0, (), Targets("classes", 0))

    connected = threading.Event()


def test_who_connects_when_the_run_is_over_is_told(certificates: Certificates) -> None:
    server = listening(certificates, wait_for=1)
    with server, fleet(server, certificates, {0: honest}):
        list(server.rounds())
        client = Idle(server.address, 1, certificates.client("client-1"), honest)
        assert Idle.connected.wait(60)
    client.wait()
    assert client.told == ENDED


def test_a_server_killed_at_the_very_end_still_tells_clients(certificates: Certificates) -> None:
    by_hand = listening(certificates)
    done = ServerState(1, by_hand.state.weights, by_hand.state.buffers)
    clients = numbered(certificates, 1)
    server = Server(clients, by_hand.logic, compute(), last_round=1, initial_state=done)
    with server:
        client = Idle(server.address, 0, certificates.client("client-0"), honest)
        assert list(server.rounds()) == []
    client.wait()
    assert client.told == ENDED
    assert server.reason == ENDED[0]
