"""Real sockets and real TLS on loopback: joining, being refused, coming back, being counted."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import pytest

from layers.network import (
    AddressError,
    AuthenticationFailed,
    Backoff,
    ClientTLS,
    Connected,
    ConnectionRejected,
    Connector,
    Disconnected,
    GaveUp,
    Joined,
    Left,
    LimitExceeded,
    Limits,
    Listener,
    NetworkError,
    NotConnected,
    Received,
    Retrying,
    Sent,
    make_server_certificate,
    wire_size,
)
from layers.network.protocol.frames import SIZE, FrameReader, Kind, frame
from layers.network.protocol.handshake import CONTROL, Goodbye, Hello
from tests.network.conftest import Certificates
from tests.network.protocol.wire_messages import (
    CODEC,
    Note,
    Task,
    Update,
    await_event,
    raw_connection,
    read_to_end,
)
from tests.network.socket_bytes import count_sockets, socket_bytes

QUICK = Backoff(first_s=0.01, longest_s=0.05)


def last_words(data: bytes) -> str:
    """The text of the refusal or goodbye that a connection ended with."""
    *_, last = FrameReader().feed(data)
    words = CONTROL.decode(last.payload)  # type: ignore[union-attr]
    return str(getattr(words, "text", None) or words.reason)


def raw_session(listener: Listener, identity: str = "raw") -> socket.socket:
    """A bare socket with an open session."""
    raw = raw_connection(listener)
    hello = Hello(1, identity, [], bytes(32), 1 << 30, 8, b"")
    raw.sendall(frame(Kind.HELLO, 0, bytes(CONTROL.encode(hello))))
    assert raw.recv(1 << 16)
    await_event(listener, Joined)
    return raw


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_messages_cross_and_every_byte_is_counted(
    certificates: Certificates, secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_sockets(monkeypatch)
    server_tls = certificates.server if secure else None
    client_tls = certificates.client("client-1") if secure else None
    weights = np.random.default_rng(1).standard_normal(700_000).astype(np.float32)
    with Listener("127.0.0.1:0", CODEC, tls=server_tls) as listener:
        connector = Connector(listener.address, "client-1", CODEC, tls=client_tls)
        connector.start()
        joined = await_event(listener, Joined)
        assert (joined.peer, joined.authenticated) == ("client-1", secure)
        sent_bytes = listener.send("client-1", Task(1, weights))
        task = await_event(connector, Received)
        assert np.array_equal(task.message.weights, weights)
        assert sent_bytes == task.wire_bytes == wire_size(CODEC.encode(task.message).size)
        assert await_event(listener, Sent) == Sent("client-1", "Task", sent_bytes)
        back_bytes = connector.send(Update("client-1", True, deltas=[weights[:5]]))
        update = await_event(listener, Received)
        assert (update.peer, update.wire_bytes) == ("client-1", back_bytes)
        connector.close()
        assert await_event(listener, Left).reason == "the client closes"
        down, up = listener.traffic("client-1"), connector.traffic()
        assert down.message_bytes_sent == up.message_bytes_received == sent_bytes
        assert up.message_bytes_sent == down.message_bytes_received == back_bytes
        assert (down.sent_bytes, down.received_bytes) == (up.received_bytes, up.sent_bytes)
        assert (down.sent_bytes, down.received_bytes) == socket_bytes(listener)
        assert (up.sent_bytes, up.received_bytes) == socket_bytes(connector)
        assert listener.traffic() == down


def test_a_payload_is_encoded_once_for_many() -> None:
    payload = CODEC.encode(Note("to all"))
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(listener.address, "a", CODEC) as one,
        Connector(listener.address, "b", CODEC) as other,
    ):
        await_event(listener, Joined)
        await_event(listener, Joined)
        for peer in sorted(listener.peers):
            assert listener.send(peer, payload) == wire_size(payload.size)
        assert await_event(one, Received).message == await_event(other, Received).message


def test_garbage_is_refused_and_the_others_stay() -> None:
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(listener.address, "good", CODEC) as good,
    ):
        await_event(listener, Joined)
        raw = raw_connection(listener)
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert "no frame of this protocol" in last_words(read_to_end(raw))
        refused = await_event(listener, ConnectionRejected)
        assert "no frame of this protocol" in refused.reason
        assert refused.address == "{}:{}".format(*raw.getsockname())
        raw.close()
        good.send(Note("still here"))
        assert await_event(listener, Received).message == Note("still here")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (frame(Kind.PING), "a PING frame while deciding on the client"),
        (frame(Kind.MESSAGE, 1, SIZE.pack(4)), "a MESSAGE frame while deciding on the client"),
        (b"\xff" * 10, "no frame of this protocol"),
    ],
    ids=["ping", "message", "garbage"],
)
def test_what_comes_in_one_segment_with_a_hello_is_refused_as_at_any_time(
    more: bytes, words: str
) -> None:
    with Listener("127.0.0.1:0", CODEC) as listener:
        raw = raw_connection(listener)
        hello = Hello(1, "hasty", [], bytes(32), 1 << 30, 8, b"")
        raw.sendall(frame(Kind.HELLO, 0, bytes(CONTROL.encode(hello))) + more)
        assert words in last_words(read_to_end(raw))
        raw.close()
        refused = listener.next_event(20)
        assert isinstance(refused, ConnectionRejected)
        assert refused.peer == "hasty"
        assert words in refused.reason


def test_half_a_frame_and_then_nothing_is_reported() -> None:
    with Listener("127.0.0.1:0", CODEC) as listener:
        raw = raw_session(listener)
        raw.sendall(frame(Kind.MESSAGE, 1, SIZE.pack(100)) + frame(Kind.DATA, 1, bytes(100))[:50])
        raw.close()
        left = await_event(listener, Left)
        assert left.peer == "raw"
        assert "in the middle of a frame" in left.reason


def test_a_length_beyond_the_limit_is_refused_by_name() -> None:
    with Listener("127.0.0.1:0", CODEC, limits=Limits(max_message_bytes=1000)) as listener:
        raw = raw_session(listener)
        raw.sendall(frame(Kind.MESSAGE, 1, SIZE.pack(2**62)))
        assert "max_message_bytes is 1000" in last_words(read_to_end(raw))
        raw.close()
        refused = await_event(listener, ConnectionRejected)
        assert (refused.peer, await_event(listener, Left).peer) == ("raw", "raw")
        assert "max_message_bytes is 1000" in refused.reason


def test_a_malformed_message_never_reaches_the_caller() -> None:
    with Listener("127.0.0.1:0", CODEC) as listener:
        raw = raw_session(listener)
        data = struct.pack("<I", 4) + b"\x03\x81\xc0\xc0"
        raw.sendall(frame(Kind.MESSAGE, 1, SIZE.pack(len(data))) + frame(Kind.DATA, 1, data))
        assert "must be of type str, not nil" in last_words(read_to_end(raw))
        raw.close()
        assert await_event(listener, ConnectionRejected).peer == "raw"
        assert isinstance(listener.next_event(20), Left)


def test_a_handshake_that_never_ends_is_dropped_and_blocks_nobody(
    certificates: Certificates,
) -> None:
    limits = Limits(handshake_s=0.3, max_handshakes=4)
    for tls, client_tls in ((None, None), (certificates.server, certificates.client("good"))):
        with Listener("127.0.0.1:0", CODEC, tls=tls, limits=limits) as listener:
            host, port = listener.address.split(":")
            slow = [socket.create_connection((host, int(port))) for _ in range(6)]
            with Connector(listener.address, "good", CODEC, tls=client_tls, backoff=QUICK):
                refused = 0
                joined = False
                while not (joined and refused == 6):
                    match listener.next_event(20):
                        case ConnectionRejected(reason=reason):
                            refused += 1
                            assert "handshake" in reason
                        case Joined(peer="good"):
                            joined = True
                        case event:
                            assert event is not None
            for raw in slow:
                raw.close()


def test_under_mutual_tls_an_identity_is_the_certificates(certificates: Certificates) -> None:
    with Listener("127.0.0.1:0", CODEC, tls=certificates.server) as listener:
        thief = Connector(
            listener.address, "client-2", CODEC, tls=certificates.client("client-1"), backoff=QUICK
        )
        with thief:
            gave_up = await_event(thief, GaveUp)
        assert gave_up.final
        assert "it is 'client-2', its certificate is for 'client-1'" in gave_up.reason
        refused = await_event(listener, ConnectionRejected)
        assert refused.peer == "client-2"
        assert not listener.peers


def test_a_certificate_of_another_ca_is_refused_on_either_side(
    certificates: Certificates, strangers: Certificates
) -> None:
    with Listener("127.0.0.1:0", CODEC, tls=certificates.server) as listener:
        with Connector(
            listener.address, "client-1", CODEC, tls=strangers.client("client-1")
        ) as connector:
            gave_up = await_event(connector, GaveUp)
        assert gave_up.final
        assert "not trusted" in gave_up.reason
        stranger = strangers.client("client-1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(certificates.folder / "ca.pem")
        context.load_cert_chain(stranger.certificate or "", stranger.key)
        await_event(listener, ConnectionRejected)
        assert "unknown ca" in tls_alert(listener, context)
        assert "not trusted" in await_event(listener, ConnectionRejected).reason


def tls_alert(listener: Listener, context: ssl.SSLContext) -> str:
    """What the server's TLS says to a client; under TLS 1.3 it is heard at the first read."""
    host, port = listener.address.split(":")
    with (
        socket.create_connection((host, int(port)), timeout=20) as raw,
        pytest.raises(ssl.SSLError) as caught,
        context.wrap_socket(raw, server_hostname=host) as wrapped,
    ):
        wrapped.recv(1)
    return str(caught.value)


