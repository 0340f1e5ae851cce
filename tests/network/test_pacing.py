"""Queued messages are sent in order and in large pieces, a few in each turn of the loop."""

import asyncio
import functools
import threading
from asyncio.selector_events import _SelectorSocketTransport as Transport  # type: ignore[attr-defined]
from collections.abc import Callable, Collection

import numpy as np
import pytest

from layers.network import Connector, Joined, Listener, Received, Sent
from layers.network.connection import MOST_BYTES
from layers.network.frames import (
    CHUNK_BYTES,
    HEADER_BYTES,
    SIZE,
    ChunkStart,
    FrameReader,
    Kind,
    Meter,
    Piece,
)
from layers.network.outbox import Outbox, OutgoingFile
from layers.network.pacing import COUNTED_BYTES, TURN_BYTES, Pacer
from layers.network.payload import Payload
from tests.network.wire_messages import CODEC, Note, Task, await_event, joined

A_TURN = TURN_BYTES // COUNTED_BYTES
MIB = 1 << 20


def turns_of(
    sizes: list[int], forgotten: Collection[int] = (), failing: Collection[int] = ()
) -> list[tuple[int, int]]:
    """Return the turn of the loop in which each message begins, and its number, in this order."""

    async def queue() -> list[tuple[int, int]]:
        pacer, turn, begun = Pacer(), [0], list[tuple[int, int]]()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)

        def flush(number: int) -> None:
            if pacer.may_begin(sizes[number], flushes[number]):
                begun.append((turn[0], number))
                if number in failing:
                    raise OSError("this connection is broken")

        flushes = [functools.partial(flush, number) for number in range(len(sizes))]
        for one in flushes:
            one()
        for number in forgotten:
            pacer.forget(flushes[number])
        while len(begun) < len(sizes) - len(forgotten):
            turn[0] += 1
            await asyncio.sleep(0)
        return begun

    return asyncio.run(queue())


def test_the_messages_of_many_connections_begin_in_order_and_few_in_each_turn() -> None:
    begun = turns_of([5 * MIB] * (3 * A_TURN + 1))
    assert [number for _, number in begun] == list(range(3 * A_TURN + 1))
    turns = [turn for turn, _ in begun]
    assert [turns.count(turn) for turn in sorted(set(turns))] == [A_TURN, A_TURN, A_TURN, 1]


def test_small_messages_begin_in_the_same_turn() -> None:
    assert {turn for turn, _ in turns_of([1000] * 500)} == {0}


def test_a_small_message_does_not_overtake_those_that_wait() -> None:
    sizes = [MIB] * (A_TURN + 1) + [10]
    assert [number for _, number in turns_of(sizes)] == list(range(len(sizes)))


def test_a_connection_that_is_gone_is_not_called_and_nobody_waits_for_it() -> None:
    begun = turns_of([MIB] * (A_TURN + 3), {A_TURN})
    assert [number for _, number in begun] == [*range(A_TURN), A_TURN + 1, A_TURN + 2]


def test_a_connection_that_fails_holds_up_no_other() -> None:
    begun = turns_of([MIB] * (A_TURN + 4), failing={A_TURN, A_TURN + 2})
    assert [number for _, number in begun] == list(range(A_TURN + 4))


def test_a_message_that_may_not_begin_holds_up_no_control_frame() -> None:
    outbox = outbox_of(1 << 20)
    queue(outbox, 1000)
    outbox.may_begin = lambda size: False
    assert outbox.take(100_000) == []
    outbox.control(Kind.PING)
    assert sum(map(len, outbox.take(100_000))) > 0
    assert not outbox.idle
    outbox.may_begin = lambda size: size == 1000
    assert sum(map(len, outbox.take(100_000))) > 1000
    assert outbox.idle


def outbox_of(max_open_bytes: int) -> Outbox:
    outbox = Outbox(Meter())
    outbox.max_open_bytes, outbox.max_streams = max_open_bytes, 8
    return outbox


def queue(outbox: Outbox, size: int) -> int:
    return outbox.message(Payload((memoryview(bytes(size)),), size, "Note"))


def sent_frames(outbox: Outbox) -> list[tuple[Kind, int, int]]:
    """The kind, stream and length of each frame that is sent until nothing is left to send."""
    wire = b"".join(b"".join(pieces) for pieces in iter(lambda: outbox.take(CHUNK_BYTES), []))
    parts = [one for one in FrameReader().feed(wire) if not isinstance(one, Piece)]
    return [
        (one.kind, one.stream, one.length if isinstance(one, ChunkStart) else len(one.payload))
        for one in parts
    ]


def test_control_frames_go_before_all_chunks_and_are_no_longer_queued() -> None:
    outbox = outbox_of(1 << 20)
    stream = queue(outbox, 1000)
    outbox.control(Kind.PING)
    outbox.control(Kind.FILE_DONE, 7)
    assert outbox.control_bytes == 2 * HEADER_BYTES
    assert sent_frames(outbox) == [
        (Kind.PING, 0, 0),
        (Kind.FILE_DONE, 7, 0),
        (Kind.MESSAGE, stream, SIZE.size),
        (Kind.DATA, stream, 1000),
    ]
    assert outbox.control_bytes == 0


