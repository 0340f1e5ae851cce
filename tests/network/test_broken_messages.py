"""Interrupted large messages are continued, over real sockets."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import termios
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from layers.network import (
    Backoff,
    Connected,
    Connector,
    Disconnected,
    Joined,
    Left,
    Limits,
    Listener,
    Received,
    wire_size,
)
from layers.network.connection import MOST_BYTES
from layers.network.events import Arrived, SessionEvent
from layers.network.handshake import ClientSession
from layers.network.inbox import FEATURE, LEAST_FILLED_BYTES
from tests.network.conftest import Certificates
from tests.network.wire_messages import CODEC, QUICK, Note, Task, await_event, dial, drained, until

SLOW = Backoff(first_s=60, longest_s=60)
WEIGHTS = np.random.default_rng(1).standard_normal(1_500_000).astype(np.float32)
WHOLE = wire_size(CODEC.encode(Task(1, WEIGHTS)).size)
REST = 4096  # the most bytes of a connection besides the message: handshake, PARTIAL, headers


class Ends:
    """A listener and a connector with a proxy between them; `way` is the tested direction."""

    def __init__(self, way: str, proxy: CuttingProxy, connector: Connector) -> None:
        self.way, self.proxy = way, proxy
        self.listener, self.connector = proxy.listener, connector
        self.receiver = self.listener if way == "up" else connector

    def opened(self) -> None:
        """Wait until both ends are connected; the client speaks first, as in `fedmx`."""
        await_event(self.listener, Joined)
        await_event(self.connector, Connected)
        if self.way == "down":
            self.connector.send(Note("ready"))
            await_event(self.listener, Received)

    def cut(self) -> None:
        await_event(self.connector, Disconnected)
        if not self.proxy.silent:
            await_event(self.listener, Left)

    def send(self, message: object) -> None:
        if self.way == "up":
            self.connector.send(message)
        else:
            self.listener.send("client-1", message)

    def break_off(self) -> None:
        """Send a message that is interrupted, and reconnect."""
        self.opened()
        self.send(Task(1, WEIGHTS))
        self.cut()
        self.opened()

    def passed(self, connection: int) -> int:
        return int(getattr(self.proxy.connections[connection], self.way))


@contextlib.contextmanager
def broken(
    way: str,
    cuts: list[int],
    *,
    silent: bool = False,
    tls: Certificates | None = None,
    backoff: Backoff = QUICK,
    limits: Limits | None = None,
) -> Iterator[Ends]:
    of_server, of_client = (tls.server, tls.client("client-1")) if tls else (None, None)
    both: dict[str, Any] = {"token": b"secret", "limits": limits}
    with (
        Listener("127.0.0.1:0", CODEC, tls=of_server, **both) as listener,
        CuttingProxy(listener, [(way, cut) for cut in cuts], silent) as proxy,
        Connector(
            proxy.address, "client-1", CODEC, tls=of_client, backoff=backoff, **both
        ) as connector,
    ):
        yield Ends(way, proxy, connector)


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize(
    "cut", [LEAST_FILLED_BYTES + REST, 1_000_000, 2_500_001, WHOLE - 300_000, WHOLE]
)
def test_only_the_missing_bytes_are_sent_again(way: str, cut: int) -> None:
    with broken(way, [cut]) as ends:
        ends.break_off()
        ends.send(Task(1, WEIGHTS))
        arrived = await_event(ends.receiver, Received)
        assert np.array_equal(arrived.message.weights, WEIGHTS)
        assert arrived.wire_bytes == WHOLE
        assert ends.passed(0) == cut
        ends.send(Note("and nothing twice"))
        assert await_event(ends.receiver, Received).message == Note("and nothing twice")
        assert ends.passed(1) <= WHOLE - cut + REST


@pytest.mark.parametrize("way", ["up", "down"])
def test_it_is_continued_after_each_of_several_cuts(way: str) -> None:
    cuts = [1_000_000, 900_000, REST // 2, 2_000_000]

    with broken(way, cuts) as ends:
        for _ in range(len(cuts)):
            ends.opened()
            ends.send(Task(1, WEIGHTS))
            ends.cut()
        ends.opened()
        ends.send(Task(1, WEIGHTS))
        assert np.array_equal(await_event(ends.receiver, Received).message.weights, WEIGHTS)
        ends.send(Note("the end"))
        await_event(ends.receiver, Received)
        sent = sum(ends.passed(connection) for connection in range(len(cuts) + 1))
        assert sent <= WHOLE + REST * (len(cuts) + 1)


def test_it_is_continued_if_the_server_has_not_seen_the_cut() -> None:
    """The newer connection replaces the older one and keeps its received bytes."""

    with broken("up", [3_000_000], silent=True) as ends:
        ends.opened()
        ends.send(Task(1, WEIGHTS))
        await_event(ends.connector, Disconnected)
        ends.opened()
        ends.send(Task(1, WEIGHTS))
        assert np.array_equal(await_event(ends.listener, Received).message.weights, WEIGHTS)
        ends.send(Note("the end"))
        await_event(ends.listener, Received)
        assert ends.passed(1) <= WHOLE - 3_000_000 + REST


def raw_session(listener: Listener) -> tuple[socket.socket, ClientSession]:
    """A bare socket, and the session of a client before its hello."""
    session = ClientSession("client-1", CODEC, 0.0, token=b"secret", features=frozenset({FEATURE}))
    raw = dial(listener)
    session.receive_data(raw.recv(1 << 16), 0.0)
    return raw, session


def test_unread_bytes_of_the_older_connection_count() -> None:
    """A busy server sees the newer connection before it has read all of the older one."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(Listener("127.0.0.1:0", CODEC, token=b"secret"))
        older, session = raw_session(listener)
        stack.callback(older.close)
        older.sendall(drained(session))
        session.receive_data(older.recv(1 << 16), 0.0)
        await_event(listener, Joined)
        newer, next_session = raw_session(listener)
        stack.callback(newer.close)
        busy, over = threading.Event(), threading.Event()
        stack.callback(over.set)
        listener._soon(lambda: (busy.set(), over.wait(20)))
        assert busy.wait(20)
        session.send_message(CODEC.encode(Task(1, WEIGHTS)))
        older.setblocking(False)
        sent = older.send(drained(session)[:1_500_000])
        assert sent > 2 * MOST_BYTES  # more than is read at a time
        newer.sendall(drained(next_session))
        over.set()
        await_event(listener, Joined)
        listener.send("client-1", Note("go on"))
        events: list[SessionEvent] = []
        while not any(isinstance(event, Arrived) for event in events):
            events = next_session.receive_data(newer.recv(1 << 16), 0.0)
        next_session.send_message(CODEC.encode(Task(1, WEIGHTS)))
        rest = drained(next_session)
        assert len(rest) <= WHOLE - sent + REST
        newer.sendall(rest)
        assert np.array_equal(await_event(listener, Received).message.weights, WEIGHTS)