def test_a_client_without_a_certificate_learns_that_one_is_wanted(
    certificates: Certificates,
) -> None:
    nothing = ClientTLS(None, None, certificates.folder / "ca.pem")
    with (
        Listener("127.0.0.1:0", CODEC, tls=certificates.server) as listener,
        Connector(listener.address, "client-1", CODEC, tls=nothing) as connector,
    ):
        gave_up = await_event(connector, GaveUp)
        assert gave_up.final
        assert "is missing" in gave_up.reason


def test_a_server_whose_name_is_not_in_its_certificate_is_not_believed(
    certificates: Certificates,
) -> None:
    name = "elsewhere"
    if not (certificates.folder / f"{name}.pem").exists():
        make_server_certificate(certificates.folder, ["10.1.2.3"], file_name=name)
    tls = type(certificates.server)(
        certificates.folder / f"{name}.pem",
        certificates.folder / f"{name}.key",
        certificates.folder / "ca.pem",
    )
    with (
        Listener("127.0.0.1:0", CODEC, tls=tls) as listener,
        Connector(
            listener.address, "client-1", CODEC, tls=certificates.client("client-1")
        ) as connector,
    ):
        gave_up = await_event(connector, GaveUp)
        assert gave_up.final
        assert "not for that name" in gave_up.reason


