"""The handshake without sockets: terms, proofs, and violations."""

from __future__ import annotations

import hmac
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.network import Limits
from layers.network.control import CONTROL, Greeting, Hello, Welcome
from layers.network.errors import AuthenticationFailed, ProtocolError
from layers.network.events import Ended, Opened, Terms, Verified
from layers.network.frames import FrameReader, Kind, frame
from layers.network.handshake import ClientSession, ServerSession
from layers.network.session import State
from tests.network.wire_messages import CODEC, drained, exchange, only_end


def test_a_client_and_a_server_agree_on_terms() -> None:
    ours, theirs = Limits(max_message_bytes=10, max_streams=3), Limits(20, 5)
    client = ClientSession(
        "client-7", CODEC, 0.0, limits=ours, features=frozenset("ab"), token=b"key"
    )
    server = ServerSession(CODEC, 0.0, limits=theirs, features=frozenset("bc"), token=b"key")
    seen_by_client, seen_by_server = exchange(client, server)
    agreed = Terms(1, "client-7", frozenset("b"), True, 20, 3)
    seen = replace(agreed, peer_max_message_bytes=10, named=frozenset("ab"))
    assert seen_by_client == [Opened(agreed)]
    assert seen_by_server == [Verified(seen), Opened(seen)]
    assert (client.terms, server.terms) == (agreed, seen)


@pytest.mark.parametrize(
    ("of_client", "of_server", "on_client", "on_server"),
    [
        ({}, {}, False, False),
        ({"certified": True}, {}, True, False),
        ({}, {"certified": "client-7"}, False, True),
        ({"token": b"secret"}, {"token": b"secret"}, True, True),
    ],
    ids=["neither", "the server's certificate", "the client's certificate", "token"],
)
def test_an_end_is_authenticated_by_its_certificate_or_the_token(
    of_client: dict[str, Any], of_server: dict[str, Any], on_client: bool, on_server: bool
) -> None:
    client = ClientSession("client-7", CODEC, 0.0, **of_client)
    server = ServerSession(CODEC, 0.0, **of_server)
    exchange(client, server)
    assert (client.terms.authenticated, server.terms.authenticated) == (on_client, on_server)


def wire_of_a_handshake(token: bytes) -> bytes:
    """The bytes of both ends, up to the server's welcome."""
    client = ClientSession("client-7", CODEC, 0.0, token=token)
    server = ServerSession(CODEC, 0.0, token=token)
    greeting = drained(server)
    client.receive_data(greeting, 0.0)
    hello = drained(client)
    server.receive_data(hello, 0.0)
    server.admit()
    return greeting + hello + drained(server)


HELLO = Hello(1, "client-7", [], bytes(32), 1 << 20, 4, b"")
WELCOME = Welcome([], 5.0, 20.0, 1 << 20, 4, b"")
KINDS = {Greeting: Kind.GREETING, Hello: Kind.HELLO, Welcome: Kind.WELCOME}


def told(session: Any, words: Any) -> list[Any]:
    """The events of a session that gets these words."""
    return session.receive_data(frame(KINDS[type(words)], 0, bytes(CONTROL.encode(words))), 0.0)


def greeted(**how: Any) -> ClientSession:
    """A client that waits for its server's welcome."""
    client = ClientSession("client-7", CODEC, 0.0, **how)
    client.receive_data(drained(ServerSession(CODEC, 0.0, token=how.get("token"))), 0.0)
    return client


def test_a_proof_is_an_hmac_of_the_words_so_far_with_their_lengths() -> None:
    frames = FrameReader().feed(wire_of_a_handshake(b"secret"))
    greeting, hello, welcome = (CONTROL.decode(one.payload) for one in frames)  # type: ignore[union-attr]

    def proof(role: bytes, *words: object) -> bytes:
        said = [bytes(CONTROL.encode(one)) for one in words]
        text = b"".join(struct.pack(">Q", len(one)) + one for one in said)
        return hmac.digest(b"secret", role + text, "sha256")

    assert hello.proof == proof(b"client", greeting, replace(hello, proof=b""))
    assert welcome.proof == proof(b"server", greeting, hello, replace(welcome, proof=b""))


@pytest.mark.parametrize(
    ("words", "reason", "code"),
    [
        *((replace(HELLO, nonce=bytes(n)), "nonce", "authentication-failed") for n in (0, 31, 33)),
        (replace(WELCOME, features=["a", "c"]), "not requested", "authentication-failed"),
        (Greeting(3, 5, bytes(32), False), "3 to 5", "version-mismatch"),
        (replace(HELLO, version=9), "version 9", "version-mismatch"),
        *(
            (replace(words, **{limit: number}), "at least 1", "limit-exceeded")
            for words in (HELLO, WELCOME)
            for limit in ("max_message_bytes", "max_streams")
            for number in (0, -1)
        ),
    ],
)
def test_words_that_an_end_cannot_agree_to_are_refused(words: Any, reason: str, code: str) -> None:
    ends = {
        Greeting: lambda: ClientSession("client-7", CODEC, 0.0),
        Hello: lambda: ServerSession(CODEC, 0.0),
        Welcome: lambda: greeted(features=frozenset("ab")),
    }
    ended = only_end(told(ends[type(words)](), words))
    assert reason in ended.reason
    assert (ended.code, ended.final, ended.blamed) == (code, code != "limit-exceeded", True)


def test_only_a_verified_client_is_admitted_and_only_once() -> None:
    client, server = ClientSession("client-7", CODEC, 0.0), ServerSession(CODEC, 0.0)
    with pytest.raises(ProtocolError, match="nobody to admit"):
        server.admit()
    exchange(client, server)
    with pytest.raises(ProtocolError, match="nobody to admit"):
        server.admit()
    assert drained(server) == b""


