"""File transfers over real connections: verified, resumed, and limited."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from layers.network import (
    CHUNK_BYTES,
    Connected,
    Connector,
    Disconnected,
    FileFailed,
    FileReceived,
    FileSent,
    Left,
    Limits,
    Listener,
    NotConnected,
    Received,
    TransferError,
    file_wire_size,
)
from layers.network.control import CONTROL, FileAccept, FileOffer, FileStart
from layers.network.files import Outgoing
from layers.network.frames import FrameReader, Kind, frame
from tests.network.conftest import Certificates
from tests.network.socket_bytes import count_sockets, socket_bytes
from tests.network.wire_messages import (
    CODEC,
    QUICK,
    Note,
    await_event,
    expected,
    joined,
    raw_session,
    until,
)

SIZE = 5 * CHUNK_BYTES + 17


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.bin"
    path.write_bytes(os.urandom(SIZE))
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, SIZE])
def test_a_file_arrives_whole_in_either_direction(
    certificates: Certificates, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_sockets(monkeypatch)
    source = tmp_path / "any name.bin"
    source.write_bytes(os.urandom(size))
    with joined(tls=certificates, into=tmp_path / "client", files=tmp_path / "server") as (
        listener,
        connector,
    ):
        connector.send_file(source)
        up = await_event(listener, FileReceived)
        assert up.path == tmp_path / "server" / "client-1" / "any name.bin"
        assert (up.peer, up.size_bytes, up.sha256) == ("client-1", size, sha256(source))
        assert await_event(connector, FileSent).name == "any name.bin"
        connector.expect([expected(source, "renamed.bin")])
        listener.send_file("client-1", source, "renamed.bin")
        down = await_event(connector, FileReceived)
        assert down.path == tmp_path / "client" / "renamed.bin"
        assert await_event(listener, FileSent).size_bytes == size
        for path in (up.path, down.path):
            assert path.read_bytes() == source.read_bytes()
            assert [found.name for found in path.parent.iterdir()] == [path.name]
        traffic = listener.traffic()
        assert (traffic.sent_bytes, traffic.received_bytes) == socket_bytes(listener)
        assert min(traffic.file_bytes_sent, traffic.file_bytes_received) > size


def wait_for(kind: Kind, raw: socket.socket, reader: FrameReader) -> None:
    seen = False
    while not seen:
        data = raw.recv(4096)
        assert data
        seen = kind in [part.kind for part in reader.feed(data)]


def cut_off(listener: Listener, source: Path, kept: int) -> None:
    """Send the first bytes of a file with a bare socket, then break the connection."""
    outgoing = Outgoing.measure(source)
    content = source.read_bytes()[:kept]
    with raw_session(listener, "client-1") as raw:
        begin_file(raw, FileOffer(outgoing.name, outgoing.size, outgoing.sha256))
        for start in range(0, kept, CHUNK_BYTES):
            raw.sendall(frame(Kind.FILE_DATA, 1, content[start : start + CHUNK_BYTES]))
    await_event(listener, Left)


def begin_file(raw: socket.socket, offer: FileOffer) -> FrameReader:
    reader = FrameReader()
    raw.sendall(frame(Kind.FILE_OFFER, 1, bytes(CONTROL.encode(offer))))
    wait_for(Kind.FILE_ACCEPT, raw, reader)
    raw.sendall(frame(Kind.FILE_START, 1, bytes(CONTROL.encode(FileStart(0)))))
    return reader


@pytest.mark.parametrize("kept", [0, 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 5, SIZE - 1])
def test_an_interrupted_file_is_resumed(tmp_path: Path, source: Path, kept: int) -> None:
    folder = tmp_path / "server"
    with Listener("127.0.0.1:0", CODEC, files=folder) as listener:
        cut_off(listener, source, kept)
        part = folder / "client-1" / "model.bin.part"
        assert part.stat().st_size == kept
        before = listener.traffic().file_bytes_received
        with Connector(listener.address, "client-1", CODEC) as connector:
            await_event(connector, Connected)
            connector.send_file(source)
            received = await_event(listener, FileReceived)
        assert received.path.read_bytes() == source.read_bytes()
        assert not part.exists()
        again = listener.traffic().file_bytes_received - before
        assert SIZE - kept < again < SIZE - kept + 1000


def test_a_part_of_another_file_is_discarded(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "server" / "client-1"
    for left_over in (os.urandom(CHUNK_BYTES), os.urandom(2 * SIZE)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.bin.part").write_bytes(left_over)
        with joined(files=folder.parent) as (listener, connector):
            connector.send_file(source)
            received = await_event(listener, FileReceived)
            assert received.path.read_bytes() == source.read_bytes()
            received.path.unlink()


class Gate:
    """Blocks the connector's thread before it reads beyond the first chunks of a file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        read = Outgoing.read

        def gated(outgoing: Outgoing, offset: int, size: int) -> bytes:
            if offset >= 3 * CHUNK_BYTES:
                self.reached.set()
                assert self.opened.wait(60)
            return read(outgoing, offset, size)

        monkeypatch.setattr(Outgoing, "read", gated)


