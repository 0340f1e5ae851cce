"""Expected files, and the work with files in other threads."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from layers.network import (
    CHUNK_BYTES,
    FileFailed,
    FileReceived,
    FileSent,
    GaveUp,
    Left,
    Limits,
    Listener,
    NotConnected,
    Received,
    files,
)
from layers.network.control import CONTROL, FileAccept, FileFrame, FileOffer
from layers.network.files import BLOCK_BYTES, PART, Incoming, Outgoing
from layers.network.frames import Kind, frame
from layers.network.transfers import MAX_WAITING, PeerFiles, Transfers
from tests.network.wire_messages import (
    CODEC,
    Note,
    await_event,
    expected,
    joined,
    raw_session,
    until,
)


@pytest.mark.parametrize("what", ["name", "size", "digest"])
def test_a_client_leaves_a_server_that_offers_an_unexpected_file(tmp_path: Path, what: str) -> None:
    source = tmp_path / "file.bin"
    source.write_bytes(b"what is sent")
    right = expected(source, "file.bin")
    other = {
        "name": replace(right, name="other.bin"),
        "size": replace(right, size=right.size + 1),
        "digest": replace(right, sha256=bytes(32)),
    }[what]
    with joined("one", into=tmp_path / "in") as (listener, connector):
        connector.expect([other])
        for number in range(40):
            with contextlib.suppress(NotConnected):
                listener.send_file("one", source, "file.bin" if number == 0 else f"{number}.bin")
        ended = await_event(connector, GaveUp)
        assert "the file 'file.bin' of 12 bytes with SHA-256" in ended.reason
        assert ended.reason.endswith("not announced")
        assert ended.final
        assert "not announced" in await_event(listener, Left).reason
    assert not (tmp_path / "in").exists()


def test_a_file_is_received_on_one_stream_at_a_time(tmp_path: Path) -> None:
    words = [bytes(CONTROL.encode(FileOffer(name, 1, bytes(32)))) for name in ("a.bin", "b.bin")]
    with Listener("127.0.0.1:0", CODEC, files=tmp_path) as listener:
        raw = raw_session(listener)
        for stream, number in ((1, 0), (2, 1), (3, 0)):
            raw.sendall(frame(Kind.FILE_OFFER, stream, words[number]))
        failed = await_event(listener, FileFailed)
        assert (failed.peer, failed.name) == ("raw", "a.bin")
        assert "being received already" in failed.reason
        (files,) = listener._transfers._open.values()
        until(lambda: {path.name for path in (tmp_path / "raw").glob("*")} >= {"a.bin.part"})
        assert {stream: file.path.name for stream, file in files.incoming.items()} == {
            1: "a.bin",
            2: "b.bin",
        }
        raw.close()


def test_an_offer_waits_until_the_expected_files_are_known(tmp_path: Path) -> None:
    source = tmp_path / "file.bin"
    source.write_bytes(os.urandom(3 * CHUNK_BYTES))
    with joined("one", into=tmp_path / "in") as (listener, connector):
        listener.send_file("one", source)
        listener.send("one", Note("after the offer"))
        await_event(connector, Received)
        assert not (tmp_path / "in").exists()
        connector.expect([expected(source, "file.bin")])
        assert await_event(connector, FileReceived).path.read_bytes() == source.read_bytes()
        await_event(listener, FileSent)


def test_the_number_of_waiting_offers_is_limited(tmp_path: Path) -> None:
    source = tmp_path / "file.bin"
    source.write_bytes(b"x")
    with joined("one", into=tmp_path / "in") as (listener, connector):
        for number in range(MAX_WAITING + 1):
            listener.send_file("one", source, f"{number}.bin")
        assert f"'{MAX_WAITING}.bin'" in await_event(connector, GaveUp).reason
    assert not (tmp_path / "in").exists()


def offered(stream: int, name: str, size: int, sha256: bytes) -> FileFrame:
    return FileFrame(Kind.FILE_OFFER, stream, FileOffer(name, size, sha256))


def accepted(offset: int, sha256: bytes) -> FileFrame:
    return FileFrame(Kind.FILE_ACCEPT, 1, FileAccept(offset, sha256))


class NoConnection:
    """A connection that records its calls and sends nothing."""

    def __init__(self) -> None:
        self.session = self
        self.said: list[str] = []

    def flush(self) -> None:
        self.said.append("flush")

    def accept_file(self, stream: int, offset: int, sha256: bytes) -> None:
        self.said.append("accept")

    def refuse_file(self, stream: int, reason: str) -> None:
        self.said.append(reason)

    def offer_file(self, name: str, size: int, sha256: bytes) -> int:
        self.said.append("offer")
        return 1


def test_a_file_stays_in_use_until_its_thread_has_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a newer connection would write to it concurrently."""
    begun, go_on = threading.Event(), threading.Event()
    resume = Incoming.resume
    worked: list[Incoming] = []

    def slow(incoming: Incoming) -> tuple[int, bytes]:
        found = resume(incoming)
        worked.append(incoming)
        begun.set()
        assert go_on.wait(20)
        return found

    monkeypatch.setattr(Incoming, "resume", slow)

    async def run() -> None:
        transfers = Transfers(Limits(), lambda event: None)
        connection: Any = NoConnection()
        transfers.opened(PeerFiles(connection, "client-1", tmp_path, any_file=True))
        transfers.take(connection, offered(1, "f", 10, bytes(32)))
        assert await asyncio.get_running_loop().run_in_executor(None, begun.wait, 20)
        transfers.ended(connection)
        assert worked[0]._file is not None, "still open"
        assert transfers._in_use == {tmp_path / "f"}
        go_on.set()
        while transfers._tasks:
            await asyncio.sleep(0)
        assert worked[0]._file is None, "closed now"
        assert transfers._in_use == set()
        assert connection.said == [], "nothing is sent on a closed connection"

    asyncio.run(run())


