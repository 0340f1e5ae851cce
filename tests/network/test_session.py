"""The session without sockets: states, violations, messages, and the heartbeat."""

from __future__ import annotations

import time
import weakref
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layers.network import CHUNK_BYTES, Limits
from layers.network.control import CONTROL, Goodbye, Welcome, clean
from layers.network.events import Arrived, Ended
from layers.network.frames import HEADER, HEADER_BYTES, SIZE, FrameReader, Kind, frame
from layers.network.handshake import ClientSession, ServerSession
from layers.network.outbox import OutgoingFile
from layers.network.session import Session, State
from tests.network.wire_messages import CODEC, Note, Task, drained, exchange, only_end


def opened(
    *, client_limits: Limits | None = None, server_limits: Limits | None = None
) -> tuple[ClientSession, ServerSession]:
    client = ClientSession("client-7", CODEC, 0.0, limits=client_limits)
    server = ServerSession(CODEC, 0.0, limits=server_limits, heartbeat_s=5, heartbeat_timeout_s=20)
    exchange(client, server)
    assert client.state is server.state is State.OPEN
    return client, server


def in_state(state: State) -> Session:
    """A session in `state`."""
    client, server = ClientSession("client-7", CODEC, 0.0), ServerSession(CODEC, 0.0)
    match state:
        case State.AWAIT_GREETING:
            return client
        case State.AWAIT_WELCOME:
            client.receive_data(drained(server), 0.0)
            return client
        case State.AWAIT_HELLO:
            return server
        case State.DECIDING:
            exchange(client, server, admit=False)
            return server
        case State.OPEN:
            return opened()[0]
    client.leave("test", False)
    return client


# The allowed frames of each state, as in docs/protocol.md; CLOSING reads none.
MAY_COME = {
    State.AWAIT_GREETING: {"GREETING", "REFUSAL"},
    State.AWAIT_WELCOME: {"WELCOME", "REFUSAL"},
    State.AWAIT_HELLO: {"HELLO", "REFUSAL"},
    State.DECIDING: {"REFUSAL"},
    State.OPEN: {
        *("PING", "PONG", "MESSAGE", "DATA", "PARTIAL", "CONTINUE", "GOODBYE", "REFUSAL"),
        *("FILE_OFFER", "FILE_ACCEPT", "FILE_START", "FILE_DATA", "FILE_DONE"),
        *("FILE_REFUSED", "FILE_CANCELLED"),
    },
}


def test_the_table_of_states_and_frames_is_complete() -> None:
    assert set(State) == {*MAY_COME, State.CLOSING}
    assert {kind.name for kind in Kind} == {*MAY_COME[State.OPEN], "GREETING", "WELCOME", "HELLO"}


@pytest.mark.parametrize("state", MAY_COME)
def test_every_allowed_frame_is_accepted_in_its_state(state: State) -> None:
    for name in MAY_COME[state]:
        session = in_state(state)
        payload = b"x" if name in ("DATA", "FILE_DATA") else b""
        for event in session.receive_data(frame(Kind[name], 0, payload), 0.0):
            if isinstance(event, Ended):  # because of its content
                assert f"{name} frame while" not in event.reason


@pytest.mark.parametrize("state", MAY_COME)
def test_every_other_frame_ends_the_session(state: State) -> None:
    for kind in (kind for kind in Kind if kind.name not in MAY_COME[state]):
        session = in_state(state)
        assert session.state is state
        payload = b"x" if kind in (Kind.DATA, Kind.FILE_DATA) else b""
        ended = only_end(session.receive_data(frame(kind, 0, payload), 0.0))
        assert f"{kind.name} frame while" in ended.reason  # the test above relies on these words
        assert ended.code == "protocol-error"
        assert ended.blamed
        assert session.state is State.CLOSING


def test_a_closing_session_reads_nothing_more() -> None:
    session = in_state(State.CLOSING)
    for kind in Kind:
        assert session.receive_data(frame(kind, 0, b"x"), 0.0) == []
    assert session.receive_eof() == []
    assert session.deadline() is None


def test_a_refused_peer_learns_why() -> None:
    client, server = opened()
    ended = only_end(server.receive_data(b"\xffgarbage!!", 0.0))
    assert "kind 255" in ended.reason
    told = only_end(client.receive_data(drained(server), 0.0))
    assert (told.reason, told.code) == (ended.reason, "malformed-frame")
    assert not told.final


