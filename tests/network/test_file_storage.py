"""Files on disk: those being received, and measured files to send."""

import hashlib
import os
import stat
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.network import ExpectedFile, FileSent, TransferError
from layers.network.errors import NotWanted
from layers.network.files import (
    MOST_FILES,
    Incoming,
    Measured,
    Outgoing,
    check_name,
    remove_unfinished,
)
from tests.network.wire_messages import await_event, joined


@given(st.text(max_size=30))
def test_an_accepted_name_stays_in_its_folder(name: str) -> None:
    try:
        accepted = check_name(name)
    except TransferError:
        return
    assert Path("/folder", accepted).parent == Path("/folder")
    assert accepted == name


@given(st.binary(max_size=300), st.lists(st.integers(1, 300), max_size=8))
def test_any_cuts_of_a_file_give_the_same_file(content: bytes, sizes: list[int]) -> None:
    """Every attempt writes some bytes; the last one completes the file."""
    digest = hashlib.sha256(content).digest()
    with tempfile.TemporaryDirectory() as name:
        folder, complete = Path(name), False
        for size in [*sizes, len(content)]:
            incoming = Incoming(folder, "f", len(content), digest)
            offset, prefix = incoming.resume()
            assert prefix == hashlib.sha256(content[:offset]).digest()
            complete = incoming.begin(offset)
            if not complete:
                complete = incoming.write(memoryview(content[offset : offset + size]))
            if complete:
                assert incoming.finish()
                break
            incoming.close()
        assert complete
        assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("f", content)]


def a_file_begun(folder: Path, content: bytes) -> Incoming:
    incoming = Incoming(folder, "f", len(content), hashlib.sha256(content).digest())
    assert incoming.resume() == (0, hashlib.sha256().digest())
    assert not incoming.begin(0)
    return incoming


@pytest.mark.parametrize("before", [0, 1, 9, 10])
def test_bytes_beyond_the_announced_size_are_not_written(tmp_path: Path, before: int) -> None:
    content = b"0123456789"
    incoming = a_file_begun(tmp_path, content)
    assert incoming.write(memoryview(content[:before])) is (before == 10)
    with pytest.raises(TransferError, match="unexpected bytes"):
        incoming.write(memoryview(content[before:] + b"x"))
    assert (tmp_path / "f.part").read_bytes() == content[:before]
    if before < 10:  # exactly the missing bytes
        assert incoming.write(memoryview(content[before:]))
    assert incoming.finish()
    assert (tmp_path / "f").read_bytes() == content


def test_a_file_is_written_only_after_its_start(tmp_path: Path) -> None:
    content = b"0123456789"
    incoming = Incoming(tmp_path, "f", 10, hashlib.sha256(content).digest())
    with pytest.raises(TransferError, match="unexpected bytes"):
        incoming.write(memoryview(content))
    with pytest.raises(TransferError, match="start at 0"):
        incoming.begin(0)
    incoming.resume()
    with pytest.raises(TransferError, match="unexpected bytes"):
        incoming.write(memoryview(content))
    with pytest.raises(TransferError, match="start at 3"):
        incoming.begin(3)
    assert not incoming.begin(0)
    with pytest.raises(TransferError, match="start at 0"):
        incoming.begin(0)
    incoming.write(memoryview(content[:4]))
    incoming.close()
    again = Incoming(tmp_path, "f", 10, hashlib.sha256(content).digest())
    assert again.resume() == (4, hashlib.sha256(content[:4]).digest())
    with pytest.raises(TransferError, match="start at 5"):
        again.begin(5)
    assert not again.begin(4)
    assert again.write(memoryview(content[4:]))
    assert again.finish()


