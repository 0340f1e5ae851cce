"""Attackers that hold connections without a handshake, on real sockets."""

from __future__ import annotations

import contextlib
import gc
import resource
import socket
import ssl
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from layers.network import (
    Connected,
    ConnectionRejected,
    Connector,
    Crowded,
    Joined,
    Left,
    Limits,
    Listener,
    Retrying,
    RoomAgain,
    ServerTLS,
    acceptor,
    address,
)
from layers.network.acceptor import _reason
from layers.network.address import (
    KEPT_FOR_HANDSHAKES,
    WANTED_FILES,
    Address,
    file_limit,
    free_descriptors,
    raise_file_limit,
)
from layers.network.handshake import ClientSession, ServerSession
from layers.network.limits import CLIENT_PATIENCE
from layers.network.tls import AlertingSSLObject
from tests.network.conftest import Certificates
from tests.network.wire_messages import CODEC, QUICK, await_event, dial, read_to_end, until

# Deadlines are so long that only eviction ends a handshake.
FEW = Limits(max_handshakes=8, handshake_s=3600.0)
STRANGERS = 40
TLS_ALERT = 21

Way = Callable[[socket.socket], socket.socket]


@contextlib.contextmanager
def strangers(listener: Listener, way: Way) -> Iterator[None]:
    """Connections that are opened again as soon as they are closed, until the end."""
    over, there = threading.Event(), threading.Barrier(STRANGERS + 1)

    def one() -> None:
        first = True
        while not over.is_set():
            with contextlib.suppress(OSError), dial(listener, 0.2) as bare:
                if first:
                    first = False
                    there.wait(30)
                with way(bare) as raw:
                    while not over.is_set():
                        with contextlib.suppress(TimeoutError):
                            if not raw.recv(4096):
                                break

    threads = [threading.Thread(target=one) for _ in range(STRANGERS)]
    for thread in threads:
        thread.start()
    there.wait(30)
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(30)


def silent(raw: socket.socket) -> socket.socket:
    return raw


def one_byte(raw: socket.socket) -> socket.socket:
    raw.sendall(b"\x16")
    return raw


def silent_after_tls(certificates: Certificates) -> Way:
    tls = certificates.client("client-2")
    context = ssl.create_default_context(cafile=str(tls.ca))
    context.load_cert_chain(str(tls.certificate), tls.key)
    return lambda raw: context.wrap_socket(raw, server_hostname="127.0.0.1")


@pytest.mark.parametrize(
    ("secure", "way"),
    [(False, silent), (True, silent), (False, one_byte), (True, one_byte), (True, None)],
    ids=["silent", "silent, tls", "one byte", "one byte, tls", "a stolen certificate"],
)
def test_a_client_joins_among_attackers_that_always_reconnect(
    certificates: Certificates, secure: bool, way: Way | None
) -> None:
    tls = certificates.server if secure else None
    with (
        Listener("127.0.0.1:0", CODEC, tls=tls, limits=FEW) as listener,
        strangers(listener, way or silent_after_tls(certificates)),
    ):
        await_in(listener, certificates, secure)


def await_in(listener: Listener, certificates: Certificates, secure: bool) -> None:
    tls = certificates.client("client-1") if secure else None
    with Connector(listener.address, "client-1", CODEC, tls=tls, backoff=QUICK) as connector:
        await_event(connector, Connected, 60)
        assert listener.peers == {"client-1"}


def test_each_step_of_a_handshake_makes_it_the_least_stale(certificates: Certificates) -> None:
    with (
        Listener("127.0.0.1:0", CODEC, tls=certificates.server, limits=FEW) as listener,
        contextlib.ExitStack() as stack,
    ):
        admission = listener._acceptor._admission

        def connected() -> socket.socket:
            before = len(admission)
            raw = dial(listener)
            until(lambda: len(admission) > before)
            return stack.enter_context(raw)

        def ports() -> dict[str, list[int]]:
            """By party, the stalest first."""
            parties = admission._parties.copy()
            return {
                name: [one.address.port for one in list(party)] for name, party in parties.items()
            }

        first, second, third = (connected() for _ in range(3))
        one, two, three = (raw.getsockname()[1] for raw in (first, second, third))
        until(lambda: ports() == {"127.0.0.1": [one, two, three]})
        one_byte(first)
        until(lambda: ports() == {"127.0.0.1": [two, three, one]})
        stack.enter_context(silent_after_tls(certificates)(second))
        until(lambda: ports() == {"127.0.0.1": [three, one], "identity client-2": [two]})