def test_both_ends_say_that_only_the_client_has_tls(certificates: Certificates) -> None:
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(
            listener.address, "client-1", CODEC, tls=certificates.client("client-1")
        ) as connector,
    ):
        assert await_event(connector, GaveUp).reason == (
            f"{listener.address} does not speak TLS: give both ends certificates, or neither"
        )
        assert await_event(listener, ConnectionRejected).reason == (
            "this is TLS, and this end has none: give both ends certificates, or neither"
        )


def test_both_ends_say_that_only_the_server_has_tls(certificates: Certificates) -> None:
    limits = Limits(handshake_s=0.3)
    with (
        Listener("127.0.0.1:0", CODEC, tls=certificates.server, limits=limits) as listener,
        Connector(listener.address, "client-1", CODEC, backoff=QUICK) as connector,
    ):
        assert await_event(listener, ConnectionRejected).reason == (
            "no step of the handshake within 0.3 s; this server has TLS, and the client began "
            "none: give both ends certificates, or neither"
        )
        assert await_event(connector, Retrying).reason.endswith(
            "; a server with TLS says nothing to a client without: "
            "give both ends certificates, or neither"
        )


def test_a_client_comes_back_when_its_server_does() -> None:
    with Listener("127.0.0.1:0", CODEC) as first:
        address = first.address
        connector = Connector(address, "client-1", CODEC, backoff=QUICK)
        connector.start()
        await_event(first, Joined)
        await_event(connector, Connected)
    assert await_event(connector, Disconnected).reason == "the server closes"
    await_event(connector, Retrying)
    with pytest.raises(NotConnected):
        connector.send(Note("to nobody"))
    with Listener(address, CODEC) as second:
        await_event(second, Joined)
        await_event(connector, Connected)
        connector.send(Note("again"))
        assert await_event(second, Received).message == Note("again")
        connector.close()


