"""Interrupted messages, without sockets: exactly-once delivery in bounded memory."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layers.network import Limits, inbox
from layers.network.events import Arrived, Ended
from layers.network.frames import CHUNK_BYTES, HEADER, PART, Kind, frame
from layers.network.handshake import ClientSession, ServerSession
from layers.network.inbox import (
    FEATURE,
    LEAST_BYTES,
    LEAST_FILLED_BYTES,
    PartialMessage,
    PartialMessages,
)
from layers.network.outbox import part_of
from layers.network.session import State
from tests.network.wire_messages import CODEC, Task, drained, exchange, only_end

HERE = hashlib.sha256(bytes(1 << 20)).digest()  # of a part of zeros
MANY = np.random.default_rng(0).integers(0, 256, 3 << 20, np.uint8)


def sessions(*, continues: bool = True) -> tuple[ClientSession, ServerSession]:
    features = frozenset({FEATURE} if continues else ())
    client = ClientSession("client-7", CODEC, 0.0, features=features)
    server = ServerSession(CODEC, 0.0, features=features)
    exchange(client, server)
    assert client.state is server.state is State.OPEN
    return client, server


def message(number: int, size: int) -> Task:
    """A message that differs from others of its size in its first and last bytes."""
    weights = MANY[:size].copy()
    weights[0] = weights[-1] = number
    return Task(number, weights)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(
        st.sampled_from([1, 300_000, LEAST_BYTES - 100, LEAST_BYTES, 2 << 20, (3 << 20) - 7]),
        min_size=1,
        max_size=4,
    ),
    cuts=st.lists(st.integers(0, 4 << 20), max_size=5),
    up=st.booleans(),
)
def test_every_message_arrives_exactly_once_despite_cuts(sizes, cuts, up) -> None:
    """The application sends missing messages again in the same order."""
    kept = PartialMessages(1 << 40, 60.0)
    waiting = {number: message(number, size) for number, size in enumerate(sizes)}
    total = sum(CODEC.encode(one).size for one in waiting.values())
    sent = 0
    for cut in (*cuts, None):
        client, server = sessions()
        sender, receiver = (client, server) if up else (server, client)
        receiver.expect(kept.offered("peer", 0.0))
        sender.receive_data(drained(receiver), 0.0)
        for one in waiting.values():
            sender.send_message(CODEC.encode(one))
        wire = drained(sender)[:cut]
        sent += len(wire)
        for event in receiver.receive_data(wire, 0.0):
            assert isinstance(event, Arrived)
            expected = waiting.pop(event.message.round)  # KeyError if it arrives twice
            assert np.array_equal(event.message.weights, expected.weights)
        assert [type(one) for one in receiver.lost("cut")] == [Ended]
        kept.keep("peer", receiver.unfinished, 0.0)
    assert waiting == {}
    small = sum(min(size, LEAST_BYTES) for size in sizes)
    headers = 1000 * (len(sizes) + 1) * (len(cuts) + 1)
    # Small messages, and the first bytes of large ones, may be sent again after every cut.
    assert sent <= total + len(cuts) * (small + LEAST_FILLED_BYTES * len(sizes)) + headers


def test_only_the_missing_bytes_are_sent() -> None:
    payload = CODEC.encode(message(3, 2 << 20))
    client, server = sessions()
    client.send_message(payload)
    server.receive_data(drained(client)[: 1 << 20], 0.0)
    server.lost("cut")
    (partial,) = server.unfinished
    client, server = sessions()
    server.expect([partial])
    client.receive_data(drained(server), 0.0)
    client.send_message(payload)
    rest = drained(client)
    left = payload.size - partial.filled
    assert len(rest) == left + 58 + 10 * -(-left // (1 << 18))
    (event,) = server.receive_data(rest, 0.0)
    assert np.array_equal(event.message.weights, message(3, 2 << 20).weights)


class Counting:
    """SHA-256 that counts its input."""

    taken = 0

    def __init__(self, data: bytes | memoryview = b"") -> None:
        self._real = hashlib.sha256()
        self.update(data)

    def update(self, data: bytes | memoryview) -> None:
        Counting.taken += len(data)
        self._real.update(data)

    def digest(self) -> bytes:
        return self._real.digest()

    def copy(self) -> Counting:
        made = Counting()
        made._real = self._real.copy()
        return made


@pytest.mark.parametrize("more", [0, 1, 200_000])
def test_a_receiver_hashes_each_byte_once_however_often_the_connection_is_cut(
    more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each cheap reconnect would cost a hash of everything received."""
    monkeypatch.setattr(inbox, "hashlib", SimpleNamespace(sha256=Counting))
    monkeypatch.setattr(Counting, "taken", 0)
    content = b"".join(map(bytes, CODEC.encode(message(3, 3 << 20)).buffers))
    partial = PartialMessage(memoryview(bytearray(content[: 1 << 20].ljust(len(content)))), 1 << 20)
    for cut in range(1, 6):
        _, server = sessions()
        server.expect([partial])
        chunk = frame(Kind.DATA, 1, content[partial.filled : partial.filled + CHUNK_BYTES])
        wire = frame(Kind.CONTINUE, 1, partial.words) + chunk[: HEADER.size + more]
        assert server.receive_data(wire, 0.0) == []
        server.lost("cut")
        (partial,) = server.unfinished
        assert partial.filled == (1 << 20) + cut * more
        assert partial.sha256 == hashlib.sha256(content[: partial.filled]).digest()
        assert Counting.taken == partial.filled


