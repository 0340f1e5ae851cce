"""The bytes of a file on the wire are known without sending it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from layers.network import (
    CHUNK_BYTES,
    Connector,
    ExpectedFile,
    FileFailed,
    FileReceived,
    FileSent,
    Joined,
    Listener,
    file_wire_size,
)
from tests.network.conftest import Certificates
from tests.network.wire_messages import CODEC


@pytest.mark.parametrize("size", [0, 1, 200, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES - 7])
def test_a_file_takes_as_many_bytes_as_was_said(
    size: int, tmp_path: Path, certificates: Certificates
) -> None:
    file = tmp_path / "file.bin"
    file.write_bytes(bytes(size))
    listener = Listener("127.0.0.1:0", CODEC, tls=certificates.server)
    with listener:
        tls = certificates.client("one")
        with Connector(listener.address, "one", CODEC, tls=tls, files=tmp_path / "in") as connector:
            while not isinstance(event := listener.next_event(30), Joined):
                assert event is not None
            digest = hashlib.sha256(file.read_bytes()).digest()
            connector.expect([ExpectedFile(file.name, size, digest)])
            listener.send_file("one", file)
            while not isinstance(event := listener.next_event(30), FileSent):
                assert event is not None
                assert not isinstance(event, FileFailed)
            while not isinstance(connector.next_event(30), FileReceived):
                pass
            traffic = listener.traffic()
    assert traffic.file_bytes_sent + traffic.file_bytes_received == file_wire_size(file.name, size)
