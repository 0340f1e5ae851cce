"""What outsiders without a certificate make a listener keep: few handshakes with few bytes."""

from __future__ import annotations

import contextlib
import gc
import socket
import ssl
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from layers.network import (
    Connected,
    ConnectionRejected,
    Connector,
    Left,
    Limits,
    Listener,
    Received,
    acceptor,
)
from layers.network.acceptor import PRESSED_S, Admission
from layers.network.connection import LEAST_BYTES, MOST_BYTES, WRITTEN_FOR_READ, bytes_at_a_time
from layers.network.securing import (
    BUFFER_BYTES,
    HANDSHAKE_BYTES,
    OPENED_BYTES,
    SEALED_BYTES,
    _Securing,
    return_memory,
)
from tests.network.conftest import Certificates
from tests.network.test_admission import HERE, THERE
from tests.network.test_floods import notes
from tests.network.wire_messages import (
    CODEC,
    QUICK,
    Note,
    Task,
    await_event,
    dial,
    joined,
    raw_session,
    until,
)

AT_ONCE = 4
STRANGERS = 20
PATIENT = Limits(max_tls_handshakes=AT_ONCE, handshake_s=3600)


def hello() -> bytes:
    """The first flight of TLS."""
    context, sent = ssl.create_default_context(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    return sent.read()


HELLO = hello()


@contextlib.contextmanager
def connected(listener: Listener, number: int, content: bytes) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(dial(listener)) for _ in range(number)]
        for one in opened:
            one.sendall(content)
        yield opened