def test_a_client_gives_up_after_the_time_it_was_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    with Connector(address, "client-1", CODEC, backoff=QUICK, give_up_s=0.2) as connector:
        gave_up = await_event(connector, GaveUp)
        assert connector.next_event() is None
    assert not gave_up.final
    assert "refused" in gave_up.reason
    assert address in gave_up.reason


NO_HOSTS = pytest.mark.parametrize(
    "host", ["a..b", "x" * 70, "ü" * 70], ids=["dots", "long", "long umlauts"]
)


@NO_HOSTS
def test_a_client_gives_up_a_host_that_cannot_exist(host: str) -> None:
    address = f"{host}:9000"
    with Connector(address, "client-1", CODEC, insecure=True, backoff=QUICK) as connector:
        gave_up = await_event(connector, GaveUp)
        assert connector.next_event() is None
    assert gave_up.final
    assert gave_up.reason.startswith(f"{address}: unknown host")


@NO_HOSTS
def test_a_server_at_a_host_that_cannot_exist_is_refused(host: str) -> None:
    address = f"{host}:9000"
    with pytest.raises(AddressError, match="unknown host") as caught:
        Listener(address, CODEC, insecure=True).start()
    assert str(caught.value).startswith(address)


class OneDelay(Backoff):
    """It has no second delay, as no backoff should."""

    def delays_s(self) -> Iterator[float]:
        yield 0.01


def test_a_client_that_cannot_go_on_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    with Connector(address, "client-1", CODEC, backoff=OneDelay()) as connector:
        gave_up = await_event(connector, GaveUp)
        assert connector.next_event() is None
    assert gave_up.final
    assert gave_up.reason.startswith(f"{address}: ")
    assert "StopIteration" in gave_up.reason
    assert "StopIteration" in caplog.text  # with its traceback


def test_a_client_that_is_sent_away_for_good_does_not_come_back() -> None:
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(listener.address, "client-1", CODEC, backoff=QUICK) as connector,
    ):
        await_event(listener, Joined)
        listener.disconnect("client-1", "the experiment is over", final=True)
        assert await_event(listener, Left).reason == "the experiment is over"
        assert await_event(connector, GaveUp) == GaveUp("the experiment is over", True)


def test_a_client_that_is_sent_away_for_now_comes_back() -> None:
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(listener.address, "client-1", CODEC, backoff=QUICK) as connector,
    ):
        await_event(listener, Joined)
        listener.disconnect("client-1", "come back later")
        assert await_event(listener, Left).reason == "come back later"
        assert await_event(connector, Disconnected).reason == "come back later"
        await_event(listener, Joined)


def test_a_client_beyond_the_limit_is_told_so_and_the_others_stay() -> None:
    limits = Limits(max_connections=1)
    with (
        Listener("127.0.0.1:0", CODEC, limits=limits) as listener,
        Connector(listener.address, "client-1", CODEC, backoff=QUICK) as first,
    ):
        await_event(listener, Joined)
        with Connector(listener.address, "client-2", CODEC, backoff=QUICK) as second:
            reason = "the server has 1 clients, which is its limit"
            assert reason in await_event(second, Retrying).reason
            refused = await_event(listener, ConnectionRejected)
            assert refused.peer == "client-2"
            assert reason in refused.reason
        first.send(Note("still here"))
        assert await_event(listener, Received).message == Note("still here")


def test_an_end_that_has_said_goodbye_is_closed_without_waiting_for_it() -> None:
    with Listener("127.0.0.1:0", CODEC, limits=Limits(linger_s=3600)) as listener:
        raw = raw_session(listener)
        raw.sendall(frame(Kind.GOODBYE, 0, bytes(CONTROL.encode(Goodbye("enough", False)))))
        assert await_event(listener, Left).reason == "enough"
        while raw.recv(4096):  # what was sent before; then the end, though this end stays open
            pass
        raw.close()


LEAST_ABOVE_0 = 5e-324


