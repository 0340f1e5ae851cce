"""A client takes the files that were announced to it, and no others."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from layers.network import (
    CHUNK_BYTES,
    Connector,
    FileReceived,
    FileSent,
    GaveUp,
    Joined,
    Left,
    Listener,
    NotConnected,
    Received,
)
from layers.network.transfers import MAX_WAITING
from tests.network.expected_files import expected
from tests.network.wire_messages import CODEC, Note, await_event


@pytest.mark.parametrize("what", ["name", "size", "digest"])
def test_a_server_that_offers_what_is_not_expected_is_left_and_leaves_nothing(
    tmp_path: Path, what: str
) -> None:
    source = tmp_path / "file.bin"
    source.write_bytes(b"what is sent")
    right = expected(source, "file.bin")
    other = {
        "name": replace(right, name="other.bin"),
        "size": replace(right, size=right.size + 1),
        "digest": replace(right, sha256=bytes(32)),
    }[what]
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(listener.address, "one", CODEC, files=tmp_path / "in") as connector,
    ):
        await_event(listener, Joined)
        connector.expect([other])
        for number in range(40):
            with contextlib.suppress(NotConnected):
                listener.send_file("one", source, "file.bin" if number == 0 else f"{number}.bin")
        ended = await_event(connector, GaveUp)
        assert "the file 'file.bin' of 12 bytes with SHA-256" in ended.reason
        assert ended.reason.endswith("is offered, which was not announced")
        assert ended.final
        assert "which was not announced" in await_event(listener, Left).reason
    assert not (tmp_path / "in").exists()


def test_an_offer_waits_until_it_is_known_what_is_expected(tmp_path: Path) -> None:
    source = tmp_path / "file.bin"
    source.write_bytes(os.urandom(3 * CHUNK_BYTES))
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(listener.address, "one", CODEC, files=tmp_path / "in") as connector,
    ):
        await_event(listener, Joined)
        listener.send_file("one", source)
        listener.send("one", Note("after the offer"))
        await_event(connector, Received)
        assert not (tmp_path / "in").exists()
        connector.expect([expected(source, "file.bin")])
        assert await_event(connector, FileReceived).path.read_bytes() == source.read_bytes()
        await_event(listener, FileSent)


def test_not_many_offers_wait(tmp_path: Path) -> None:
    source = tmp_path / "file.bin"
    source.write_bytes(b"x")
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(listener.address, "one", CODEC, files=tmp_path / "in") as connector,
    ):
        await_event(listener, Joined)
        for number in range(MAX_WAITING + 1):
            listener.send_file("one", source, f"{number}.bin")
        assert f"'{MAX_WAITING}.bin'" in await_event(connector, GaveUp).reason
    assert not (tmp_path / "in").exists()