def test_messages_are_announced_only_within_the_receivers_limit_of_unfinished_bytes() -> None:
    outbox = outbox_of(5 * CHUNK_BYTES)
    sizes = [2 * CHUNK_BYTES, 3 * CHUNK_BYTES, 1, 5 * CHUNK_BYTES, 1]
    streams = [queue(outbox, size) for size in sizes]
    left: dict[int, int] = {}
    announced: list[int] = []
    for kind, stream, length in sent_frames(outbox):
        if kind is Kind.MESSAGE:
            announced.append(stream)
            left[stream] = sizes[streams.index(stream)]
        else:
            left[stream] -= length
        assert sum(sizes[streams.index(one)] for one in left if left[one]) <= 5 * CHUNK_BYTES
    assert announced == streams
    assert set(left.values()) == {0}


def test_a_file_that_starts_again_or_is_dropped_is_not_sent_on() -> None:
    outbox, size = outbox_of(1 << 20), CHUNK_BYTES + 9

    def file(stream: int, offset: int) -> OutgoingFile:
        return OutgoingFile(stream, size, offset, lambda offset, size: bytes(size))

    outbox.file(file(5, 100))
    outbox.file(file(6, 0))
    outbox.file(file(7, size))  # the receiver has all of it
    outbox.file(file(5, 0))
    stream = queue(outbox, 10)
    outbox.drop_file(6)
    assert sent_frames(outbox) == [
        (Kind.MESSAGE, stream, SIZE.size),
        (Kind.FILE_DATA, 5, CHUNK_BYTES),
        (Kind.DATA, stream, 10),
        (Kind.FILE_DATA, 5, 9),
    ]
    assert outbox.idle


def test_a_message_that_waits_is_dropped_with_all_others() -> None:
    outbox = outbox_of(1 << 20)
    outbox.may_begin = lambda size: False
    queue(outbox, 1000)
    outbox.drop()
    outbox.may_begin = None
    assert outbox.idle
    assert outbox.take(100_000) == []


def test_a_server_begins_few_messages_in_each_turn_of_its_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn, begun = [0], list[int]()
    run_once, may_begin = asyncio.BaseEventLoop._run_once, Pacer.may_begin  # type: ignore[attr-defined]

    def counted(loop: asyncio.BaseEventLoop) -> None:
        turn[0] += threading.current_thread().name == "fedmx-listener"
        run_once(loop)

    def noted(pacer: Pacer, size: int, flush: Callable[[], object]) -> bool:
        may = may_begin(pacer, size, flush)
        if may and size > MIB and threading.current_thread().name == "fedmx-listener":
            begun.append(turn[0])
        return may

    monkeypatch.setattr(asyncio.BaseEventLoop, "_run_once", counted)
    monkeypatch.setattr(Pacer, "may_begin", noted)
    monkeypatch.setattr("layers.network.pacing.TURN_BYTES", 2 * MIB)
    names = [f"client-{number}" for number in range(6)]
    with Listener("127.0.0.1:0", CODEC) as listener:
        clients = [Connector(listener.address, name, CODEC) for name in names]
        for client in clients:
            client.start()
            await_event(listener, Joined)
        for name in names:
            listener.send(name, Task(1, np.zeros(MIB // 4, np.float32)))
        for client in clients:
            assert await_event(client, Received).message.weights.size == MIB // 4
            client.send(Note("done"))
        assert {await_event(listener, Sent).peer for _ in names} == set(names)
        assert {await_event(listener, Received).peer for _ in names} == set(names)
        for client in clients:
            client.close()
    assert len(begun) == len(names)
    assert max(map(begun.count, begun)) <= 2


def test_no_small_piece_is_between_the_chunks_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, write = list[int](), Transport.write

    def noted(transport: asyncio.Transport, data: bytes) -> None:
        if threading.current_thread().name == "fedmx-listener":
            sizes.append(len(data))
        write(transport, data)

    monkeypatch.setattr(Transport, "write", noted)
    with joined(heartbeat_s=60) as (listener, client):
        sizes.clear()
        values = np.arange(MIB, dtype=np.float32)
        listener.send("client-1", Task(1, values))
        assert np.array_equal(await_event(client, Received).message.weights, values)
        assert await_event(listener, Sent).message == "Task"
        listener.send("client-1", Note("the last"))
        assert await_event(client, Received).message == Note("the last")
        assert await_event(listener, Sent).message == "Note"
    small = [size for size in sizes if size < MOST_BYTES]
    assert len(sizes) - len(small) == 4 * MIB // MOST_BYTES
    assert len(small) <= 3  # the ends of both messages, and the goodbye