@pytest.mark.parametrize(
    ("refused", "accepted"),
    [
        ({"first_s": 0.0}, {"first_s": LEAST_ABOVE_0}),
        ({"first_s": 10.1}, {"first_s": 10.0}),
        ({"longest_s": 0.19}, {"longest_s": 0.2}),
        ({"factor": 0.999}, {"factor": 1.0}),
        ({"jitter": -LEAST_ABOVE_0}, {"jitter": 0.0}),
        ({"jitter": 1.001}, {"jitter": 1.0}),
        ({"jitter": float("nan")}, {"seed": -1}),
    ],
)
def test_a_backoff_is_refused_beyond_its_limits_and_accepted_at_them(refused, accepted) -> None:
    assert Backoff() == Backoff(first_s=0.2, factor=2.0, longest_s=10.0, jitter=0.5, seed=0)
    with pytest.raises(NetworkError, match="backoff"):
        Backoff(**refused)
    Backoff(**accepted)


def test_every_limit_is_above_zero_and_has_its_documented_default() -> None:
    usual = {
        "max_message_bytes": 1024**3,
        "max_streams": 8,
        "max_queued_bytes": 256 * 1024**2,
        "max_queued_events": 64,
        "stall_s": 30.0,
        "max_kept_bytes": 256 * 1024**2,
        "keep_s": 60.0,
        "max_file_bytes": 64 * 1024**3,
        "max_connections": 10_000,
        "max_handshakes": 2048,
        "handshake_s": 15.0,
        "linger_s": 1.0,
    }
    assert asdict(Limits()) == {**usual, "max_incoming_bytes": None}
    for name, value in {**usual, "max_incoming_bytes": 1}.items():
        least = 1 if isinstance(value, int) else LEAST_ABOVE_0
        assert getattr(Limits(**{name: least}), name) == least
        for wrong in (0, -1, float("nan")):
            with pytest.raises(NetworkError, match=f"limit {name} must be more than 0"):
                Limits(**{name: wrong})


def test_a_name_without_proof_is_not_taken_from_who_has_it() -> None:
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(listener.address, "client-1", CODEC) as first,
    ):
        await_event(listener, Joined)
        with Connector(listener.address, "client-1", CODEC, backoff=QUICK) as second:
            assert "is connected already" in await_event(second, Retrying).reason
            refused = await_event(listener, ConnectionRejected)
            assert refused.peer == "client-1"
            first.send(Note("still me"))
            assert await_event(listener, Received).message == Note("still me")


def test_a_name_with_proof_takes_over_from_the_older_connection() -> None:
    with (
        Listener("127.0.0.1:0", CODEC, token=b"secret") as listener,
        Connector(listener.address, "client-1", CODEC, token=b"secret") as first,
    ):
        await_event(listener, Joined)
        with Connector(listener.address, "client-1", CODEC, token=b"secret") as second:
            assert "superseded" in await_event(listener, Left).reason
            await_event(listener, Joined)
            await_event(first, Connected)
            assert await_event(first, GaveUp).final
            await_event(second, Connected)
            listener.send("client-1", Note("hello"))
            assert await_event(second, Received).message == Note("hello")


def test_a_message_for_one_connection_does_not_go_to_the_next_one() -> None:
    with Listener("127.0.0.1:0", CODEC, token=b"secret") as listener:
        with Connector(listener.address, "client-1", CODEC, token=b"secret") as first:
            await_event(first, Connected)
            older = await_event(listener, Joined)
        with Connector(listener.address, "client-1", CODEC, token=b"secret") as second:
            await_event(second, Connected)
            newer = await_event(listener, Joined)
            with pytest.raises(NotConnected):
                listener.send("client-1", Note("late"), older.address)
            listener.send("client-1", Note("in time"), newer.address)
            assert await_event(second, Received).message == Note("in time")


def test_closing_sends_what_is_queued() -> None:
    weights = np.ones(3_000_000, np.float32)
    with Listener("127.0.0.1:0", CODEC) as listener:
        connector = Connector(listener.address, "client-1", CODEC)
        connector.start()
        await_event(listener, Joined)
        listener.send("client-1", Task(1, weights))
        listener.send("client-1", Note("last"))
        listener.close(drain_s=20)
    received = [await_event(connector, Received).message for _ in range(2)]
    assert {type(message) for message in received} == {Task, Note}
    assert await_event(connector, Disconnected).reason == "the server closes"
    connector.close()