def test_without_the_feature_no_part_is_sent_or_accepted() -> None:
    partial = PartialMessage(memoryview(bytearray(2 << 20)), 1 << 20)
    client, server = sessions(continues=False)
    server.expect([partial])
    assert drained(server) == b""
    for kind, words in ((Kind.PARTIAL, bytes(48)), (Kind.CONTINUE, bytes(48))):
        client, server = sessions(continues=False)
        ended = only_end(server.receive_data(frame(kind, 1, words), 0.0))
        assert (ended.code, ended.blamed) == ("protocol-error", True)
    client.send_message(CODEC.encode(message(1, 2 << 20)))
    client, server = sessions(continues=False)
    client.send_message(CODEC.encode(message(1, 2 << 20)))
    server.receive_data(drained(client)[: 1 << 20], 0.0)
    server.lost("cut")
    assert server.unfinished == []


@pytest.mark.parametrize(
    ("kind", "stream", "words"),
    [
        (Kind.CONTINUE, 1, PART.pack(2 << 20, 1 << 20, HERE)),
        (Kind.CONTINUE, 1, PART.pack(3 << 20, (1 << 20) + 1, HERE)),
        (Kind.CONTINUE, 1, PART.pack(3 << 20, 1 << 20, bytes(32))),
        (Kind.CONTINUE, 0, PART.pack(3 << 20, 1 << 20, HERE)),
        (Kind.CONTINUE, 1, b""),
        (Kind.PARTIAL, 0, b""),
        (Kind.PARTIAL, 1, PART.pack(2, 1, bytes(32))),
        (Kind.PARTIAL, 0, PART.pack(1, 1, bytes(32))),
        (Kind.PARTIAL, 0, PART.pack(1, 0, bytes(32))),
    ],
)
def test_a_wrong_part_is_refused(kind, stream, words) -> None:
    _, server = sessions()
    server.expect([PartialMessage(memoryview(bytearray(3 << 20)), 1 << 20)])
    ended = only_end(server.receive_data(frame(kind, stream, words), 0.0))
    assert (ended.code, ended.blamed) == ("protocol-error", True)


def test_a_part_is_continued_once_and_not_after_another_large_message() -> None:
    words = PART.pack(3 << 20, 1 << 20, HERE)
    for first in (
        frame(Kind.CONTINUE, 1, words),
        frame(Kind.MESSAGE, 1, (2 << 20).to_bytes(8, "big")),
    ):
        _, server = sessions()
        server.expect([PartialMessage(memoryview(bytearray(3 << 20)), 1 << 20)])
        assert server.receive_data(first, 0.0) == []
        ended = only_end(server.receive_data(frame(Kind.CONTINUE, 2, words), 0.0))
        assert ended.code == "protocol-error"


def test_parts_are_ignored_after_a_large_message_has_started() -> None:
    """The receiver drops its parts when it sees that message, whichever frame came first."""
    payload = CODEC.encode(message(3, 2 << 20))
    client, server = sessions()
    crossing = PART.pack(payload.size, 1 << 20, hashlib.sha256(bytes(payload)[: 1 << 20]).digest())
    for _ in range(2):
        client.send_message(payload)
        wire = drained(client)
        client.receive_data(frame(Kind.PARTIAL, 0, crossing), 0.0)
        (event,) = server.receive_data(wire, 0.0)
        assert isinstance(event, Arrived)


@pytest.mark.parametrize("up", [True, False], ids=["client", "server"])
def test_a_peer_does_not_raise_this_ends_limit_on_parts(up: bool) -> None:
    features, much = frozenset({FEATURE}), Limits(max_streams=1 << 60)
    client = ClientSession("client-7", CODEC, 0.0, features=features, limits=much if up else None)
    server = ServerSession(CODEC, 0.0, features=features, limits=None if up else much)
    exchange(client, server)
    assert client.state is server.state is State.OPEN
    taker = server if up else client
    words = frame(Kind.PARTIAL, 0, PART.pack(2 << 20, 1 << 20, bytes(32)))
    assert taker.receive_data(words * Limits().max_streams, 0.0) == []
    ended = only_end(taker.receive_data(words, 0.0))
    assert (ended.code, ended.blamed) == ("limit-exceeded", True)