def test_the_token_is_never_on_the_wire() -> None:
    wire = wire_of_a_handshake(b"a very secret token")
    assert len(wire) > 200
    assert b"a very secret token" not in wire


@pytest.mark.parametrize(
    ("client_token", "server_token", "words"),
    [
        (b"wrong", b"right", "does not have this server's token"),
        (None, b"right", "has none"),
        (b"right", None, "asks for none"),
    ],
)
def test_a_token_mismatch_is_final_on_both_ends(
    client_token: bytes | None, server_token: bytes | None, words: str
) -> None:
    client = ClientSession("client-7", CODEC, 0.0, token=client_token)
    for ended in map(only_end, exchange(client, ServerSession(CODEC, 0.0, token=server_token))):
        assert words in ended.reason
        assert ended.code == "authentication-failed"
        assert ended.final


def test_a_server_cannot_reflect_the_clients_proof() -> None:
    client = greeted(token=b"secret")
    (hello,) = FrameReader().feed(drained(client))
    proof = CONTROL.decode(hello.payload).proof  # type: ignore[union-attr]
    assert "token" in only_end(told(client, replace(WELCOME, proof=proof))).reason


NAN, INF = float("nan"), float("inf")
NO_HEARTBEATS = [(0.0, 20.0), (-1.0, 20.0), (1e-9, 4e-9), (0.099, 0.4), (3600.1, 4 * 3600.1)]
NO_HEARTBEATS += [(5.0, 5.0), (5.0, 4.9), (5.0, 0.0), (5.0, 500.1), (5.0, INF), (NAN, 20.0)]
NO_HEARTBEATS += [(5.0, NAN)]
HEARTBEATS = [(0.1, 0.11), (5.0, 5.1), (5.0, 500.0), (3600.0, 4 * 3600.0)]


@pytest.mark.parametrize(("heartbeat_s", "timeout_s"), NO_HEARTBEATS + HEARTBEATS)
def test_a_client_accepts_a_heartbeat_only_within_its_limits(
    heartbeat_s: float, timeout_s: float
) -> None:
    client = greeted()
    welcome = replace(WELCOME, heartbeat_s=heartbeat_s, heartbeat_timeout_s=timeout_s)
    events = told(client, welcome)
    if (heartbeat_s, timeout_s) in HEARTBEATS:
        assert [type(event) for event in events] == [Opened]
    else:
        assert "heartbeat" in only_end(events).reason
        assert only_end(events).final
        assert client.deadline() is None  # no timer will run


def test_an_end_that_accepts_one_message_of_one_byte_is_not_refused() -> None:
    tiny = Limits(max_message_bytes=1, max_streams=1)
    client = ClientSession("client-7", CODEC, 0.0, limits=tiny)
    server = ServerSession(CODEC, 0.0, limits=tiny)
    exchange(client, server)
    for session in (client, server):
        assert (session.terms.peer_max_message_bytes, session.terms.peer_max_streams) == (1, 1)


def test_a_recorded_hello_does_not_open_another_session() -> None:
    first = ServerSession(CODEC, 0.0, token=b"secret")
    client = ClientSession("client-7", CODEC, 0.0, token=b"secret")
    client.receive_data(drained(first), 0.0)
    recorded = drained(client)
    ended = only_end(ServerSession(CODEC, 0.0, token=b"secret").receive_data(recorded, 0.0))
    assert ended.code == "authentication-failed"
    assert ended.blamed


def test_a_certificate_of_another_identity_is_refused() -> None:
    client = ClientSession("client-7", CODEC, 0.0)
    for ended in map(only_end, exchange(client, ServerSession(CODEC, 0.0, certified="client-8"))):
        assert all(name in ended.reason for name in ("'client-7'", "'client-8'"))
        assert ended.final


@pytest.mark.parametrize("identity", ["", ".hidden", "a/b", "a b", "x" * 65, "-v", "é", "a\n"])
def test_an_invalid_identity_is_refused_on_both_sides(identity: str) -> None:
    with pytest.raises(AuthenticationFailed, match="identity"):
        ClientSession(identity, CODEC, 0.0)
    server = ServerSession(CODEC, 0.0)
    ended = only_end(told(server, replace(HELLO, identity=identity)))
    assert "identity" in ended.reason
    assert ended.final
    assert server.claimed == identity[:64]


@given(st.binary(min_size=1, max_size=40) | st.sampled_from([frame(Kind.PING), frame(Kind.DATA)]))
def test_a_client_that_does_not_wait_for_its_welcome_is_refused(more: bytes) -> None:
    client, server = ClientSession("client-7", CODEC, 0.0), ServerSession(CODEC, 0.0)
    client.receive_data(drained(server), 0.0)
    events = server.receive_data(drained(client) + more, 0.0)
    # An incomplete frame may still become valid.
    assert any(isinstance(event, Verified) for event in events) is (server.state is State.DECIDING)
    if server.state is not State.DECIDING:
        assert only_end(events).blamed


def test_a_client_that_gives_up_before_the_decision_is_not_blamed() -> None:
    client, server = ClientSession("client-7", CODEC, 0.0), ServerSession(CODEC, 0.0)
    client.receive_data(drained(server), 0.0)
    hello = drained(client)
    client.tick(1e9)  # it times out
    (ended,) = server.receive_data(hello + drained(client), 0.0)
    assert isinstance(ended, Ended)
    assert "no complete handshake" in ended.reason
    assert not ended.blamed
