"""What is kept of a file that comes in, without a network."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.network import TransferError
from layers.network.files import Incoming, check_name, remove_unfinished


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
    """Every attempt writes some more and stops; the last is complete."""
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
def test_bytes_beyond_a_files_announced_size_are_refused_and_not_written(
    tmp_path: Path, before: int
) -> None:
    content = b"0123456789"
    incoming = a_file_begun(tmp_path, content)
    assert incoming.write(memoryview(content[:before])) is (before == 10)
    with pytest.raises(TransferError, match="bytes that were not expected"):
        incoming.write(memoryview(content[before:] + b"x"))
    assert (tmp_path / "f.part").read_bytes() == content[:before]
    if before < 10:  # the nearest that may come
        assert incoming.write(memoryview(content[before:]))
    assert incoming.finish()
    assert (tmp_path / "f").read_bytes() == content


def test_a_file_is_written_after_it_was_started_and_not_twice(tmp_path: Path) -> None:
    content = b"0123456789"
    incoming = Incoming(tmp_path, "f", 10, hashlib.sha256(content).digest())
    with pytest.raises(TransferError, match="bytes that were not expected"):
        incoming.write(memoryview(content))
    with pytest.raises(TransferError, match="not where it stopped"):
        incoming.begin(0)
    incoming.resume()
    with pytest.raises(TransferError, match="bytes that were not expected"):
        incoming.write(memoryview(content))
    with pytest.raises(TransferError, match="started at 3, not where it stopped"):
        incoming.begin(3)
    assert not incoming.begin(0)
    with pytest.raises(TransferError, match="not where it stopped"):
        incoming.begin(0)
    incoming.write(memoryview(content[:4]))
    incoming.close()
    again = Incoming(tmp_path, "f", 10, hashlib.sha256(content).digest())
    assert again.resume() == (4, hashlib.sha256(content[:4]).digest())
    with pytest.raises(TransferError, match="started at 5, not where it stopped"):
        again.begin(5)
    assert not again.begin(4)
    assert again.write(memoryview(content[4:]))
    assert again.finish()


def test_a_file_whose_digest_is_wrong_is_emptied_and_may_be_sent_once_more(tmp_path: Path) -> None:
    content = b"0123456789"
    incoming = a_file_begun(tmp_path, content)
    assert incoming.write(memoryview(content[::-1]))
    assert not incoming.finish()
    assert (tmp_path / "f.part").read_bytes() == b""
    assert not (tmp_path / "f").exists()
    assert not incoming.begin(0)
    assert incoming.write(memoryview(content))
    assert incoming.finish()
    assert (tmp_path / "f").read_bytes() == content


def test_an_unfinished_file_is_removed_unless_somebody_receives_it(tmp_path: Path) -> None:
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