@settings(max_examples=40)
@given(st.data())
def test_any_split_of_the_bytes_gives_the_same_messages(data: st.DataObject) -> None:
    client, server = opened()
    notes = data.draw(st.lists(st.text(max_size=30), min_size=1, max_size=5))
    for note in notes:
        client.send_message(CODEC.encode(Note(note)))
    client.send_message(CODEC.encode(Task(1, np.arange(100_000, dtype=np.float32))))
    client.finish("done", False)
    wire = drained(client)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=10)))
    events = []
    for start, end in pairwise([0, *cuts, len(wire)]):
        part = wire[start:end]
        while part:
            # Like a connection: straight into the memory of a message, if there is one.
            room = server.receive_buffer() if data.draw(st.booleans()) else None
            if room is None:
                events += server.receive_data(part, 0.0)
                break
            size = min(len(room), len(part))
            room[:size] = part[:size]
            events += server.buffer_filled(size, 0.0)
            part = part[size:]
    *arrived, ended = events
    assert sorted(event.message.text for event in arrived if isinstance(event.message, Note)) == (
        sorted(notes)
    )
    (task,) = [event.message for event in arrived if isinstance(event.message, Task)]
    assert np.array_equal(task.weights, np.arange(100_000, dtype=np.float32))
    assert isinstance(ended, Ended)
    assert server.meter.read().received_bytes == client.meter.read().sent_bytes


@given(st.binary(max_size=400), st.sampled_from([State.AWAIT_HELLO, State.OPEN]))
def test_arbitrary_bytes_never_raise(data: bytes, state: State) -> None:
    session = in_state(state)
    events = session.receive_data(data, 0.0)
    assert session.ended == any(isinstance(event, Ended) for event in events)
    assert session.meter.read().received_bytes >= len(data)


@pytest.mark.parametrize("what", ["message", "file"])
def test_nothing_large_delays_a_heartbeat_or_a_small_message(what: str) -> None:
    client, server = opened()
    if what == "message":
        server.send_message(CODEC.encode(Task(1, np.zeros(2_000_000, np.float32))))
    else:
        server.start_file(OutgoingFile(1, 8_000_000, 0, lambda offset, size: bytes(size)), 0)
    first = b"".join(server.data_to_send(CHUNK_BYTES, 0.0))
    server.receive_data(frame(Kind.PING), 0.0)
    server.send_message(CODEC.encode(Note("small")))
    following = b"".join(server.data_to_send(3 * CHUNK_BYTES, 0.0))
    assert following.startswith(frame(Kind.PONG))
    events = client.receive_data(first + following, 0.0)
    assert [event.message for event in events if isinstance(event, Arrived)] == [Note("small")]


def test_only_unannounced_messages_can_be_withdrawn() -> None:
    client, server = opened()
    server.send_message(CODEC.encode(Task(1, np.zeros(2_000_000, np.float32))))
    first = b"".join(server.data_to_send(CHUNK_BYTES, 0.0))
    server.send_message(CODEC.encode(Task(2, np.zeros(1))))
    server.send_message(CODEC.encode(Note("stays")))
    assert [one.payload.name for one in server.withdraw("Task")] == ["Task"]
    assert server.withdraw("Task") == []
    server.send_message(CODEC.encode(Task(3, np.zeros(1))))
    events = client.receive_data(first + drained(server), 0.0)
    messages = [event.message for event in events if isinstance(event, Arrived)]
    assert [getattr(one, "round", "stays") for one in messages] == ["stays", 3, 1]


def test_two_large_messages_alternate_chunk_by_chunk() -> None:
    client, _ = opened()
    streams = [
        client.send_message(CODEC.encode(Task(1, np.zeros(200_000, np.float32)))) for _ in range(2)
    ]
    turns = []
    for part in FrameReader().feed(drained(client)):
        if getattr(part, "kind", None) is Kind.DATA and hasattr(part, "length"):
            turns.append(part.stream)
    assert turns == streams * 4


def test_a_sender_respects_the_receivers_limits() -> None:
    client, server = opened(server_limits=Limits(max_message_bytes=3000, max_streams=2))
    for number in range(9):
        client.send_message(CODEC.encode(Note(f"{number}" * (1400 if number % 2 else 10))))
    _, events = exchange(client, server)
    assert [event.message.text[0] for event in events] == list("012345678")


