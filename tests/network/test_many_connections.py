"""A thousand real connections in one process and thread."""

import asyncio
import threading

import pytest

from layers.network import Joined, Left, Limits, Listener, Received
from layers.network.connection import Connection, new_scratch
from layers.network.events import Arrived, Opened, Replaced, Sent, SessionEvent
from layers.network.handshake import ClientSession
from layers.network.outbox import OutgoingMessage
from tests.network.socket_bytes import CountedConnection, count_sockets, socket_bytes
from tests.network.wire_messages import CODEC, Note, await_event

CLIENTS = 1000


class Answering:
    """Owns client connections that answer the first message with their name, and end."""

    def __init__(self) -> None:
        self.open = 0
        self.scratch = new_scratch()

    def connection(self, identity: str) -> Connection:
        return CountedConnection(
            lambda transport: ClientSession(
                identity, CODEC, asyncio.get_running_loop().time(), limits=Limits(handshake_s=60)
            ),
            self,
            self.scratch,
            5.0,
        )

    def made(self, connection: Connection) -> None: ...

    def happened(self, connection: Connection, event: SessionEvent) -> None:
        match event:
            case Opened():
                self.open += 1
            case Arrived(message=Note(text)):
                connection.send(CODEC.encode(Note(f"{text}, {connection.session.terms.identity}")))
                connection.finish("done", True)

    def report_message(
        self, connection: Connection, kind: type[Sent] | type[Replaced], message: OutgoingMessage
    ) -> None: ...

    def unreadable(self, connection: Connection, stream: int, reason: str) -> None: ...

    def gone(self, connection: Connection) -> None: ...

    def must_pause(self, connection: Connection) -> bool:
        return False


async def run_clients(address: str) -> Answering:
    host, port = address.split(":")
    loop = asyncio.get_running_loop()
    owner = Answering()

    async def one(number: int) -> Connection:
        _, connection = await loop.create_connection(
            lambda: owner.connection(f"client-{number}"), host, int(port)
        )
        return connection

    connections = await asyncio.gather(*map(one, range(CLIENTS)))
    await asyncio.gather(*(connection.closed for connection in connections))
    return owner


def test_a_thousand_connections_share_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    count_sockets(monkeypatch)
    limits = Limits(handshake_s=60)
    with Listener("127.0.0.1:0", CODEC, limits=limits) as listener:
        before = threading.active_count()
        owners: list[Answering] = []
        clients = threading.Thread(
            target=lambda: owners.append(asyncio.run(run_clients(listener.address)))
        )
        clients.start()
        joined = {await_event(listener, Joined, 60).peer for _ in range(CLIENTS)}
        assert joined == {f"client-{number}" for number in range(CLIENTS)} == listener.peers
        assert threading.active_count() == before + 1
        for peer in joined:
            listener.send(peer, Note("hello"))
        answers, left = set(), 0
        while left < CLIENTS:
            match listener.next_event(60):
                case Received(peer, Note(text)):
                    assert text == f"hello, {peer}"
                    answers.add(peer)
                case Left():
                    left += 1
                case event:
                    assert event is not None
        assert answers == joined
        clients.join()
        (owner,) = owners
        traffic = listener.traffic()
        assert (traffic.sent_bytes, traffic.received_bytes) == socket_bytes(listener)
        assert socket_bytes(owner) == (traffic.received_bytes, traffic.sent_bytes)
