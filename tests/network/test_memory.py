"""Memory of connections: the budget, buffers, and release after the end."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from layers.network import (
    Connected,
    Connector,
    Joined,
    Left,
    Limits,
    Listener,
    Received,
    Replaced,
    inbox,
    memory,
)
from layers.network import connection as connections
from layers.network.connection import MOST_BYTES, WRITE_BUFFER_BYTES, Hold, bytes_at_a_time
from layers.network.frames import CHUNK_BYTES, SIZE, Kind, frame
from layers.network.memory import usable_memory_bytes
from layers.network.securing import _Securing
from tests.network.conftest import Certificates
from tests.network.wire_messages import CODEC, Note, Task, await_event, joined, raw_session, until

MIB = 1 << 20


def announced(size: int, chunks: int, stream: int = 1) -> bytes:
    """The beginning of a message of `size` bytes."""
    chunk = frame(Kind.DATA, stream, bytes(CHUNK_BYTES))
    return frame(Kind.MESSAGE, stream, SIZE.pack(size)) + chunk * chunks


def test_ten_clients_stay_within_the_budget_and_all_messages_arrive() -> None:
    limits = Limits(max_incoming_bytes=10 * MIB)
    weights = np.random.default_rng(3).standard_normal(MIB).astype(np.float32)  # 4 MiB
    with Listener("127.0.0.1:0", CODEC, limits=limits) as listener:
        connectors = [Connector(listener.address, f"client-{n}", CODEC) for n in range(10)]
        for connector in connectors:
            connector.start()
            await_event(connector, Connected)
        for number, connector in enumerate(connectors):
            connector.send(Task(number, weights))
        most = 0
        seen = set()
        while len(seen) < 10:
            event = listener.next_event(60)
            assert event is not None
            most = max(most, listener._memory.budget.used)
            if isinstance(event, Received):
                assert np.array_equal(event.message.weights, weights)
                seen.add(event.message.round)
        assert most <= 10 * MIB
        assert (listener._memory.budget.used, listener._memory.budget.waiting) == (0, 0)
        for connector in connectors:
            connector.close()


def test_oversized_messages_pass_and_partial_messages_do_not_deadlock() -> None:
    limits = Limits(max_incoming_bytes=MIB)
    weights = np.ones(MIB, np.float32)  # 4 MiB
    with (
        Listener("127.0.0.1:0", CODEC, limits=limits) as listener,
        Connector(listener.address, "one", CODEC) as one,
        Connector(listener.address, "two", CODEC) as two,
    ):
        for connector in (one, two):
            await_event(connector, Connected)
            for number in range(3):  # in turn, chunk by chunk
                connector.send(Task(number, weights))
        rounds = sorted(await_event(listener, Received).message.round for _ in range(6))
        assert rounds == [0, 0, 1, 1, 2, 2]
        assert listener._memory.budget.used == 0


def test_a_stalled_peer_is_disconnected_only_if_others_wait_for_its_memory() -> None:
    limits = Limits(max_incoming_bytes=2 * MIB, stall_s=0.3)
    weights = np.ones(MIB // 2, np.float32)  # 2 MiB
    with Listener("127.0.0.1:0", CODEC, limits=limits, heartbeat_s=60) as listener:
        raw = raw_session(listener)
        raw.sendall(announced(2 * MIB, chunks=2))
        until(lambda: listener._memory.budget.used == 2 * MIB)
        assert listener.next_event(1.0) is None  # nobody waits, so it may be slow
        with Connector(listener.address, "honest", CODEC) as honest:
            await_event(honest, Connected)
            honest.send(Task(1, weights))
            left = await_event(listener, Left)
            assert left.peer == "raw"
            assert "too slow" in left.reason
            assert await_event(listener, Received).peer == "honest"
            until(lambda: not listener._memory._progress)  # no reference to the closed connection
        raw.close()


def test_a_slow_peer_that_makes_progress_stays_connected_while_others_wait() -> None:
    limits = Limits(max_incoming_bytes=2 * MIB, stall_s=3600)  # the test calls the check itself
    weights = np.ones(MIB // 2, np.float32)
    task = bytes(CODEC.encode(Task(7, np.ones(MIB // 2 - 16, np.float32))))
    pieces = [task[at : at + CHUNK_BYTES] for at in range(0, len(task), CHUNK_BYTES)]
    with Listener("127.0.0.1:0", CODEC, limits=limits, heartbeat_s=60) as listener:
        raw = raw_session(listener)
        raw.sendall(frame(Kind.MESSAGE, 1, SIZE.pack(len(task))))
        until(lambda: listener._memory.budget.used)
        with Connector(listener.address, "honest", CODEC) as honest:
            await_event(honest, Connected)
            honest.send(Task(1, weights))
            until(lambda: listener._memory.budget.waiting)
            for piece in pieces:  # one between two checks
                received_bytes = listener.traffic("raw").message_bytes_received + len(piece)
                raw.sendall(frame(Kind.DATA, 1, piece))
                until(lambda: listener.traffic("raw").message_bytes_received >= received_bytes)  # noqa: B023
                listener._soon(listener._memory._end_stalled)
            received = [await_event(listener, Received) for _ in range(2)]
            assert [event.peer for event in received] == ["raw", "honest"]
        raw.close()


def test_slow_senders_send_concurrently(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget grows while senders are slow."""
    monkeypatch.setattr(memory, "FIRST_BYTES", 2 * MIB)
    monkeypatch.setattr(memory, "CHECK_S", 0.02)
    with Listener("127.0.0.1:0", CODEC, heartbeat_s=60) as listener:
        slow = [raw_session(listener, f"raw-{number}") for number in range(6)]
        for raw in slow:
            raw.sendall(announced(2 * MIB, chunks=1))
        until(lambda: listener._memory.budget.used == 12 * MIB)
        until(lambda: not listener._memory.budget.waiting)
        for raw in slow:
            raw.close()
        until(lambda: listener._memory.budget.used == 0)


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def what_is_held(listener: Listener) -> list[weakref.ref[object]]:
    """References to the listener's only connection, its session, TLS and message memory."""
    (connection,) = listener._connections
    messages = connection.session._inbox._open
    until(lambda: any(one.buffer is not None for one in list(messages.values())))
    (buffer,) = [one.buffer.obj for one in messages.values()]
    held = [weakref.ref(one) for one in (connection, connection.session, buffer)]
    if (tls := getattr(connection._transport, "_ssl_protocol", None)) is not None:
        held.append(weakref.ref(tls))  # asyncio's plain transport is a small cycle
    assert all(one() is not None for one in held)
    return held