def announced(size: int, stream: int = 1) -> bytes:
    return frame(Kind.MESSAGE, stream, SIZE.pack(size))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (announced(1001), "max_message_bytes"),
        (announced(2**63), "max_message_bytes"),
        (announced(0), "no bytes"),
        (frame(Kind.MESSAGE, 1, b"short"), "announced wrongly"),
        (announced(50) + announced(50, 2) + announced(50, 3), "more than 2 messages"),
        (frame(Kind.DATA, 9, b"x"), "9"),
        (announced(50) + frame(Kind.DATA, 1, b"x"), ""),
        (announced(5) + frame(Kind.DATA, 1, b"123456"), ""),
        (announced(5) + frame(Kind.DATA, 1, b"12345"), ""),
        (2 * announced(50), ""),
        (frame(Kind.PING, 0, b"x"), "PING"),
        (frame(Kind.GOODBYE, 0, b""), ""),
        (
            frame(Kind.GOODBYE, 0, bytes(CONTROL.encode(Welcome([], 1.0, 2.0, 1, 1, b"")))),
            "Welcome",
        ),
    ],
)
def test_a_peer_that_breaks_a_rule_is_told_and_blamed(wrong: bytes, words: str) -> None:
    client, server = opened(server_limits=Limits(max_message_bytes=1000, max_streams=2))
    ended = only_end(server.receive_data(wrong, 0.0))
    assert words in ended.reason
    assert ended.blamed
    assert only_end(client.receive_data(drained(server), 0.0)).reason == ended.reason


def test_goodbye_follows_everything_queued() -> None:
    client, server = opened()
    client.send_message(CODEC.encode(Task(1, np.zeros(300_000, np.float32))))
    client.finish("done for today", True)
    _, events = exchange(client, server)
    assert [type(event) for event in events] == [Arrived, Ended]
    assert only_end(events) == Ended("done for today", "goodbye", final=True)


def test_leaving_drops_the_queue() -> None:
    client, server = opened()
    client.send_message(CODEC.encode(Note("never")))
    client.leave("no time", False)
    _, events = exchange(client, server)
    assert events == [Ended("no time", "goodbye", final=False)]


def test_an_ended_session_keeps_no_memory_of_unfinished_messages() -> None:
    _, server = opened()
    size = 2 * CHUNK_BYTES
    start = frame(Kind.MESSAGE, 1, SIZE.pack(size)) + HEADER.pack(Kind.DATA, 0, 1, CHUNK_BYTES)
    server.receive_data(start, 0.0)
    room = server.receive_buffer()
    assert room is not None
    kept = weakref.ref(room.obj)
    del room
    assert kept() is not None
    server.leave("enough", False)
    assert kept() is None


def test_a_peers_text_is_reduced_to_one_printable_line() -> None:
    client, server = opened()
    server.receive_data(
        frame(Kind.GOODBYE, 0, bytes(CONTROL.encode(Goodbye("a\nb\x1b[2Jc", False)))), 0.0
    )
    client.leave("x\ny", False)
    assert server.ended
    assert clean("a\nb\x1b[2Jc") == "a b [2Jc"
    assert clean("x" * 499 + "\n" + "y" * 100) == "x" * 499 + " "
    assert "\n" not in only_end(opened()[1].receive_data(drained(client), 0.0)).reason


def test_a_silent_connection_is_kept_alive_by_pings() -> None:
    client, server = opened()
    now = 0.0
    for _ in range(50):
        now = min(due for due in (client.deadline(), server.deadline()) if due is not None)
        assert client.tick(now) == server.tick(now) == []
        exchange(client, server, now=now)
    assert now >= 100
    assert client.state is server.state is State.OPEN


def test_a_dead_peer_is_detected() -> None:
    _, server = opened()
    assert server.deadline() == 5.0
    assert server.tick(5.0) == []
    assert server.deadline() == 20.0
    assert server.tick(19.9) == []
    ended = only_end(server.tick(20.0))
    assert "20 s" in ended.reason
    assert not ended.final


def test_a_missing_handshake_times_out() -> None:
    server = ServerSession(CODEC, 100.0, limits=Limits(handshake_s=3))
    assert server.deadline() == 103.0
    server.receive_data(frame(Kind.HELLO, 0, b"x" * 90)[:50], 102.9)
    ended = only_end(server.tick(103.0))
    assert "3 s" in ended.reason
    assert ended.blamed


@pytest.mark.parametrize("received", [b"", HEADER.pack(Kind.DATA, 0, 1, 9)[: HEADER_BYTES - 1]])
def test_a_connection_that_breaks_without_goodbye_is_lost(received: bytes) -> None:
    client, _ = opened()
    client.receive_data(received, 0.0)
    ended = only_end(client.receive_eof())
    assert ended.code == "lost"
    assert ("in the middle of a frame" in ended.reason) == bool(received)
    assert State.OPEN.value not in ended.reason
    server = in_state(State.AWAIT_HELLO)
    server.receive_data(received, 0.0)
    assert only_end(server.receive_eof()).reason.endswith(State.AWAIT_HELLO.value)


def test_a_session_needs_no_clock_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", None)
    monkeypatch.setattr(time, "time", None)
    client, server = opened()
    client.send_message(CODEC.encode(Note("x")))
    assert len(exchange(client, server)[1]) == 1
