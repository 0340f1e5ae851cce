"""Limits: each has its documented default, and applies by message type, too."""

import math
from dataclasses import asdict

import numpy as np
import pytest

from layers.network import (
    CHUNK_BYTES,
    LimitExceeded,
    Limits,
    MalformedMessage,
    MessageCodec,
    NetworkError,
)
from layers.network.events import Arrived
from layers.network.frames import HEADER, SIZE, Kind, frame
from layers.network.handshake import ClientSession, ServerSession
from tests.network.wire_messages import CODEC, Note, Task, exchange, only_end


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
        "max_tls_handshakes": 512,
        "handshake_s": 15.0,
        "linger_s": 1.0,
    }
    assert asdict(Limits()) == {**usual, "max_incoming_bytes": None}
    for name, value in {**usual, "max_incoming_bytes": 1}.items():
        least = 1 if isinstance(value, int) else math.ulp(0.0)
        assert getattr(Limits(**{name: least}), name) == least
        for wrong in (0, -1, float("nan")):
            with pytest.raises(NetworkError, match=name):
                Limits(**{name: wrong})


LIMITED = MessageCodec({1: Task, 3: Note}, max_bytes={Note: 1000})


@pytest.mark.parametrize("direct", [False, True], ids=["copied", "read in place"])
@pytest.mark.parametrize("pieces", [1, 5, CHUNK_BYTES])
def test_a_message_too_large_for_its_type_is_refused_at_once(direct: bool, pieces: int) -> None:
    client = ClientSession("client-7", LIMITED, 0.0)
    exchange(client, ServerSession(LIMITED, 0.0))
    payload = bytes(CODEC.encode(Note("x" * CHUNK_BYTES * 2)))
    events = client.receive_data(
        frame(Kind.MESSAGE, 1, SIZE.pack(200_000_000)) + HEADER.pack(Kind.DATA, 0, 1, CHUNK_BYTES),
        0.0,
    )
    given = 0
    while not events and given < CHUNK_BYTES:
        part = payload[given : given + pieces]
        given += len(part)
        room = client.receive_buffer() if direct else None
        if room is None:
            events = client.receive_data(part, 0.0)
        else:
            room[: len(part)] = part
            events = client.buffer_filled(len(part), 0.0)
    assert only_end(events).code == "limit-exceeded"
    assert "a Note of 200000000 bytes" in only_end(events).reason
    assert given <= max(pieces, 10)


def test_a_message_with_more_values_than_its_type_may_have_is_refused_on_both_ends() -> None:
    # The number and the message; round, weights, inner and its 2 fields, slots: keys and values.
    least = 2 + 2 * 4 + 2 * 2
    for more in range(3):
        task = Task(1, np.zeros(1), slots={f"{n}": {} for n in range(more)})
        values = least + 2 * more
        codec = MessageCodec({1: Task}, max_values={Task: least + 2})
        plain = MessageCodec({1: Task}).encode(task)
        if more < 2:
            assert bytes(codec.encode(task)) == bytes(plain)
            assert codec.decode_counted(bytes(plain))[1] == values
        else:
            with pytest.raises(LimitExceeded, match=f"a Task of {values} values.*{least + 2}"):
                codec.encode(task)
            with pytest.raises(MalformedMessage, match=f"more than {least + 2} values"):
                codec.decode(bytes(plain))


def test_a_message_that_no_memory_is_left_for_is_refused() -> None:
    client, server = (
        ClientSession("client-7", CODEC, 0.0),
        ServerSession(CODEC, 0.0, limits=Limits(max_message_bytes=1 << 62)),
    )
    exchange(client, server)
    assert server.receive_data(frame(Kind.MESSAGE, 1, SIZE.pack(1 << 62)), 0.0) == []
    events = server.receive_data(HEADER.pack(Kind.DATA, 0, 1, CHUNK_BYTES), 0.0)
    assert only_end(events).code == "limit-exceeded"
    assert f"{1 << 62} bytes" in only_end(events).reason


def test_a_message_beyond_its_types_limit_is_not_encoded() -> None:
    client, server = ClientSession("client-7", LIMITED, 0.0), ServerSession(LIMITED, 0.0)
    exchange(client, server)
    room = 1000 - len(bytes(LIMITED.encode(Note("x" * 900)))) + 900
    client.send_message(LIMITED.encode(Note("x" * room)))
    client.send_message(LIMITED.encode(Task(1, np.zeros(1000))))  # of a type without a limit
    (one, other) = exchange(client, server)[1]
    assert isinstance(one, Arrived)
    assert isinstance(other, Arrived)
    assert {type(one.message), type(other.message)} == {Note, Task}
    with pytest.raises(LimitExceeded, match="a Note of 1001 bytes"):
        LIMITED.encode(Note("x" * (room + 1)))