def test_a_file_is_resumed_when_the_server_restarts(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, folder = Gate(monkeypatch), tmp_path / "server"
    first = Listener("127.0.0.1:0", CODEC, files=folder)
    first.start()
    with Connector(first.address, "client-1", CODEC, backoff=QUICK) as connector:
        await_event(connector, Connected)
        connector.send_file(source)
        assert gate.reached.wait(60)
        first.close(drain_s=0)
        gate.opened.set()
        await_event(connector, Disconnected)
        with Listener(first.address, CODEC, files=folder) as second:
            received = await_event(second, FileReceived)
            assert sha256(received.path) == sha256(source) == received.sha256
            await_event(connector, FileSent)


RECEIVER = """
import sys
from pathlib import Path
from layers.network import Listener
from tests.network.wire_messages import CODEC
with Listener(sys.argv[1], CODEC, files=Path(sys.argv[2])) as listener:
    print(listener.address, flush=True)
    while True:
        listener.next_event()
"""


def test_a_file_survives_its_receiver_being_killed(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, folder = Gate(monkeypatch), tmp_path / "server"
    root = Path(__file__).resolve().parents[2]

    @contextlib.contextmanager
    def receiver(address: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
        process = subprocess.Popen(
            [sys.executable, "-c", RECEIVER, address, str(folder)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()
            process.communicate()

    part = folder / "client-1" / "model.bin.part"
    with contextlib.ExitStack() as stack:
        with receiver("127.0.0.1:0") as (process, address):
            connector = Connector(address, "client-1", CODEC, backoff=QUICK)
            stack.enter_context(connector)
            await_event(connector, Connected)
            connector.send_file(source)
            while not (part.exists() and part.stat().st_size):
                assert process.poll() is None
        gate.opened.set()
        await_event(connector, Disconnected)
        kept, before = part.stat().st_size, connector.traffic().file_bytes_sent
        with receiver(address):
            size = await_event(connector, FileSent).size_bytes
            # Kept bytes are not sent again; the frames around the rest are a few bytes each.
            assert connector.traffic().file_bytes_sent - before < size - kept + 5000
    assert sha256(folder / "client-1" / "model.bin") == sha256(source)


def test_an_existing_file_is_not_sent_again(tmp_path: Path, source: Path) -> None:
    with joined(files=tmp_path / "server") as (listener, connector):
        for _ in range(2):
            connector.send_file(source)
            await_event(connector, FileSent)
            assert await_event(listener, FileReceived).sha256 == sha256(source)
        assert listener.traffic().file_bytes_received < SIZE + 1000


def test_a_file_with_a_wrong_digest_is_not_stored(tmp_path: Path, source: Path) -> None:
    with joined(files=tmp_path / "server") as (listener, connector):
        true = Outgoing.measure(source)
        false = Outgoing(true.path, true.name, true.size, bytes(32))
        connector._soon(connector._transfers.queue, connector.address, false)
        for end in (connector, listener):
            assert "SHA-256" in await_event(end, FileFailed).reason
        assert list((tmp_path / "server" / "client-1").iterdir()) == []
        # It was sent twice before it was refused.
        assert 2 * SIZE < listener.traffic().file_bytes_received < 2 * SIZE + 2000


def test_a_file_that_shrinks_while_being_sent_is_cancelled(tmp_path: Path, source: Path) -> None:
    outgoing = Outgoing.measure(source)
    os.truncate(source, 2 * CHUNK_BYTES)
    with joined(files=tmp_path / "server") as (listener, connector):
        connector._soon(connector._transfers.queue, connector.address, outgoing)
        for end in (connector, listener):
            assert "became shorter" in await_event(end, FileFailed).reason
        connector.send(Note("still open"))
        assert await_event(listener, Received).message == Note("still open")


def open_files() -> set[Path]:
    """The files that this process has open; a thread may close one meanwhile."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(link.readlink())
    return found


def test_sending_a_file_holds_no_descriptor(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(64 << 20)  # more than any socket takes at once
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        raw_session(listener, "slow", buffer=1 << 12) as raw,
    ):
        listener.send_file("slow", large)
        reader = FrameReader()
        wait_for(Kind.FILE_OFFER, raw, reader)
        accept = FileAccept(0, hashlib.sha256().digest())
        raw.sendall(frame(Kind.FILE_ACCEPT, 1, bytes(CONTROL.encode(accept))))
        wait_for(Kind.FILE_START, raw, reader)
        assert raw.recv(4096)  # the first bytes; this end reads no more
        until(lambda: large not in open_files())


def test_a_disk_error_is_reported_and_ends_only_the_transfer(tmp_path: Path, source: Path) -> None:
    with joined(files=tmp_path / "server") as (listener, connector):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (CHUNK_BYTES + 7, hard))
        try:
            connector.send_file(source)
            for end in (connector, listener):
                assert "cannot be written" in await_event(end, FileFailed).reason
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        connector.send_file(source)
        assert await_event(listener, FileReceived).path.read_bytes() == source.read_bytes()


def test_an_unwanted_file_is_refused_with_a_reason(tmp_path: Path, source: Path) -> None:
    with joined() as (_, connector):
        connector.send_file(source)
        assert "not accepted here" in await_event(connector, FileFailed).reason
    with joined(files=tmp_path / "server", limits=Limits(max_file_bytes=100)) as (_, connector):
        connector.send_file(source)
        assert "max_file_bytes" in await_event(connector, FileFailed).reason
        assert not (tmp_path / "server").exists()


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "a/b", "../up", "a\\b", "a\0b", "x.part", "n" * 300, "a\nb"]
)
def test_an_unsafe_file_name_is_refused_on_both_ends(
    tmp_path: Path, source: Path, name: str
) -> None:
    with pytest.raises(TransferError, match="file name"):
        Outgoing.measure(source, name)
    with joined(files=tmp_path / "server") as (listener, connector):
        with pytest.raises(TransferError, match="file name"):
            connector.send_file(source, name)
        offer = Outgoing(source, name, 1, bytes(32))
        connector._soon(connector._transfers.queue, connector.address, offer)
        assert "file name" in await_event(listener, FileFailed).reason
    assert not (tmp_path / "server").exists()


def test_what_cannot_be_sent_is_said_at_once(tmp_path: Path) -> None:
    with Listener("127.0.0.1:0", CODEC) as listener:
        with pytest.raises(NotConnected):
            listener.send_file("nobody", tmp_path / "x")
        connector = Connector(listener.address, "client-1", CODEC)
        with pytest.raises(TransferError, match="No such file"):
            connector.send_file(tmp_path / "missing.bin")
        with pytest.raises(TransferError, match="Is a directory"):
            connector.send_file(tmp_path)


def test_a_file_beyond_its_announced_size_is_not_stored(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "server"
    with Listener("127.0.0.1:0", CODEC, files=folder) as listener:
        true = Outgoing.measure(source)
        with raw_session(listener, "client-1") as raw:
            reader = begin_file(raw, FileOffer(true.name, 100, true.sha256))
            raw.sendall(frame(Kind.FILE_DATA, 1, source.read_bytes()[:101]))
            wait_for(Kind.FILE_REFUSED, raw, reader)
            assert "unexpected bytes" in await_event(listener, FileFailed).reason
        await_event(listener, Left)
    assert not (folder / "client-1" / "model.bin").exists()


@pytest.mark.parametrize("size", [0, 1, 200, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES - 7])
def test_file_wire_size_equals_the_bytes_written(
    size: int, tmp_path: Path, certificates: Certificates
) -> None:
    file = tmp_path / "file.bin"
    file.write_bytes(bytes(size))
    with joined(tls=certificates, into=tmp_path / "in") as (listener, connector):
        connector.expect([expected(file, file.name)])
        listener.send_file("client-1", file)
        await_event(listener, FileSent)
        await_event(connector, FileReceived)
        traffic = listener.traffic()
    assert traffic.file_bytes_sent + traffic.file_bytes_received == file_wire_size(file.name, size)
