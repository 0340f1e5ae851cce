"""Hundreds of clients at one server: no thread each, and nothing that grows from round to round."""

from __future__ import annotations

import gc
import threading

import pytest

from fedmx import RemoteClients, Server
from fedmx.deployment.names import identity
from fedmx.protocol.messages import CODEC, Finished, Ready, Setup
from layers.logic import Logic, Task
from layers.logic.selectors.uniform import Uniform
from layers.network import Backoff, Connector, Listener, Received
from tests.fedmx.scripted import compute, update_of

CLIENTS = 200
ROUNDS = 8


class Crowd:
    """Many connectors, which one thread answers for.

    Args:
        address: where the server listens.
        clients: how many there are.
        backoff: of each of them.
    """

    def __init__(
        self, address: str, clients: int = CLIENTS, backoff: Backoff | None = None
    ) -> None:
        self._connectors = [
            Connector(address, identity(n), CODEC, backoff=backoff) for n in range(clients)
        ]
        self._finished: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="crowd")
        for connector in self._connectors:
            connector.start()
        self._thread.start()

    def _run(self) -> None:
        while len(self._finished) < len(self._connectors) and not self._over.is_set():
            for number, connector in enumerate(self._connectors):
                # The first who is looked at waits a little, so that this is no busy loop.
                event = connector.next_event(0.0 if number else 0.002)
                if isinstance(event, Received):
                    self._answer(number, connector, event.message)

    def _answer(self, number: int, connector: Connector, message: object) -> None:
        if isinstance(message, Setup):
            connector.send(Ready(message.run, message.client, 10, ()))
        elif isinstance(message, Task):
            connector.send(update_of(message))
        elif isinstance(message, Finished):
            self._finished.add(number)

    def end(self, everybody: bool = True) -> None:
        """End it, when the run is over for everybody or, if not all have come in, at once."""
        if not everybody:
            self._over.set()
        self._thread.join(60)
        for connector in self._connectors:
            connector.close(0.0)
        assert not self._thread.is_alive()


def threads_of_the_server() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return sorted(n for n in names if not n.startswith(("fedmx-connector", "crowd")))


@pytest.fixture
def server() -> Server:
    return Server(
        RemoteClients(Listener("127.0.0.1:0", CODEC), wait_for=CLIENTS),
        Logic(compute().engine.layout, selector=Uniform(1.0)),
        compute(),
        last_round=ROUNDS,
    )


def test_hundreds_of_clients_need_no_thread_each_and_rounds_leave_nothing(server: Server) -> None:
    before = threads_of_the_server()
    objects = []
    with server:
        crowd = Crowd(server.address)
        try:
            for round in server.rounds():
                assert len(round.participants) == CLIENTS
                assert round.rejected_connections == ()
                assert threads_of_the_server() == sorted([*before, "fedmx-listener"])
                del round
                gc.collect()
                objects.append(len(gc.get_objects()))
        finally:
            server.finish("the test is over")
            crowd.end()
    assert threads_of_the_server() == before
    # Had each round kept an object a client, there would be four times as many; some are under way.
    assert min(objects[-2:]) - max(objects[2:4]) < 2 * CLIENTS