def test_a_flood_stops_at_the_limit_and_goes_on_when_there_is_room() -> None:
    limits = Limits(max_queued_bytes=3_000_000)
    array = np.ones(250_000, np.float32)
    with (
        Listener("127.0.0.1:0", CODEC, limits=limits) as listener,
        Connector(listener.address, "client-1", CODEC) as connector,
    ):
        await_event(listener, Joined)
        await_event(connector, Connected)
        for number in range(40):
            connector.send(Task(number, array))
        # The sender cannot have sent everything while nobody takes anything.
        while isinstance(event := connector.next_event(0.5), Sent):
            pass
        assert event is None
        assert len(listener._events) <= 5
        rounds = [await_event(listener, Received).message.round for _ in range(40)]
        assert sorted(rounds) == list(range(40))


def test_what_cannot_be_sent_is_said_at_once() -> None:
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(
            listener.address, "client-1", CODEC, limits=Limits(max_message_bytes=2000)
        ) as connector,
    ):
        await_event(listener, Joined)
        await_event(connector, Connected)
        with pytest.raises(LimitExceeded, match="raise max_message_bytes"):
            listener.send("client-1", Task(1, np.zeros(1000)))
        with pytest.raises(NotConnected, match="'client-2' is not connected"):
            listener.send("client-2", Note("x"))


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("localhost", "write HOST:PORT"),
        ("::1:80", "write HOST:PORT"),
        ("127.0.0.1:70000", "from 0 to 65535"),
        ("127.0.0.1:http", "from 0 to 65535"),
        ("0.0.0.0:0", "no TLS"),
        ("192.0.2.1:80", "no TLS"),
        ("example.org:80", "no TLS"),
    ],
)
def test_a_wrong_address_is_refused_before_anything_is_opened(address: str, words: str) -> None:
    for make in (lambda: Listener(address, CODEC), lambda: Connector(address, "c", CODEC)):
        with pytest.raises(AddressError) as caught:
            make()
        assert words in str(caught.value)
        assert address in str(caught.value)


def test_a_port_in_use_is_named_with_what_to_do() -> None:
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        pytest.raises(AddressError, match="choose another port") as caught,
    ):
        Listener(listener.address, CODEC).start()
    assert listener.address in str(caught.value)


def test_plain_tcp_off_loopback_needs_to_be_asked_for() -> None:
    with Listener("0.0.0.0:0", CODEC, insecure=True) as listener:
        assert listener.address.startswith("0.0.0.0:")


def test_ipv6_works_like_ipv4() -> None:
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    try:
        listener = Listener("[::1]:0", CODEC)
        listener.start()
    except AddressError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")
    with Connector(listener.address, "client-1", CODEC) as connector:
        assert await_event(connector, Connected).peer == listener.address
    listener.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Listener("127.0.0.1:0", CODEC, token=b""),
        lambda: Listener("127.0.0.1:0", CODEC, heartbeat_s=0),
        lambda: Listener("127.0.0.1:0", CODEC, heartbeat_s=0.09),
        lambda: Listener("127.0.0.1:0", CODEC, heartbeat_s=3601),
        lambda: Listener("127.0.0.1:0", CODEC, heartbeat_s=float("nan")),
        lambda: Connector("127.0.0.1:1", "no good", CODEC),
        lambda: Limits(max_streams=0),
        lambda: Backoff(first_s=0),
    ],
)
def test_wrong_settings_are_refused(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises((NetworkError, AuthenticationFailed)):
        make()


def test_delays_grow_to_a_limit_and_are_the_same_for_the_same_seed() -> None:
    backoff = Backoff(first_s=1, factor=2, longest_s=8, jitter=0.5, seed=3)
    series = [delay for delay, _ in zip(backoff.delays_s(), range(9), strict=False)]
    again = [delay for delay, _ in zip(backoff.delays_s(), range(9), strict=False)]
    assert series == again
    for delay, longest in zip(series, [1, 2, 4, 8, 8, 8, 8, 8, 8], strict=True):
        assert longest / 2 <= delay <= longest


def test_an_endpoint_leaves_no_thread_behind(certificates: Certificates) -> None:
    before = threading.active_count()
    with (
        Listener("127.0.0.1:0", CODEC, tls=certificates.server) as listener,
        Connector(listener.address, "client-1", CODEC, tls=certificates.client("client-1")),
    ):
        await_event(listener, Joined)
        assert threading.active_count() == before + 2
    assert threading.active_count() == before