@pytest.mark.parametrize("way", ["up", "down"])
def test_another_message_of_the_same_size_starts_again(way: str) -> None:
    other = WEIGHTS.copy()
    other[1000] += 1

    with broken(way, [3_000_000]) as ends:
        ends.break_off()
        ends.send(Task(1, other))
        assert np.array_equal(await_event(ends.receiver, Received).message.weights, other)
        ends.send(Task(1, WEIGHTS))
        assert np.array_equal(await_event(ends.receiver, Received).message.weights, WEIGHTS)


def test_a_server_that_does_not_wait_for_its_client_starts_again() -> None:
    """The client's PARTIAL frame is too late, and is ignored for later messages, too."""

    with broken("down", [3_000_000]) as ends:
        ends.opened()
        ends.send(Task(1, WEIGHTS))
        ends.cut()
        await_event(ends.listener, Joined)
        for _ in range(2):
            ends.send(Task(1, WEIGHTS))
            assert np.array_equal(await_event(ends.connector, Received).message.weights, WEIGHTS)


def test_a_small_message_in_between_changes_nothing() -> None:
    with broken("up", [3_000_000]) as ends:
        ends.break_off()
        ends.send(Note("I am back"))
        ends.send(Task(1, WEIGHTS))
        assert await_event(ends.receiver, Received).message == Note("I am back")
        assert np.array_equal(await_event(ends.receiver, Received).message.weights, WEIGHTS)
        ends.send(Note("the end"))
        await_event(ends.receiver, Received)
        assert ends.passed(1) <= WHOLE - 3_000_000 + REST