@pytest.mark.parametrize("up", [True, False], ids=["client", "server"])
def test_an_end_announces_no_more_parts_than_the_peer_accepts(up: bool) -> None:
    """The limit may have been higher before."""
    features, few = frozenset({FEATURE}), Limits(max_streams=2)
    client = ClientSession("client-7", CODEC, 0.0, features=features, limits=None if up else few)
    server = ServerSession(CODEC, 0.0, features=features, limits=few if up else None)
    exchange(client, server)
    sayer, taker = (client, server) if up else (server, client)
    partials = [PartialMessage(memoryview(bytearray(3 << 20)), 1 << 20) for _ in range(3)]
    sayer.expect(partials)
    assert len(partials) == 2
    assert taker.receive_data(drained(sayer), 0.0) == []
    assert taker.state is State.OPEN


@given(pieces=st.lists(st.binary(max_size=9), min_size=1, max_size=6), data=st.data())
def test_the_longest_matching_part_is_found(pieces, data) -> None:
    whole = b"".join(pieces)
    ends = data.draw(st.sets(st.integers(1, len(whole) + 3), max_size=4))
    wrong = data.draw(st.sets(st.sampled_from(sorted(ends)), max_size=4)) if ends else set()
    right = [(end, hashlib.sha256(whole[:end]).digest()) for end in ends - wrong]
    parts = {*right, *((end, bytes(32)) for end in ends)}
    found = part_of(map(memoryview, pieces), parts)
    assert found == max((one for one in right if one[0] <= len(whole)), default=None)


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["keep", "offered", "drop", "expire"]),
            st.sampled_from("abcd"),
            st.lists(st.integers(LEAST_FILLED_BYTES - 1, 3 * LEAST_BYTES), max_size=3),
        ),
        max_size=30,
    )
)
def test_kept_parts_stay_within_the_limit_and_include_the_newest(steps) -> None:
    most = 4 * LEAST_BYTES
    buffer = memoryview(bytearray(3 * LEAST_BYTES))
    kept, now, latest = PartialMessages(most, 10.0), 0.0, None
    for step, peer, filled in steps:
        now += 1
        if step == "keep":
            kept.keep(peer, [PartialMessage(buffer, one) for one in filled], now)
            latest = peer, [one for one in filled if one >= LEAST_FILLED_BYTES], now
        elif step == "offered":
            found = [one.filled for one in kept.offered(peer, now)]
            if latest is not None and latest[0] == peer and found:
                assert found == latest[1]
            if latest is not None and latest[0] == peer:
                latest = None
        elif step == "drop":
            kept.drop(peer)
        else:
            kept.expire(now)
        assert kept.kept_bytes <= most
    kept.expire(now + 10.0)
    for peer in "abcd":
        kept.drop(peer)
    assert kept.kept_bytes == 0


def test_a_part_that_has_waited_too_long_is_not_offered() -> None:
    kept = PartialMessages(4 * LEAST_BYTES, 10.0)
    part = PartialMessage(memoryview(bytearray(LEAST_BYTES)), LEAST_FILLED_BYTES)
    for peer in ("in time", "late"):
        kept.keep(peer, [part], 100.0)
    assert kept.offered("in time", 109.9) == [part]
    assert kept.offered("late", 110.0) == []
    kept.drop("in time")
    assert kept.kept_bytes == 0


@pytest.mark.parametrize(
    ("size", "filled", "kept"),
    [
        (LEAST_BYTES, LEAST_FILLED_BYTES, True),
        (LEAST_BYTES - 1, LEAST_BYTES - 1, False),
        (LEAST_BYTES, LEAST_FILLED_BYTES - 1, False),
    ],
)
def test_only_a_large_part_of_a_large_message_is_kept(size: int, filled: int, kept: bool) -> None:
    assert (LEAST_BYTES, LEAST_FILLED_BYTES) == (1024**2, 1024**2 // 4)
    partials = PartialMessages(4 * LEAST_BYTES, 10.0)
    partials.keep("a", [PartialMessage(memoryview(bytearray(size)), filled)], 0.0)
    assert partials.kept_bytes == kept * filled


def test_a_part_that_cannot_fit_evicts_no_other() -> None:
    buffer = memoryview(bytearray(4 * LEAST_BYTES))
    kept = PartialMessages(3 * LEAST_BYTES, 10.0)
    kept.keep("b", [PartialMessage(buffer, LEAST_BYTES)], 0.0)
    kept.keep("a", [PartialMessage(buffer, 3 * LEAST_BYTES + 1)], 0.0)
    assert kept.kept_bytes == LEAST_BYTES
    kept.keep("c", [PartialMessage(buffer, LEAST_BYTES)], 0.0)
    assert len(kept.offered("c", 1.0)) == 1  # offered parts are not evicted
    kept.keep("a", [PartialMessage(buffer, 2 * LEAST_BYTES + 1)], 1.0)
    assert [one.filled for one in kept.offered("b", 1.0)] == [LEAST_BYTES]
    kept.keep("a", [PartialMessage(buffer, LEAST_BYTES)], 1.0)
    assert [one.filled for one in kept.offered("a", 1.0)] == [LEAST_BYTES]
