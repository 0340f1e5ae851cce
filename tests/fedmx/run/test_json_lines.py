"""A file of records grows by whole lines, whatever becomes of the process or the disk."""

from __future__ import annotations

import errno
import json
import os
import zlib
from pathlib import Path

import numpy as np
import pytest

from fedmx.run import CheckpointError, RunError
from fedmx.run.checkpoint import write_checkpoint
from fedmx.run.identity import write_ending
from fedmx.run.records import JsonLines, plain


def open_files() -> list[str]:
    return [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]


@pytest.fixture
def records(tmp_path: Path) -> JsonLines:
    records = JsonLines(tmp_path / "rounds.jsonl")
    records.append([{"round": 1}, {"round": 2}])
    return records


def test_a_disk_that_is_full_in_the_middle_of_a_line_leaves_the_file_as_it_was(
    records: JsonLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = records.path.read_bytes()
    write, room = os.pwrite, [7]

    def until_full(descriptor: int, data, offset: int) -> int:
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[: room.pop()], offset)

    monkeypatch.setattr(os, "pwrite", until_full)
    with pytest.raises(RunError, match=r"cannot write .No space left on device.; free disk space"):
        records.append([{"round": 3}, {"round": 4}])
    assert records.path.read_bytes() == before
    assert str(records.path) not in open_files()
    monkeypatch.undo()
    records.append([{"round": 3}])
    assert [record["round"] for record in records.read()] == [1, 2, 3]


def test_disk_space_is_spoken_of_only_where_it_is_too_little(tmp_path: Path) -> None:
    (tmp_path / "rounds.jsonl").mkdir()
    with pytest.raises(RunError, match=r"rounds.jsonl: cannot write \(Is a directory\)$"):
        JsonLines(tmp_path / "rounds.jsonl").append([{"round": 1}])
    (tmp_path / "status.json").mkdir()
    with pytest.raises(RunError, match=r": cannot write \(Is a directory\)$"):
        write_ending(tmp_path / "status.json", "done", "", {})
    with pytest.raises(CheckpointError, match=r"is unchanged; resume the run$"):
        write_checkpoint(tmp_path / "gone" / "round-000001.safetensors", 1, {})


def test_a_write_that_takes_part_of_the_bytes_goes_on_with_the_rest(
    records: JsonLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: write(file, data[:5], at))
    records.append([{"round": 3, "text": "x" * 40}])
    assert list(records.read())[2] == {"round": 3, "text": "x" * 40}


def test_no_file_stays_open(records: JsonLines) -> None:
    records.append([{"round": 3}])
    assert len(list(records.read())) == 3
    records.keep(lambda record: record["round"] < 3)
    records.sync()
    assert str(records.path) not in open_files()


@pytest.mark.parametrize("left", [b"{", b'{"round": 3}', b"x" * 5000, b"x" * 4096, b"x" * 4095])
def test_an_unfinished_line_is_unread_and_written_over(records: JsonLines, left: bytes) -> None:
    with records.path.open("ab") as file:
        file.write(left)
    assert [record["round"] for record in records.read()] == [1, 2]
    records.append([{"round": 3}])
    assert records.path.read_bytes().count(b"\n") == 3
    assert [record["round"] for record in records.read()] == [1, 2, 3]


def test_a_file_of_one_unfinished_line_begins_anew(tmp_path: Path) -> None:
    records = JsonLines(tmp_path / "rounds.jsonl")
    records.path.write_bytes(b"x" * 9000)
    assert list(records.read()) == []
    records.append([{"round": 1}])
    checksum = zlib.crc32(b'{"round":1}')
    assert records.path.read_text() == f'{{"round": 1, "checksum": "{checksum:08x}"}}\n'


def test_a_damaged_line_is_named_by_its_number_and_the_others_are_read(records: JsonLines) -> None:
    whole = records.path.read_bytes()
    with records.path.open("ab") as file:
        file.write(b'{"round": 3}\nnonsense\n[1]\n' + whole)
    assert [record["round"] for record in records.read()] == [1, 2, 1, 2]
    assert list(records.damaged) == [3, 4, 5]


def test_the_records_with_a_value_are_read_and_the_other_lines_are_not_checked(
    records: JsonLines,
) -> None:
    records.append([{"round": 12}, {"client": 1, "round": 1}, {"client": {"round": 1}}])
    damage = records.path.read_bytes().replace(b'{"round": 2,', b'{"round": 3,')
    records.path.write_bytes(damage)
    assert list(records.read("round", 1)) == [{"round": 1}, {"client": 1, "round": 1}]
    assert not records.damaged
    assert list(records.read("round", 3)) == []
    assert list(records.damaged) == [2]


def test_values_are_written_as_strict_json_holds_them() -> None:
    given = {1: np.float32(0.5), "a": np.arange(2), "b": (float("nan"), np.inf, True, None)}
    assert json.dumps(plain(given, "x")) == '{"1": 0.5, "a": [0, 1], "b": [null, null, true, null]}'
    for wrong in (b"bytes", {1}, object()):
        with pytest.raises(RunError, match=r"x: field: .* cannot be written as JSON"):
            plain({"field": wrong}, "x")


@pytest.mark.parametrize("encoding", ["utf-16-be", "utf-32-be"])
def test_records_in_another_encoding_are_damaged_and_no_encoding_is_guessed(
    records: JsonLines, encoding: str
) -> None:
    records.path.write_bytes(records.path.read_text().encode(encoding))
    assert list(records.read()) == []
    assert list(records.damaged) == [1, 2]


def test_a_record_that_is_nested_without_end_is_damaged(tmp_path: Path) -> None:
    records = JsonLines(tmp_path / "rounds.jsonl")
    records.path.write_bytes(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n")
    assert list(records.read()) == []
    assert list(records.damaged) == [1]