def test_a_client_does_not_wait_in_line_with_those_of_another_party_for_tls(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "PRESSED_S", 3600.0)  # no party gives way to itself
    limits = Limits(max_tls_handshakes=2, handshake_s=3600.0)
    with (
        Listener("127.0.0.1:0", CODEC, tls=certificates.server, limits=limits) as listener,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(4):
            raw = dial(listener)
            stack.enter_context(one_byte(raw))
        until(lambda: listener._acceptor._securing.full and listener._acceptor._turn.locked())
        address = "127.0.0.1", int(listener.address.rpartition(":")[2])
        raw = socket.create_connection(address, 20, ("127.0.0.2", 0))
        tls = stack.enter_context(silent_after_tls(certificates)(raw))
        assert tls.recv(4096), "the greeting"
        rejected = await_event(listener, ConnectionRejected)
        assert rejected.address.startswith("127.0.0.1:")
        assert "evicted" in rejected.reason


def test_an_evicted_handshake_is_reported(certificates: Certificates) -> None:
    limits = Limits(max_handshakes=1, handshake_s=3600)
    for tls in (None, certificates.server):
        with (
            Listener("127.0.0.1:0", CODEC, tls=tls, limits=limits) as listener,
            dial(listener) as first,
        ):
            with dial(listener):
                rejected = await_event(listener, ConnectionRejected)
            assert rejected.address == "{}:{}".format(*first.getsockname())
            assert "evicted" in rejected.reason
            assert not rejected.told
            read_to_end(first)  # the greeting, then the end


def test_a_peer_that_sends_on_after_a_failed_tls_is_cut_off(certificates: Certificates) -> None:
    patient = Limits(handshake_s=3600)
    with Listener("127.0.0.1:0", CODEC, tls=certificates.server, limits=patient) as listener:
        with dial(listener) as raw:
            raw.sendall(b"\x16\x03\x01\x00\x05hello")  # starts like TLS, but is no ClientHello
            assert raw.recv(4096)[0] == TLS_ALERT
            with pytest.raises(ConnectionError):
                raw.sendall(bytes(64 << 20))  # more than socket buffers
        rejected = await_event(listener, ConnectionRejected)
        assert "TLS failed" in rejected.reason
        assert "SYSCALL" not in rejected.reason.upper()


BEGUN: list[weakref.ref[ssl.SSLObject]] = []  # the attempted handshakes


class Watched(AlertingSSLObject):
    def do_handshake(self) -> None:
        BEGUN.append(weakref.ref(self))
        super().do_handshake()


class WatchedTLS(ServerTLS):
    def context(self) -> ssl.SSLContext:
        context = super().context()
        context.sslobject_class = Watched
        return context


@pytest.mark.parametrize("more", [0, 64 << 20], ids=["leaves", "goes on"])
def test_a_failed_tls_handshake_is_freed_at_once(certificates: Certificates, more: int) -> None:
    tls = certificates.server
    watched = WatchedTLS(tls.certificate, tls.key, tls.ca)
    patient = Limits(handshake_s=3600)
    BEGUN.clear()
    with Listener("127.0.0.1:0", CODEC, tls=watched, limits=patient) as listener:
        gc.disable()
        try:
            with dial(listener) as raw:
                raw.sendall(b"\x16\x03\x01\x00\x05hello")
                assert raw.recv(4096)[0] == TLS_ALERT
                with contextlib.suppress(ConnectionError):
                    raw.sendall(bytes(more))
            await_event(listener, ConnectionRejected)
            until(lambda: BEGUN[0]() is None)
        finally:
            gc.enable()


def test_closing_while_clients_connect_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    def knock(listener: Listener, over: threading.Event) -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                dial(listener).close()

    for _ in range(6):
        over = threading.Event()
        with Listener("127.0.0.1:0", CODEC) as listener:
            thread = threading.Thread(target=knock, args=(listener, over))
            thread.start()
            await_event(listener, ConnectionRejected)
        over.set()
        thread.join(30)
    assert caplog.records == []


def test_under_pressure_each_step_has_a_short_deadline() -> None:
    limits = Limits(max_handshakes=4, handshake_s=3600)
    with Listener("127.0.0.1:0", CODEC, limits=limits) as listener, contextlib.ExitStack() as stack:
        for _ in range(3):  # three of four
            stack.enter_context(dial(listener))
        assert "within 1 s" in await_event(listener, ConnectionRejected).reason


def test_a_client_waits_longer_for_a_handshake_than_its_server() -> None:
    limits = Limits(handshake_s=15)
    server = ServerSession(CODEC, 0.0, limits=limits)
    client = ClientSession("client-1", CODEC, 0.0, limits=limits)
    assert server.deadline() == 15
    assert client.deadline() == 15 * CLIENT_PATIENCE
    assert CLIENT_PATIENCE > 3  # a server waits as long for each of three steps


def room_for(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    """Set a limit of open files that leaves room for so many more connections."""
    limit = 1
    monkeypatch.setattr(address, "file_limit", lambda: limit)
    while free_descriptors() < more:
        limit += 1


def test_a_client_without_a_free_descriptor_is_told_and_others_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with contextlib.ExitStack() as stack:
        with monkeypatch.context() as few:
            few.setattr(acceptor, "free_descriptors", lambda: KEPT_FOR_HANDSHAKES + 3)
            listener = stack.enter_context(Listener("127.0.0.1:0", CODEC))

        def client(number: int) -> Connector:
            name = f"client-{number}"
            return stack.enter_context(Connector(listener.address, name, CODEC, backoff=QUICK))

        inside = [client(number) for number in range(3)]
        for connector in inside:
            await_event(connector, Connected)
            await_event(listener, Joined)
        reason = await_event(client(3), Retrying).reason
        assert "3 clients" in reason
        crowded = listener.next_event(20)
        assert isinstance(crowded, Crowded)
        assert crowded.reason in reason
        for _ in range(3):  # reported once, however often the client retries
            rejected = listener.next_event(20)
            assert isinstance(rejected, ConnectionRejected)
            assert rejected.told
        assert listener.peers == {"client-0", "client-1", "client-2"}
        inside[0].close()
        await_event(listener, Left)
        await_event(listener, RoomAgain)
        assert await_event(listener, Joined).peer == "client-3"


def test_attackers_cannot_hold_all_descriptors(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls: ServerTLS = certificates.server
    limits = Limits(handshake_s=3600)
    with (
        Listener("127.0.0.1:0", CODEC, tls=tls, limits=limits) as listener,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(20):
            stack.enter_context(dial(listener))
        until(lambda: len(listener._acceptor._admission) == 20)
        room_for(monkeypatch, 0)  # they hold the last descriptors
        await_in(listener, certificates, True)


def test_some_descriptors_stay_free_for_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        used = probe.fileno()
    for limit, kept in ((256, 64), (1024, 64), (100, 25)):
        monkeypatch.setattr(address, "file_limit", lambda limit=limit: limit)
        assert free_descriptors() == limit - kept - used


@pytest.mark.parametrize("failure", [ConnectionResetError(), OSError(), OSError(104, "reset")])
def test_a_failed_handshake_has_a_reason(failure: OSError) -> None:
    assert "()" not in _reason(failure, Address("127.0.0.1", 1))


def test_a_server_may_have_as_many_files_open_as_it_wants_or_as_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed - 1, hard))
        assert file_limit() == allowed - 1
        for _ in range(2):
            raise_file_limit()
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (allowed, hard)
        if soft > allowed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            raise_file_limit()
            assert file_limit() == soft, "a higher limit stays"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