@pytest.fixture
def handshakes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The most handshakes with TLS at a time, and the buffer of each."""
    begun: list[Any] = []
    most = [0]

    class Counted(_Securing):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            begun.append(self)
            most[0] = max(most[0], sum(not one.secured.done() for one in begun))

    monkeypatch.setattr("layers.network.securing._Securing", Counted)
    return [begun, most]


def test_few_handshakes_do_tls_at_a_time_each_with_a_small_buffer_and_a_client_joins(
    certificates: Certificates, handshakes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, most = handshakes
    monkeypatch.setattr(acceptor, "PRESSED_S", 0.3)  # each stranger before it has its turn
    with (
        Listener("127.0.0.1:0", CODEC, tls=certificates.server, limits=PATIENT) as listener,
        connected(listener, STRANGERS, HELLO),
    ):
        until(lambda: len(listener._acceptor._admission) == STRANGERS)
        tls = certificates.client("client-1")
        with Connector(listener.address, "client-1", CODEC, tls=tls, backoff=QUICK) as connector:
            await_event(connector, Connected)
        assert len(begun) > AT_ONCE
        # An evicted one ends in the loop's next turn.
        assert most[0] <= AT_ONCE + 1
        open_ones = [one for one in begun if not one.secured.done()]
        # Python 3.10 has no such buffers.
        assert all(len(getattr(one, "_ssl_buffer", b"")) <= BUFFER_BYTES for one in open_ones)


def test_strangers_that_have_left_leave_nothing_and_memory_is_returned(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned: list[int] = []
    monkeypatch.setattr(acceptor, "MANY", STRANGERS)
    monkeypatch.setattr(acceptor, "return_memory", lambda: returned.append(1))
    with Listener("127.0.0.1:0", CODEC, tls=certificates.server, limits=PATIENT) as listener:
        known = listener._acceptor
        with connected(listener, STRANGERS, HELLO):
            until(lambda: known._peak == STRANGERS)
            assert len(known._securing) == AT_ONCE
            assert returned == []
        until(lambda: returned)
        until(lambda: not known._admission)
        assert len(known._securing) == 0
        gc.collect()  # other tests of this process may have left some in cycles
        until(lambda: not [one for one in gc.get_objects() if type(one) is _Securing])


def test_the_bytes_before_a_verified_certificate_are_limited(certificates: Certificates) -> None:
    # A ClientHello of many records; OpenSSL would take twice as much.
    record = b"\x16\x03\x01\x40\x00\x01" + (131_000).to_bytes(3, "big") + HELLO[9:]
    record += bytes(5 + 16_384 - len(record))
    with (
        Listener("127.0.0.1:0", CODEC, tls=certificates.server, limits=PATIENT) as listener,
        connected(listener, 1, record) as (raw,),
    ):
        with contextlib.suppress(ConnectionError):
            for _ in range(6):
                raw.sendall(b"\x16\x03\x01\x40\x00" + bytes(16_384))
        assert str(HANDSHAKE_BYTES) in await_event(listener, ConnectionRejected).reason


def test_a_verified_client_is_not_limited(certificates: Certificates) -> None:
    with joined(tls=certificates) as (listener, connector):
        note = Note("x" * 10 * HANDSHAKE_BYTES)
        connector.send(note)
        assert await_event(listener, Received).message == note


def test_the_party_with_the_most_gives_way_to_another_even_if_it_is_active() -> None:
    admission: Admission[str] = Admission(Limits(max_handshakes=4), PRESSED_S)
    for number in range(4):
        admission.arrive(f"stranger {number}", HERE, 0.0)
    assert not admission.goes_first(HERE)
    assert admission.goes_first(THERE)
    assert admission.evict(0.5, HERE) is None
    assert admission.evict(0.5, THERE) == "stranger 0"
    admission.arrive("honest", THERE, 0.5)
    assert admission.evict(0.6, HERE) is None
    assert admission.evict(1.0, HERE) == "stranger 1"
    assert not admission.goes_first(THERE)


def test_returning_memory_needs_no_particular_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    return_memory()
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    return_memory()
    kept_bytes: list[int] = []
    monkeypatch.setattr("ctypes.CDLL", lambda name: SimpleNamespace(malloc_trim=kept_bytes.append))
    return_memory()
    assert kept_bytes == [0]


class Watched:
    """Passes everything on, and keeps the sizes of what is written."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.sizes = inner, list[int]()

    def write(self, data: memoryview) -> int:
        self.sizes.append(len(data))
        return int(self.inner.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.skipif(not _Securing.in_parts, reason="TLS of Python 3.10")
@pytest.mark.parametrize("connections", [1, 2000])
def test_openssl_gets_small_parts_of_large_messages_where_connections_are_many(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, connections: int
) -> None:
    at_a_time = bytes_at_a_time(connections)
    monkeypatch.setattr("layers.network.endpoint.bytes_at_a_time", lambda _: at_a_time)
    weights = np.random.default_rng(5).standard_normal(3 << 20).astype(np.float32)
    with joined(tls=certificates) as (listener, connector):
        (connection,) = listener._connections
        protocol: Any = connection._transport._ssl_protocol  # type: ignore[attr-defined]
        sealed = protocol._sslobj = Watched(protocol._sslobj)
        received = protocol._incoming = Watched(protocol._incoming)
        for number in range(3):  # both ways at the same time
            connector.send(Task(number, weights))
            listener.send("client-1", Task(number, weights))
        for end in (listener, connector):
            for number in range(3):
                task = await_event(end, Received).message
                assert task.round == number
                assert np.array_equal(task.weights, weights)
        few = connections == 1
        assert 0 < max(sealed.sizes) <= (MOST_BYTES if few else SEALED_BYTES)
        assert 0 < max(received.sizes) <= (MOST_BYTES if few else OPENED_BYTES)
        assert (max(sealed.sizes) > SEALED_BYTES) == few
        assert sum(received.sizes) > 3 * weights.nbytes


@pytest.mark.skipif(not _Securing.in_parts, reason="this Python gives OpenSSL all bytes at once")
def test_bytes_to_send_are_encrypted_part_by_part_without_a_copy_of_the_rest() -> None:
    data, parts = bytes(range(256)) * 1024, list[memoryview]()

    def encrypt(part: memoryview) -> int:
        parts.append(part)
        return len(part)

    tls: Any = SimpleNamespace(
        _write_backlog=[data],
        _write_buffer_size=len(data),
        _ssl_writing_paused=False,
        _must_wait=lambda: False,
        _sslobj=SimpleNamespace(write=encrypt),
        _outgoing=SimpleNamespace(read=lambda: b""),
        _transport=SimpleNamespace(write=lambda sealed: None),
        _process_outgoing=lambda: None,
        _connection=SimpleNamespace(at_a_time=0),
    )
    _Securing._do_write(tls)
    assert len(parts) > 2
    assert b"".join(parts) == data
    assert all(part.obj is data for part in parts)
    assert (tls._write_backlog, tls._write_buffer_size) == ([], 0)


def test_messages_right_before_the_end_of_tls_are_received(certificates: Certificates) -> None:
    tls = certificates.client("client-1")
    limits = Limits(max_queued_events=10_000)
    with Listener("127.0.0.1:0", CODEC, tls=certificates.server, limits=limits) as listener:
        raw = raw_session(listener, "client-1", tls=tls)
        with contextlib.suppress(OSError):  # the other end may close before its answer is read
            raw.sendall(notes(2000))
            raw.unwrap()
        for _ in range(2000):
            assert await_event(listener, Received, 20).peer == "client-1"
        assert "without a goodbye" in await_event(listener, Left, 20).reason
        raw.close()


@pytest.mark.skipif(not _Securing.in_parts, reason="this Python gives OpenSSL all bytes at once")
def test_the_last_bytes_that_waited_are_written_when_the_socket_takes_bytes_again(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layers.network.endpoint.bytes_at_a_time", lambda _: LEAST_BYTES)
    note = Note("x" * (3 * WRITTEN_FOR_READ * LEAST_BYTES - 100))
    tls = certificates.client("client-1")
    with Listener("127.0.0.1:0", CODEC, tls=certificates.server, heartbeat_s=3600) as listener:
        raw = raw_session(listener, "client-1", tls=tls)
        (connection,) = listener._connections
        protocol: Any = connection._transport._ssl_protocol  # type: ignore[attr-defined]
        small = connection._transport.get_extra_info("socket")
        small.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        left = listener.send("client-1", note)
        until(lambda: protocol._ssl_writing_paused and protocol._write_backlog)
        while left:
            left -= len(raw.recv(left))
        raw.close()