def expire(listener: Listener) -> None:
    """Let the heartbeat of the listener's only connection time out now."""
    (connection,) = listener._connections
    connection.session._heartbeat_timeout_s = 0.0
    if connection._timer is not None:
        listener._soon(connection._timer.cancel)  # it refers to the connection
    listener._soon(connection._tick)


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("how", ["closes", "breaks off", "is refused", "is sent away", "stalls"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_closed_connection_is_freed_without_the_cycle_collector(
    certificates: Certificates, secure: bool, how: str
) -> None:
    server_tls = certificates.server if secure else None
    client_tls = certificates.client("client-1") if secure else None
    limits = Limits(linger_s=0.05)
    with Listener("127.0.0.1:0", CODEC, tls=server_tls, limits=limits, heartbeat_s=60) as listener:
        raw = raw_session(listener, "client-1", tls=client_tls)
        raw.sendall(announced(32 * MIB, chunks=2))
        remains = what_is_held(listener)
        match how:
            case "closes":
                raw.close()
            case "breaks off":
                os.close(raw.detach())
            case "is refused":
                raw.sendall(b"\xff" * 300_000)
            case "is sent away":
                listener.disconnect("client-1", "enough")
            case "stalls":
                expire(listener)
        await_event(listener, Left)
        until(lambda: not any(one() for one in remains))
        assert (listener._memory.budget.used, listener._memory.budget.waiting) == (0, 0)
        raw.close()


@pytest.mark.usefixtures("without_collector")
def test_a_taken_message_is_freed_when_the_caller_drops_it() -> None:
    with joined() as (listener, connector):
        connector.send(Task(1, np.ones(MIB, np.float32)))
        received = await_event(listener, Received)
        array = weakref.ref(received.message.weights)
        assert array() is not None
        del received
        assert array() is None


def test_memory_of_a_dropped_message_serves_the_next_one_and_little_is_kept() -> None:
    spare = inbox._Spare()
    first = spare.take(MIB + 1)
    first[:] = bytes([7]) * len(first)
    part = np.frombuffer(first, np.uint8)[5:]
    del first
    assert spare.take(MIB + 2)[0] == 0, "still in use"
    del part
    again = spare.take(MIB + 5)
    assert (len(again), again[0]) == (MIB + 5, 7)
    del again
    held = [spare.take(8 * MIB) for _ in range(5)]
    del held
    assert sum(map(len, spare._spare)) <= inbox.SPARE_BYTES


def test_a_connection_that_waits_for_memory_does_not_time_out() -> None:
    limits = Limits(max_incoming_bytes=MIB)
    with Listener("127.0.0.1:0", CODEC, limits=limits, heartbeat_s=0.1) as listener:
        holder = listener._memory.budget.account(lambda: None)
        assert holder.reserve(MIB)
        waiter = raw_session(listener, "waiter")
        waiter.sendall(announced(MIB, chunks=1))
        until(lambda: Hold.MEMORY in listener._peers["waiter"]._holds)
        assert listener.next_event(1.0) is None  # more than twice the heartbeat's timeout
        holder.close()
        until(lambda: listener._peers["waiter"].held_bytes == MIB)
        waiter.close()


def test_usable_memory_is_the_minimum_of_machine_and_control_groups(tmp_path: Path) -> None:
    machine = usable_memory_bytes(tmp_path / "none", tmp_path / "none")
    assert machine > 64 * MIB
    own = tmp_path / "own"
    own.write_text("0::/system.slice/fedmx.service\n")
    group = tmp_path / "groups" / "system.slice" / "fedmx.service"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    assert usable_memory_bytes(tmp_path / "groups", own) == machine
    (group.parent / "memory.max").write_text(f"{64 * MIB}\n")
    assert usable_memory_bytes(tmp_path / "groups", own) == 64 * MIB
    (group / "memory.max").write_text(f"{32 * MIB}\n")
    assert usable_memory_bytes(tmp_path / "groups", own) == 32 * MIB
    (group.parent / "a:b").mkdir()
    (group.parent / "a:b" / "memory.max").write_text(f"{48 * MIB}\n")
    own.write_text("0::/system.slice/a:b\n")
    assert usable_memory_bytes(tmp_path / "groups", own) == 48 * MIB
    own.write_text("12:pids:/x\n5:cpu,memory:/user\n")
    old = tmp_path / "groups" / "memory" / "user"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text(f"{16 * MIB}\n")
    assert usable_memory_bytes(tmp_path / "groups", own) == 16 * MIB


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_the_write_buffer_of_a_deaf_peer_is_small(certificates: Certificates, secure: bool) -> None:
    server_tls = certificates.server if secure else None
    client_tls = certificates.client("client-1") if secure else None
    with Listener("127.0.0.1:0", CODEC, tls=server_tls, heartbeat_s=60) as listener:
        raw = raw_session(listener, "client-1", tls=client_tls)
        (connection,) = listener._connections
        listener.send("client-1", Task(1, np.ones(16 * MIB, np.float32)))
        until(lambda: connection._writing_paused)
        assert connection._taken
        assert connection._transport.get_write_buffer_size() <= WRITE_BUFFER_BYTES + MOST_BYTES
        raw.close()


def test_only_the_newest_message_is_queued_for_a_peer_that_does_not_read() -> None:
    with Listener("127.0.0.1:0", CODEC, heartbeat_s=60) as listener:
        raw = raw_session(listener)
        (connection,) = listener._connections
        listener.send("raw", Task(0, np.ones(4 * MIB, np.float32)))
        until(lambda: connection._writing_paused)  # in the middle of the first one
        kept = []
        for round in range(1, 21):
            weights = np.ones(MIB, np.float32)
            kept.append(weakref.ref(weights))
            size = listener.send("raw", Task(round, weights), replace=True)
            listener.send("raw", Note(f"of round {round}"))  # another type is not replaced
            del weights
        for _ in range(19):
            assert await_event(listener, Replaced) == Replaced("raw", "Task", size)
        gc.collect()
        assert [one() is None for one in kept] == [True] * 19 + [False]
        raw.close()


def test_buffers_shrink_as_connections_grow() -> None:
    sizes = [bytes_at_a_time(number) for number in range(1, 20_000)]
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[127]) == (MOST_BYTES, MOST_BYTES)
    assert all(number * size <= 32 * MIB for number, size in enumerate(sizes[:2000], 1))
    assert sizes[-1] == 16 * 1024


@pytest.mark.skipif(not _Securing.in_parts, reason="TLS of Python 3.10")
def test_tls_connections_share_one_receive_buffer(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ALL_BYTES", 4 * MOST_BYTES)
    weights = np.random.default_rng(3).standard_normal(MIB // 2).astype(np.float32)
    with Listener("127.0.0.1:0", CODEC, tls=certificates.server) as listener:
        names = [f"client-{n}" for n in range(6)]
        connectors = [
            Connector(listener.address, one, CODEC, tls=certificates.client(one)) for one in names
        ]
        sizes = []
        for connector in connectors:
            connector.start()
            await_event(listener, Joined)
            await_event(connector, Connected)
            sizes.append({one.at_a_time for one in listener._connections})
        assert sizes == [{MOST_BYTES}] * 4 + [{MOST_BYTES // 2}] * 2
        for number, connector in enumerate(connectors):
            connector.send(Task(number, weights))
        for _ in connectors:
            assert np.array_equal(await_event(listener, Received).message.weights, weights)
        for one in listener._connections:
            assert one._transport._ssl_protocol._ssl_buffer.obj is listener._scratch.obj
        for connector in connectors[2:]:
            connector.close()
            await_event(listener, Left)
        until(lambda: {one.at_a_time for one in listener._connections} == {MOST_BYTES})
        for connector in connectors:
            connector.close()