def test_it_is_continued_over_tls(certificates: Certificates) -> None:
    with broken("up", [3_000_000], tls=certificates) as ends:
        ends.break_off()
        ends.send(Task(1, WEIGHTS))
        assert np.array_equal(await_event(ends.listener, Received).message.weights, WEIGHTS)
        ends.send(Note("the end"))
        await_event(ends.listener, Received)
        # TLS adds some bytes to each record, and drops the record that was cut.
        assert ends.passed(1) <= (WHOLE - 3_000_000) * 1.01 + 16 * 1024 + REST


def test_an_expired_part_is_dropped() -> None:
    with broken("up", [3_000_000], limits=Limits(keep_s=1e-9)) as ends:
        ends.break_off()
        ends.send(Task(1, WEIGHTS))
        assert np.array_equal(await_event(ends.receiver, Received).message.weights, WEIGHTS)
        assert ends.passed(1) >= WHOLE


def test_a_part_that_is_not_continued_is_freed() -> None:
    with broken("up", [3_000_000], backoff=SLOW, limits=Limits(keep_s=0.2)) as ends:
        ends.opened()
        ends.send(Task(1, WEIGHTS))
        ends.cut()
        until(lambda: not ends.listener._partials.kept_bytes)


@dataclass
class Passed:
    """The bytes of one connection to the listener (up) and back (down)."""

    up: int = 0
    down: int = 0


@dataclass
class CuttingProxy:
    """A TCP proxy for a listener; it cuts connection i after `cuts[i]` bytes in one direction.

    Attributes:
        cuts: direction and bytes, for the first connections; others are not cut.
        silent: whether only the client sees the cut, as with a failed router.
        connections: the passed bytes, by connection.
    """

    listener: Listener
    cuts: list[tuple[str, int]] = field(default_factory=list)
    silent: bool = False
    connections: list[Passed] = field(default_factory=list)

    def __enter__(self) -> CuttingProxy:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._server]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        for one in self._sockets:
            _end(one)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                host, port = self.listener.address.rsplit(":", 1)
                far = socket.create_connection((host, int(port)))
                passed, number = Passed(), len(self.connections)
                way, most = self.cuts[number] if number < len(self.cuts) else ("", 0)
                self.connections.append(passed)
                self._sockets += [near, far]
                for name, source, target in (("up", near, far), ("down", far, near)):
                    left = most if name == way else None
                    arguments = (passed, name, source, target, left, near, far)
                    threading.Thread(target=self._carry, args=arguments, daemon=True).start()

    def _carry(
        self,
        passed: Passed,
        way: str,
        source: socket.socket,
        target: socket.socket,
        left: int | None,
        near: socket.socket,
        far: socket.socket,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if left is not None:
                    data = data[:left]
                    left -= len(data)
                target.sendall(data)
                setattr(passed, way, getattr(passed, way) + len(data))
                if left == 0:
                    _await_arrival(target)
                    break
        _end(near)
        if not (self.silent and left == 0):
            _end(far)


def _await_arrival(one: socket.socket) -> None:
    """Wait until the peer's kernel has received everything sent on a connection."""
    waiting = bytes(4)
    while any(waiting := fcntl.ioctl(one, termios.TIOCOUTQ, waiting)):
        time.sleep(0.001)


def _end(one: socket.socket) -> None:
    """End a connection; bytes sent before still arrive."""
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
