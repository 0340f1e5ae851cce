"""A flood on one connection does not affect the others."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from layers.network import FileFailed, Left, Limits, Listener, Received
from layers.network.connection import LINGER_BYTES, SLICE_BYTES, UNREAD_BYTES, Connection, Hold
from layers.network.control import CONTROL, FileAccept, FileOffer
from layers.network.event_queue import PEER_SHARE, VALUE_BYTES
from layers.network.files import Outgoing
from layers.network.frames import HEADER_BYTES, SIZE, Kind, frame
from tests.network.wire_messages import CODEC, Note, Task, await_event, joined, raw_session, until

DEADLINE_S = 60.0  # only to fail


def notes(number: int, first: int = 1) -> bytes:
    """The frames of many small messages."""
    data = bytes(CODEC.encode(Note("x")))
    return b"".join(
        frame(Kind.MESSAGE, stream, SIZE.pack(len(data))) + frame(Kind.DATA, stream, data)
        for stream in range(first, first + number)
    )


def connection(listener: Listener, peer: str) -> Connection:
    return listener._peers[peer]


def sending(raw: socket.socket, data: bytes) -> threading.Thread:
    thread = threading.Thread(target=raw.sendall, args=(data,))
    thread.start()
    return thread


def test_a_peer_with_untaken_messages_is_paused_and_loses_none() -> None:
    limits = Limits(max_queued_events=8)
    with joined("quiet", limits=limits) as (listener, quiet):
        raw = raw_session(listener)
        thread = sending(raw, notes(5000))
        until(lambda: Hold.CALLER in connection(listener, "raw")._holds)
        a_slice = SLICE_BYTES // (2 * HEADER_BYTES)
        assert len(listener._events) <= 8 + a_slice
        # Another client's message comes next, however many events of the first are queued.
        until(lambda: "quiet" in listener.peers and quiet._open)
        quiet.send(Note("heard"))
        until(lambda: len(listener._events._peers) == 2)
        assert "quiet" in [listener.next_event(20).peer for _ in range(2)]  # type: ignore[union-attr]
        taken = 2 - 1
        while taken < 5000:
            assert await_event(listener, Received).peer == "raw"
            taken += 1
        thread.join(DEADLINE_S)
        raw.close()
        assert await_event(listener, Left).peer == "raw"


def test_small_values_count_with_their_memory() -> None:
    values = 65_000
    task = Task(1, np.zeros(0, np.float32), slots={"x": {f"{n:04x}": None for n in range(32_000)}})
    payload = CODEC.encode(task)
    assert payload.size < 8 * values
    limits = Limits(max_queued_bytes=16 * 8 * values * VALUE_BYTES)  # 8 of these for one peer
    with joined("many", limits=limits) as (listener, many):
        until(lambda: many._open)
        for _ in range(16):
            many.send(payload)
        until(lambda: Hold.CALLER in connection(listener, "many")._holds)
        assert 7 <= len(listener._events) <= 10
        for _ in range(16):
            assert len(await_event(listener, Received).message.slots["x"]) == 32_000


def test_a_peer_that_does_not_read_its_answers_is_paused_and_loses_none() -> None:
    pings = 600_000
    with Listener("127.0.0.1:0", CODEC) as listener:
        raw = raw_session(listener, buffer=4096)
        thread = sending(raw, frame(Kind.PING) * pings)
        until(lambda: Hold.ANSWERS in connection(listener, "raw")._holds)
        assert connection(listener, "raw").session.answers_bytes <= UNREAD_BYTES + SLICE_BYTES
        data = bytearray()
        while len(data) < pings * HEADER_BYTES:
            part = raw.recv(1 << 16)
            assert part
            data += part
            assert connection(listener, "raw").session.answers_bytes <= UNREAD_BYTES + SLICE_BYTES
        assert data == frame(Kind.PONG) * pings
        thread.join(DEADLINE_S)
        raw.close()


def test_a_peer_that_never_reads_its_answers_times_out() -> None:
    with Listener("127.0.0.1:0", CODEC, heartbeat_s=0.1) as listener:
        raw = raw_session(listener, buffer=4096)

        def flood() -> None:
            try:
                while True:
                    raw.sendall(frame(Kind.PING) * 10_000)
            except OSError:
                pass  # closed, as expected

        thread = threading.Thread(target=flood)
        thread.start()
        assert "no sign of life" in await_event(listener, Left, DEADLINE_S).reason
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
        raw.close()


def test_a_flood_of_file_offers_is_bounded() -> None:
    limits = Limits(max_queued_events=8)
    words = bytes(CONTROL.encode(FileOffer("a.bin", 1, bytes(32))))
    with Listener("127.0.0.1:0", CODEC, limits=limits) as listener:
        raw = raw_session(listener)
        thread = sending(
            raw, b"".join(frame(Kind.FILE_OFFER, stream, words) for stream in range(1, 2001))
        )
        until(lambda: Hold.CALLER in connection(listener, "raw")._holds)
        assert len(listener._events) <= 8 + SLICE_BYTES // len(words)
        for _ in range(2000):
            assert await_event(listener, FileFailed).peer == "raw"
        thread.join(DEADLINE_S)
        raw.close()


def test_a_file_accepted_repeatedly_is_read_at_most_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    start = Outgoing.start

    def counted(outgoing: Outgoing, offset: int, sha256: bytes, wanted: Callable[[], bool]) -> int:
        read.append(offset)
        return start(outgoing, offset, sha256, wanted)

    monkeypatch.setattr(Outgoing, "start", counted)
    path = tmp_path / "large.bin"
    path.write_bytes(bytes(1 << 20))
    with Listener("127.0.0.1:0", CODEC) as listener, raw_session(listener) as raw:
        listener.send_file("raw", path)
        accept = CONTROL.encode(FileAccept((1 << 20) - 1, bytes(32)))
        reading = threading.Thread(target=drained, args=(raw,))
        reading.start()
        raw.sendall(frame(Kind.FILE_ACCEPT, 1, bytes(accept)) * 1000)
        assert "accepted too often" in await_event(listener, FileFailed).reason
        raw.shutdown(socket.SHUT_WR)
        await_event(listener, Left)
        reading.join()
    assert len(read) <= 2


def drained(raw: socket.socket) -> None:
    while raw.recv(1 << 16):
        pass


def test_a_disconnected_peer_that_keeps_sending_is_cut_off() -> None:
    with Listener("127.0.0.1:0", CODEC, limits=Limits(linger_s=3600)) as listener:
        raw = raw_session(listener)
        listener.disconnect("raw", "enough", final=True)
        assert await_event(listener, Left).reason == "enough"
        with pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
            raw.sendall(bytes(16 * LINGER_BYTES))
        raw.close()
        until(lambda: not listener._connections)
        assert listener.traffic("raw").received_bytes > LINGER_BYTES


def test_peers_that_are_paused_because_of_all_others_go_on_when_there_is_room() -> None:
    limits = Limits(max_queued_bytes=PEER_SHARE * 4000)
    data = bytes(CODEC.encode(Note("x" * 2500)))  # below the share of one peer
    names = [f"raw-{number}" for number in range(3 * PEER_SHARE // 2)]
    with Listener("127.0.0.1:0", CODEC, limits=limits) as listener, ExitStack() as stack:
        raws = [stack.enter_context(raw_session(listener, name)) for name in names]

        def paused() -> bool:
            return any(Hold.CALLER in connection(listener, name)._holds for name in names)

        for stream in (1, 2):
            note = frame(Kind.MESSAGE, stream, SIZE.pack(len(data)))
            for raw in raws:
                raw.sendall(note + frame(Kind.DATA, stream, data))
            until(paused)
            assert {await_event(listener, Received).peer for _ in names} == set(names)