class Hashed:
    """Counts hashed blocks; the first one waits for `go_on`."""

    def __init__(self) -> None:
        self.blocks = 0
        self.begun, self.go_on = threading.Event(), threading.Event()

    def sha256(self) -> Any:
        real = hashlib.sha256()
        return SimpleNamespace(update=partial(self._update, real), digest=real.digest)

    def _update(self, real: Any, block: bytes) -> None:
        self.blocks += 1
        self.begun.set()
        assert self.go_on.wait(20)
        real.update(block)


@pytest.mark.parametrize("way", ["sent", "there already", "begun"])
def test_hashing_stops_when_the_connection_ends(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the current file nor the next ones are hashed."""
    content, hashed = bytes(4 * BLOCK_BYTES), Hashed()
    digest = hashlib.sha256(content).digest()
    names = ["a", "b", "c"]
    for name in names:
        (tmp_path / (name + PART if way == "begun" else name)).write_bytes(content)
    monkeypatch.setattr(files, "hashlib", hashed)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        transfers = Transfers(Limits(), lambda event: None)
        connection: Any = NoConnection()
        transfers.opened(PeerFiles(connection, "client-1", tmp_path, any_file=True))
        if way == "sent":
            transfers.queue("client-1", Outgoing(tmp_path / "a", "a", len(content), digest))
            for _ in range(2):
                transfers.take(connection, accepted(len(content), digest))
        else:
            for stream, name in enumerate(names):
                transfers.take(connection, offered(stream, name, len(content), digest))
        assert await loop.run_in_executor(None, hashed.begun.wait, 20)
        before = list(connection.said)
        transfers.ended(connection)
        hashed.go_on.set()
        while transfers._tasks:
            await asyncio.sleep(0)
        assert hashed.blocks == 1
        assert connection.said == before
        assert transfers._in_use == set()

    asyncio.run(run())


def test_a_connection_hashes_one_file_at_a_time(tmp_path: Path) -> None:
    content = bytes(BLOCK_BYTES)
    outgoing = Outgoing(tmp_path / "a", "a", len(content), hashlib.sha256(content).digest())
    outgoing.path.write_bytes(content)
    submitted = 0

    class Executor(ThreadPoolExecutor):
        def submit(self, *work: Any) -> Any:  # type: ignore[override]
            nonlocal submitted
            submitted += 1
            return super().submit(*work)

    async def run() -> None:
        asyncio.get_running_loop().set_default_executor(Executor(1))
        transfers = Transfers(Limits(), lambda event: None)
        connections: list[Any] = [NoConnection(), NoConnection()]
        for number, connection in enumerate(connections):
            transfers.opened(PeerFiles(connection, f"client-{number}", None))
            transfers.queue(f"client-{number}", outgoing)
            for _ in range(2):
                transfers.take(connection, accepted(len(content), outgoing.sha256))
        await asyncio.sleep(0)  # every task is waiting now
        assert submitted == 2
        for connection in connections:
            transfers.ended(connection)
        while transfers._tasks:
            await asyncio.sleep(0)

    asyncio.run(run())


@pytest.mark.parametrize("event", [offered(1, "f", 10, bytes(32)), accepted(0, b"")])
def test_a_connection_that_ends_at_once_leaves_no_file_in_use(
    tmp_path: Path, event: FileFrame
) -> None:
    async def run() -> None:
        transfers = Transfers(Limits(), lambda event: None)
        connection: Any = NoConnection()
        transfers.opened(PeerFiles(connection, "client-1", tmp_path / "in", any_file=True))
        transfers.queue("client-1", Outgoing(tmp_path / "a", "a", 10, bytes(32)))
        transfers.take(connection, event)
        transfers.ended(connection)
        while transfers._tasks:
            await asyncio.sleep(0)
        assert transfers._in_use == set()
        assert connection.said == ["offer", "flush"]

    asyncio.run(run())
    assert list(tmp_path.iterdir()) == []
