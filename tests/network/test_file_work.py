"""The work with whole files beside the loop: for whom it is done, and until when."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from layers.network import (
    Limits,
    files,
)
from layers.network.events import FileAccepted, FileOffered
from layers.network.files import (
    BLOCK_BYTES,
    PART,
    Incoming,
    Outgoing,
)
from layers.network.transfers import Desk, Transfers


class NoConnection:
    """A connection that sends nothing and keeps what it was told to say."""

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


def test_a_file_stays_in_use_until_the_work_with_it_ends_though_its_connection_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a newer connection would write to it at the same time."""
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
        transfers.opened(connection, Desk("client-1", tmp_path, any_file=True))
        transfers.take(connection, FileOffered(1, "f", 10, bytes(32)))
        assert await asyncio.get_running_loop().run_in_executor(None, begun.wait, 20)
        transfers.ended(connection)
        assert worked[0]._file is not None, "still open"
        assert transfers._in_use == {tmp_path / "f"}
        go_on.set()
        while transfers._tasks:
            await asyncio.sleep(0)
        assert worked[0]._file is None, "closed now"
        assert transfers._in_use == set()
        assert connection.said == [], "nothing is said on a connection that is over"

    asyncio.run(run())


class Hashed:
    """Counts the blocks of files that are hashed; the first one waits for `go_on`."""

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
def test_of_a_file_whose_connection_has_ended_no_more_is_hashed(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of the one that is being hashed, nor of those whose turn it would be."""
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
        transfers.opened(connection, Desk("client-1", tmp_path, any_file=True))
        if way == "sent":
            transfers.queue("client-1", Outgoing(tmp_path / "a", "a", len(content), digest))
            for _ in range(2):
                transfers.take(connection, FileAccepted(1, len(content), digest))
        else:
            for stream, name in enumerate(names):
                transfers.take(connection, FileOffered(stream, name, len(content), digest))
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


def test_a_connection_has_one_file_hashed_at_a_time(tmp_path: Path) -> None:
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
            transfers.opened(connection, Desk(f"client-{number}", None))
            transfers.queue(f"client-{number}", outgoing)
            for _ in range(2):
                transfers.take(connection, FileAccepted(1, len(content), outgoing.sha256))
        await asyncio.sleep(0)  # every task has come to where it waits
        assert submitted == 2
        for connection in connections:
            transfers.ended(connection)
        while transfers._tasks:
            await asyncio.sleep(0)

    asyncio.run(run())


@pytest.mark.parametrize("event", [FileOffered(1, "f", 10, bytes(32)), FileAccepted(1, 0, b"")])
def test_a_connection_that_ends_at_once_leaves_no_file_in_use(
    tmp_path: Path, event: FileOffered | FileAccepted
) -> None:
    async def run() -> None:
        transfers = Transfers(Limits(), lambda event: None)
        connection: Any = NoConnection()
        transfers.opened(connection, Desk("client-1", tmp_path / "in", any_file=True))
        transfers.queue("client-1", Outgoing(tmp_path / "a", "a", 10, bytes(32)))
        transfers.take(connection, event)
        transfers.ended(connection)
        while transfers._tasks:
            await asyncio.sleep(0)
        assert transfers._in_use == set()
        assert connection.said == ["offer", "flush"]

    asyncio.run(run())
    assert list(tmp_path.iterdir()) == []
