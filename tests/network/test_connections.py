"""Connections on loopback, with and without TLS: join, refusal, replacement, traffic."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import ssl
import struct
import threading
from typing import Any

import numpy as np
import pytest

from layers.network import (
    AuthenticationFailed,
    Backoff,
    Connected,
    ConnectionRejected,
    Connector,
    Contested,
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
    wire_size,
)
from layers.network.connection import CATCH_UP_TURNS, MOST_BYTES, Connection, Hold, new_scratch
from layers.network.control import CONTROL, Goodbye, Hello
from layers.network.endpoint import LoopThread
from layers.network.frames import CHUNK_BYTES, SIZE, FrameReader, Kind, frame
from layers.network.handshake import ServerSession
from layers.network.listener import TAKEOVERS
from tests.network.conftest import Certificates
from tests.network.socket_bytes import count_sockets, socket_bytes
from tests.network.wire_messages import (
    CODEC,
    QUICK,
    Note,
    Task,
    Update,
    await_event,
    joined,
    raw_connection,
    raw_session,
    read_to_end,
    until,
)


def last_words(data: bytes) -> str:
    """The text of the final refusal or goodbye of a connection."""
    *_, last = FrameReader().feed(data)
    words = CONTROL.decode(last.payload)  # type: ignore[union-attr]
    return str(getattr(words, "text", None) or words.reason)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_messages_arrive_and_every_byte_is_counted(
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
    with joined("a") as (listener, one), Connector(listener.address, "b", CODEC) as other:
        await_event(listener, Joined)
        for peer in sorted(listener.peers):
            assert listener.send(peer, payload) == wire_size(payload.size)
        assert await_event(one, Received).message == await_event(other, Received).message


def test_garbage_is_refused_and_others_stay() -> None:
    with joined("good") as (listener, good):
        raw = raw_connection(listener)
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert "no frame" in last_words(read_to_end(raw))
        refused = await_event(listener, ConnectionRejected)
        assert "no frame" in refused.reason
        assert refused.address == "{}:{}".format(*raw.getsockname())
        raw.close()
        good.send(Note("still here"))
        assert await_event(listener, Received).message == Note("still here")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (frame(Kind.PING), "PING"),
        (frame(Kind.MESSAGE, 1, SIZE.pack(4)), "MESSAGE"),
        (b"\xff" * 10, "kind 255"),
    ],
    ids=["ping", "message", "garbage"],
)
def test_frames_in_one_segment_with_a_hello_are_refused(more: bytes, words: str) -> None:
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


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (frame(Kind.MESSAGE, 1, SIZE.pack(2**62)), "max_message_bytes"),
        (
            frame(Kind.MESSAGE, 1, SIZE.pack(8))
            + frame(Kind.DATA, 1, struct.pack("<I", 4) + b"\x03\x81\xc0\xc0"),
            "must be of type str, not nil",
        ),
    ],
    ids=["too long", "malformed"],
)
def test_a_message_that_is_too_long_or_malformed_ends_the_session(sent: bytes, words: str) -> None:
    with Listener("127.0.0.1:0", CODEC, limits=Limits(max_message_bytes=1000)) as listener:
        raw = raw_session(listener)
        raw.sendall(sent)
        assert words in last_words(read_to_end(raw))
        raw.close()
        refused, left = listener.next_event(20), listener.next_event(20)
        assert isinstance(refused, ConnectionRejected)
        assert isinstance(left, Left)
        assert refused.peer == left.peer == "raw"
        assert words in refused.reason


def test_a_stalled_handshake_is_dropped_and_blocks_nobody(certificates: Certificates) -> None:
    limits = Limits(handshake_s=0.3, max_handshakes=4)
    for tls, client_tls in ((None, None), (certificates.server, certificates.client("good"))):
        with Listener("127.0.0.1:0", CODEC, tls=tls, limits=limits) as listener:
            host, port = listener.address.split(":")
            slow = [socket.create_connection((host, int(port))) for _ in range(6)]
            with Connector(listener.address, "good", CODEC, tls=client_tls, backoff=QUICK):
                refused = 0
                joined = False
                while not (joined and refused >= 6):
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


def test_a_client_beyond_the_limit_is_told_and_others_stay() -> None:
    with joined(limits=Limits(max_connections=1)) as (listener, first):
        with Connector(listener.address, "client-2", CODEC, backoff=QUICK) as second:
            reason = "1 clients"
            assert reason in await_event(second, Retrying).reason
            refused = await_event(listener, ConnectionRejected)
            assert refused.peer == "client-2"
            assert reason in refused.reason
        first.send(Note("still here"))
        assert await_event(listener, Received).message == Note("still here")


def test_a_connection_is_closed_right_after_the_peers_goodbye() -> None:
    with Listener("127.0.0.1:0", CODEC, limits=Limits(linger_s=3600)) as listener:
        raw = raw_session(listener)
        raw.sendall(frame(Kind.GOODBYE, 0, bytes(CONTROL.encode(Goodbye("enough", False)))))
        assert await_event(listener, Left).reason == "enough"
        while raw.recv(4096):  # earlier bytes, then the end, although this end stays open
            pass
        raw.close()


def test_an_unproven_identity_cannot_be_taken_over() -> None:
    with (
        joined() as (listener, first),
        Connector(listener.address, "client-1", CODEC, backoff=QUICK) as second,
    ):
        assert "is connected already" in await_event(second, Retrying).reason
        assert await_event(listener, ConnectionRejected).peer == "client-1"
        first.send(Note("still me"))
        assert await_event(listener, Received).message == Note("still me")


def test_a_proven_identity_replaces_its_older_connection() -> None:
    with (
        joined(token=b"secret") as (listener, first),
        Connector(listener.address, "client-1", CODEC, token=b"secret") as second,
    ):
        assert "superseded" in await_event(listener, Left).reason
        await_event(listener, Joined)
        assert await_event(first, GaveUp).final
        await_event(second, Connected)
        listener.send("client-1", Note("hello"))
        assert await_event(second, Received).message == Note("hello")


def test_a_successor_has_a_name_of_its_own_until_it_takes_over() -> None:
    with joined(token=b"secret", successors=True) as (listener, first):
        with Connector(listener.address, "client-1", CODEC, token=b"secret") as refused:
            newcomer = await_event(listener, Joined)
            assert newcomer.successor_of == "client-1"
            await_event(refused, Connected)
            listener.disconnect(newcomer.peer, "unfit", final=True)
            assert await_event(refused, GaveUp).reason == "unfit"
        assert await_event(listener, Left).peer == newcomer.peer
        first.send(Note("still here"))
        assert await_event(listener, Received).peer == "client-1"
        with Connector(listener.address, "client-1", CODEC, token=b"secret") as second:
            successor = await_event(listener, Joined)
            await_event(second, Connected)
            second.send(Note("ready"))
            assert await_event(listener, Received).peer == successor.peer
            listener.take_over(successor.peer)
            left, now = await_event(listener, Left), await_event(listener, Joined)
            assert (left.peer, now.peer, now.successor_of) == ("client-1", "client-1", None)
            assert successor.address in left.reason
            assert await_event(first, GaveUp).final
            assert listener.peers == {"client-1"}
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
    with joined() as (listener, connector):
        listener.send("client-1", Task(1, weights))
        listener.send("client-1", Note("last"))
        listener.close(drain_s=20)
        received = [await_event(connector, Received).message for _ in range(2)]
        assert {type(message) for message in received} == {Task, Note}
        assert await_event(connector, Disconnected).reason == "the server closes"


def test_a_flood_stops_at_the_limit_and_goes_on_with_room(monkeypatch: pytest.MonkeyPatch) -> None:
    count_sockets(monkeypatch)
    limits = Limits(max_queued_bytes=3_000_000)
    array = np.ones(250_000, np.float32)
    with joined(limits=limits) as (listener, connector):
        for number in range(40):
            connector.send(Task(number, array))
        # The sender cannot send everything while nobody takes events.
        while isinstance(event := connector.next_event(0.5), Sent):
            pass
        assert event is None
        assert len(listener._events) <= 5
        assert socket_bytes(listener)[1] < limits.max_queued_bytes, "the others are not read"
        rounds = [await_event(listener, Received).message.round for _ in range(40)]
        assert sorted(rounds) == list(range(40))


def test_a_client_starts_once_and_sends_only_while_it_is_connected() -> None:
    connector = Connector("127.0.0.1:9", "client-1", CODEC)
    with pytest.raises(NotConnected, match=r"client-1 is not connected to 127\.0\.0\.1:9 now"):
        connector.send(Note("x"))
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(listener.address, "client-1", CODEC) as connector,
    ):
        with pytest.raises(NetworkError, match="has been started already"):
            connector.start()
        assert await_event(listener, Joined).peer == "client-1"
        assert await_event(connector, Connected).peer == listener.address


def test_a_message_as_large_as_the_peer_allows_is_sent() -> None:
    least = CODEC.encode(Note("")).size
    limits = Limits(max_message_bytes=least + 20)
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(listener.address, "client-1", CODEC, limits=limits) as connector,
    ):
        await_event(listener, Joined)
        with pytest.raises(
            LimitExceeded, match=f"{least + 21} .* {least + 20}: .*max_message_bytes"
        ):
            listener.send("client-1", Note("x" * 21))
        with pytest.raises(NotConnected, match="'client-2'"):
            listener.send("client-2", Note("x"))
        listener.send("client-1", Note("x" * 20))
        assert await_event(connector, Received).message == Note("x" * 20)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_message_that_just_fills_a_write_is_reported_as_sent(more: int) -> None:
    size = MOST_BYTES + more - wire_size(CHUNK_BYTES // 2) + CHUNK_BYTES // 2
    assert wire_size(size) == MOST_BYTES + more
    least = CODEC.encode(Note("x" * 100_000)).size - 100_000  # a long text has a longer header
    note = Note("x" * (size - least))
    assert CODEC.encode(note).size == size
    with joined(heartbeat_s=3600) as (listener, connector):
        sent_bytes = listener.send("client-1", note)
        assert await_event(listener, Sent, 20) == Sent("client-1", "Note", sent_bytes)
        assert await_event(connector, Received).message == note


def test_bytes_behind_a_broken_rule_are_counted_but_not_read() -> None:
    with Listener("127.0.0.1:0", CODEC, limits=Limits(linger_s=3600)) as listener:
        raw = raw_connection(listener)
        raw.sendall(b"\xff" * 300_000)
        raw.shutdown(socket.SHUT_WR)
        assert "no frame" in last_words(read_to_end(raw))
        raw.close()
        until(lambda: not listener._connections)
        assert listener.traffic().received_bytes == 300_000
        assert isinstance(listener.next_event(20), ConnectionRejected)
        assert listener.next_event(0.0) is None


@pytest.mark.parametrize("sends", [False, True], ids=["quiet", "keeps sending"])
def test_the_bytes_of_a_replaced_connection_are_awaited_for_a_limited_time(sends: bool) -> None:
    async def turns_until_caught_up() -> int:
        loop, session = asyncio.get_running_loop(), ServerSession(CODEC, 0.0)
        caught_up = loop.create_future()
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            if sends:
                session.receive_data(b"\x05", 0.0)
            if not caught_up.done() and turns < 10 * CATCH_UP_TURNS:
                loop.call_later(0, turn)

        nobody: Any = None
        connection = Connection(lambda transport: session, nobody, new_scratch(), 1.0)
        connection.session = session
        turn()
        connection.catch_up(lambda: caught_up.set_result(turns))
        return int(await asyncio.wait_for(caught_up, 60))

    turns = asyncio.run(turns_until_caught_up())
    assert (turns > CATCH_UP_TURNS // 2) is sends
    assert turns <= CATCH_UP_TURNS + 2


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


def test_an_endpoint_leaves_no_thread_behind(certificates: Certificates) -> None:
    before = threading.active_count()
    with joined(tls=certificates):
        assert threading.active_count() == before + 2
    assert threading.active_count() == before


def failing(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (ValueError("a fault of ours"), True),
        (ConnectionResetError("cable cut"), False),
        (ssl.SSLError("bad record"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_uncaught_error_is_reported_unless_a_connection_broke(
    caplog: pytest.LogCaptureFixture, error: BaseException, reported: bool
) -> None:
    thread = LoopThread("test")
    with caplog.at_level(logging.ERROR, logger="asyncio"):
        thread.soon(failing, error)
        thread.run(asyncio.sleep(0))
    thread.stop()
    assert bool(caplog.records) is reported


def test_calls_in_a_row_share_one_wake_up_of_the_loop_and_a_failing_one_stops_no_other() -> None:
    thread = LoopThread("test")
    begun, goes_on, done = threading.Event(), threading.Event(), threading.Event()
    wake_ups: list[object] = []
    wake = thread.loop.call_soon_threadsafe
    thread.loop.call_soon_threadsafe = lambda *call: wake_ups.append(call) or wake(*call)
    order: list[int] = []

    def block() -> None:
        begun.set()
        goes_on.wait()

    thread.soon(block)
    assert begun.wait(60)
    thread.soon(order.append, 1)
    thread.soon(failing, ConnectionResetError("cable cut"))
    thread.soon(order.append, 2)
    thread.soon(done.set)
    goes_on.set()
    assert done.wait(60)
    assert order == [1, 2]
    assert len(wake_ups) == 2  # for `block`, and for the four calls after it
    thread.stop()


def test_closing_waits_only_so_long_for_a_peer_that_does_not_read() -> None:
    with Listener("127.0.0.1:0", CODEC, heartbeat_s=3600) as listener:
        raw = raw_session(listener)
        listener.send("raw", Task(1, np.ones(1 << 24, np.float32)))
        closing = threading.Thread(target=listener.close, args=(0.05,), daemon=True)
        closing.start()
        closing.join(20)
        assert not closing.is_alive()
        assert await_event(listener, Left).peer == "raw"
        raw.close()


def test_only_the_silence_of_a_peer_that_was_read_ends_its_session() -> None:
    with Listener("127.0.0.1:0", CODEC, heartbeat_s=60) as listener:
        raw = raw_session(listener)
        (connection,) = listener._connections

        async def tick(*, late: bool = False, unread: bool = False) -> tuple[bool, float]:
            """Whether the session goes on after a long silence, and when the timer is due."""
            loop = asyncio.get_running_loop()
            if late:
                connection._timer = loop.call_at(loop.time() - 1000, connection._tick)
            if unread:
                connection._hold(Hold.MEMORY)
            connection.session._received_at -= 1000
            if unread:
                connection.release(Hold.MEMORY)
            timer = connection._timer
            connection._tick()
            timer.cancel()
            timer = connection._timer
            return not connection.session.ended, timer.when() - loop.time() if timer else math.inf

        for how in ({"late": True}, {"unread": True}):
            goes_on, due_s = listener._thread.run(tick(**how))
            assert goes_on
            assert due_s <= 60
        goes_on, _ = listener._thread.run(tick())
        assert not goes_on
        assert "no sign of life for 240 s" in await_event(listener, Left).reason
        raw.close()


def test_a_stopped_loop_ignores_calls_and_a_second_stop() -> None:
    before = threading.active_count()
    thread = LoopThread("test")
    assert threading.active_count() == before + 1
    waits = asyncio.run_coroutine_threadsafe(asyncio.sleep(3600), thread.loop)
    thread.stop()
    thread.stop()
    assert waits.cancelled()
    assert threading.active_count() == before
    thread.soon(failing, ValueError("never called"))


def test_processes_that_fight_for_an_identity_do_not_replace_each_other_for_ever() -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(Listener("127.0.0.1:0", CODEC, token=b"secret"))

        def fighter() -> Connector:
            connector = Connector(
                listener.address, "client-1", CODEC, token=b"secret", backoff=QUICK
            )
            return stack.enter_context(connector)

        for _ in range(TAKEOVERS + 1):
            last, joined = fighter(), await_event(listener, Joined)
        newcomer = fighter()
        contested = await_event(listener, Contested)
        assert contested.peer == "client-1"
        assert joined.address in contested.reason
        for _ in range(3):
            assert "client-1" in await_event(newcomer, Retrying).reason
            assert await_event(listener, ConnectionRejected).told
        listener.send("client-1", Note("still you"))
        assert await_event(last, Received).message == Note("still you")
        last.close()  # by itself, so the newcomer replaces nobody
        assert await_event(listener, Joined).peer == "client-1"
        await_event(newcomer, Connected)


def test_a_small_message_that_overtakes_a_large_one_has_the_higher_number() -> None:
    with joined() as (listener, connector):
        listener.send("client-1", Task(1, np.zeros(4_000_000, np.float32)))
        listener.send("client-1", Note("small"))
        first, second = (await_event(connector, Received) for _ in range(2))
        assert (type(first.message), type(second.message)) == (Note, Task)
        assert first.number > second.number > 0
        connector.send(Note("one"))
        connector.send(Note("two"))
        one, two = (await_event(listener, Received) for _ in range(2))
        assert two.number > one.number > 0