def test_a_file_that_has_no_room_on_disk_is_refused_before_it_is_asked(tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(b"0123")
    incoming = Incoming(tmp_path, "f", 4 + (1 << 62), bytes(32))
    words = rf"{tmp_path}/f needs {1 << 62} more bytes, the disk has \d+ free"
    with pytest.raises(TransferError, match=words):
        incoming.resume()
    with pytest.raises(TransferError, match="unexpected start at 4"):
        incoming.begin(4)
    assert (tmp_path / "f.part").read_bytes() == b"0123"


def test_a_file_to_send_starts_where_the_receiver_has_the_same_bytes(tmp_path: Path) -> None:
    content = b"0123456789"
    path = tmp_path / "f"
    path.write_bytes(content)
    outgoing = Outgoing.measure(path, "another name")
    assert outgoing == Outgoing(path, "another name", 10, hashlib.sha256(content).digest())
    assert Outgoing.measure(path).name == "f"
    for offset in range(11):
        assert outgoing.start(offset, hashlib.sha256(content[:offset]).digest()) == offset
        assert outgoing.start(offset, hashlib.sha256(b"x").digest()) == 0
    assert outgoing.start(11, outgoing.sha256) == 0
    assert outgoing.start(-1, hashlib.sha256(b"").digest()) == 0
    with pytest.raises(NotWanted):
        outgoing.start(10, outgoing.sha256, lambda: False)
    assert [outgoing.read(*place) for place in ((0, 10), (3, 2), (10, 0))] == [content, b"34", b""]
    with pytest.raises(TransferError, match="f became shorter"):
        outgoing.read(8, 3)


def test_a_file_is_stored_if_it_has_the_size_and_the_digest(tmp_path: Path) -> None:
    content = b"0123456789"
    digest = hashlib.sha256(content).digest()
    incoming = Incoming(tmp_path, "f", 10, digest)
    assert not incoming.is_stored()
    for there, stored in ((content, True), (content[::-1], False), (content + b"x", False)):
        (tmp_path / "f").write_bytes(there)
        assert incoming.is_stored() is stored
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(NotWanted):
        Incoming(tmp_path, "f", 10, digest, lambda: False).is_stored()
    (tmp_path / "f").unlink()
    incoming.resume()
    assert stat.S_IMODE((tmp_path / "f.part").stat().st_mode) == 0o600
    with pytest.raises(TransferError, match="f cannot be written"):
        Incoming(tmp_path, "f", 10, digest).resume()  # it is being received
    incoming.discard()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("letter", ["a", "é", "火"])
def test_a_name_has_200_bytes_at_most(letter: str) -> None:
    most = 200 // len(letter.encode())
    assert check_name(letter * most) == letter * most
    with pytest.raises(TransferError, match="at most 200 bytes"):
        check_name(letter * (most + 1))


def test_an_unfinished_file_is_removed_unless_it_is_being_received(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path, "f", 3, bytes(32))
    incoming.resume()
    remove_unfinished(tmp_path / "f")
    assert (tmp_path / "f.part").exists()
    with pytest.raises(TransferError, match="cannot be written"):
        Incoming(tmp_path, "f", 3, bytes(32)).resume()
    incoming.close()
    remove_unfinished(tmp_path / "f")
    assert list(tmp_path.iterdir()) == []
    remove_unfinished(tmp_path / "f")


LONG_AGO = 1_000_000_000


def written(path: Path, content: bytes, at_s: float = LONG_AGO) -> Path:
    path.write_bytes(content)
    os.utime(path, (at_s, at_s))
    return path


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read for their SHA-256, once per read."""
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
    with joined("one", into=tmp_path / "in") as (listener, connector):
        connector.expect([ExpectedFile(name, 10, digest) for name in names])
        for name in names:
            listener.send_file("one", path, name)
        assert sorted(await_event(listener, FileSent).name for _ in names) == sorted(names)
    assert read == [path]


@pytest.mark.parametrize("content", [b"other", b"of another size"])
def test_a_changed_file_is_read_again(tmp_path: Path, content: bytes) -> None:
    path, measured = written(tmp_path / "a", b"bytes"), Measured()
    measured.measure(path)
    written(path, content, LONG_AGO + 1)
    assert measured.measure(path).sha256 == hashlib.sha256(content).digest()
    written(tmp_path / "new", b"third").replace(path)
    assert measured.measure(path).sha256 == hashlib.sha256(b"third").digest()
    path.unlink()
    with pytest.raises(TransferError, match="No such file"):
        measured.measure(path)


def test_a_recently_written_file_is_read_again(tmp_path: Path, read: list[Path]) -> None:
    """Its next content might have the same timestamp."""
    path, measured = written(tmp_path / "a", b"bytes", time.time() + 3600), Measured()
    for _ in range(2):
        measured.measure(path)
    assert read == [path, path]


def test_the_number_of_remembered_files_is_limited(tmp_path: Path) -> None:
    measured = Measured()
    for number in range(MOST_FILES + 3):
        measured.measure(written(tmp_path / str(number), b"x"))
    assert len(measured._known) == MOST_FILES
    assert tmp_path / "2" not in measured._known
