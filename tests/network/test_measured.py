"""A file to send is read for its SHA-256 as often as it changes, however many clients get it."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from layers.network import Connector, ExpectedFile, FileSent, Joined, Listener, TransferError
from layers.network.files import MOST_FILES, Measured, Outgoing
from tests.network.wire_messages import CODEC, await_event

LONG_AGO = 1_000_000_000


def written(path: Path, content: bytes, at_s: float = LONG_AGO) -> Path:
    path.write_bytes(content)
    os.utime(path, (at_s, at_s))
    return path


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read through, each as often as it was."""
    read: list[Path] = []
    measure = Outgoing.measure

    def counted(path: Path, name: str | None = None) -> Outgoing:
        read.append(path)
        return measure(path, name)

    monkeypatch.setattr(Outgoing, "measure", counted)
    return read


def test_a_listener_reads_a_file_once_for_all_its_sends(tmp_path: Path, read: list[Path]) -> None:
    path = written(tmp_path / "a", b"some bytes")
    digest = hashlib.sha256(b"some bytes").digest()
    names = ["first", "second", "third"]
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(listener.address, "one", CODEC, files=tmp_path / "in") as connector,
    ):
        await_event(listener, Joined)
        connector.expect([ExpectedFile(name, 10, digest) for name in names])
        for name in names:
            listener.send_file("one", path, name)
        assert sorted(await_event(listener, FileSent).name for _ in names) == sorted(names)
    assert read == [path]


def test_the_measure_of_an_unchanged_file_has_each_name(tmp_path: Path, read: list[Path]) -> None:
    path, measured = written(tmp_path / "a", b"some bytes"), Measured()
    digest = hashlib.sha256(b"some bytes").digest()
    for name in ("b", None, "c"):
        assert measured.measure(path, name) == Outgoing(path, name or "a", 10, digest)
    assert read == [path]
    with pytest.raises(TransferError, match="file name"):
        measured.measure(path, "../up")


@pytest.mark.parametrize("content", [b"other", b"of another size"])
def test_a_file_that_was_written_or_replaced_is_read_again(tmp_path: Path, content: bytes) -> None:
    path, measured = written(tmp_path / "a", b"bytes"), Measured()
    measured.measure(path)
    written(path, content, LONG_AGO + 1)
    assert measured.measure(path).sha256 == hashlib.sha256(content).digest()
    written(tmp_path / "new", b"third").replace(path)
    assert measured.measure(path).sha256 == hashlib.sha256(b"third").digest()
    path.unlink()
    with pytest.raises(TransferError, match="No such file"):
        measured.measure(path)


def test_a_file_that_was_written_just_now_is_not_taken_for_unchanged(
    tmp_path: Path, read: list[Path]
) -> None:
    """Its next content might come with the same time."""
    path, measured = written(tmp_path / "a", b"bytes", time.time() + 3600), Measured()
    for _ in range(2):
        measured.measure(path)
    assert read == [path, path]


def test_not_more_measures_are_remembered_than_is_allowed(tmp_path: Path) -> None:
    measured = Measured()
    for number in range(MOST_FILES + 3):
        measured.measure(written(tmp_path / str(number), b"x"))
    assert len(measured._known) == MOST_FILES
    assert tmp_path / "2" not in measured._known
