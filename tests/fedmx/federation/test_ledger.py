"""The ledger of a federation: no line is lost or changed unnoticed, in one file or in several."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fedmx.federation import ledger as module
from fedmx.federation.ledger import Ledger
from fedmx.run.durable import DamagedError, RunError


def test_a_changed_line_of_the_ledger_is_named(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for number in range(3):
        ledger.add("anna", "submit", job=f"{number}", name="x", digest="", asked=[])
    ledger.add("server", "end", job="1", state="done", reason="")
    path = tmp_path / "ledger.jsonl"
    assert Ledger(tmp_path).jobs["1"].state == "done"
    lines = path.read_text().splitlines(keepends=True)
    for damage in (
        [lines[0], lines[2], lines[3]],
        [lines[0], lines[2], lines[1], lines[3]],
        [lines[0], lines[1].replace("anna", "otto"), *lines[2:]],
    ):
        path.write_text("".join(damage))
        with pytest.raises(DamagedError, match="line 2"):
            Ledger(tmp_path)


@pytest.mark.parametrize(
    ("tail", "jobs"),
    [(b'{"time": "2026', 3), (b"\0" * 4096, 3), (b"", 3)],
    ids=["torn", "zeros", "whole"],
)
def test_a_power_cut_costs_no_line_that_was_told(tmp_path: Path, tail: bytes, jobs: int) -> None:
    ledger = Ledger(tmp_path)
    for number in range(jobs):
        ledger.add("anna", "submit", job=f"{number}", name="x", digest="", asked=[])
    path = tmp_path / "ledger.jsonl"
    with path.open("ab") as file:
        file.write(tail)
    again = Ledger(tmp_path)
    assert [*again.jobs] == ["0", "1", "2"]
    again.add("anna", "submit", job="3", name="x", digest="", asked=[])
    assert [*Ledger(tmp_path).jobs] == ["0", "1", "2", "3"]
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert len(Ledger(tmp_path).jobs) == 4
    path.write_bytes(b"")
    assert not Ledger(tmp_path).jobs


def test_a_line_that_does_not_reach_the_disk_is_not_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path)
    ledger.add("anna", "submit", job="0", name="x", digest="", asked=[])
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", _no_space)
        with pytest.raises(RunError, match="space"):
            ledger.add("anna", "submit", job="1", name="x", digest="", asked=[])
    ledger.add("anna", "submit", job="2", name="x", digest="", asked=[])
    assert [*Ledger(tmp_path).jobs] == ["0", "2"]


def _no_space(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def rotated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A ledger of three files: 000001 is done, 000002 runs, 000003 waits, and ulm is removed."""
    monkeypatch.setattr(module, "MOST_LINES", 3)
    ledger = Ledger(folder)
    ledger.add("anna", "remove", site="ulm", reason="by anna")
    for job in ("000001", "000002", "000003"):
        ledger.add("anna", "submit", job=job, name="x", digest="", asked=["bonn"])
    for job in ("000001", "000002"):
        ledger.add("server", "begin", job=job, sites=["bonn"], shared=False)
    ledger.add("server", "end", job="000001", state="done", reason="")
    assert len([*folder.glob("ledger*.jsonl")]) == 3
    return ledger


@pytest.mark.parametrize("kept", [3, 2, 1])
def test_a_long_ledger_goes_on_in_new_files_also_if_old_ones_are_moved_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    ledger = rotated(tmp_path, monkeypatch)
    for path in sorted(tmp_path.glob("ledger-*.jsonl"))[: 3 - kept]:
        path.unlink()
    again = Ledger(tmp_path)
    assert again.open == ledger.open
    assert (again.removed, again.number, again.next_id()) == ({"ulm": "by anna"}, 3, "000004")
    assert again.open["000002"].state == "running"
    again.add("server", "end", job="000002", state="done", reason="")
    assert [*Ledger(tmp_path).open] == ["000003"]


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("good", range(6))
def test_a_disk_that_is_full_while_a_file_is_put_aside_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: int, killed: bool
) -> None:
    ledger = rotated(tmp_path, monkeypatch)
    done: list[int] = []

    def fsync(descriptor: int) -> None:
        if len(done) == good:
            _no_space(descriptor)
        done.append(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        with pytest.raises(RunError, match="space"):
            ledger.add("anna", "submit", job="000004", name="x", digest="", asked=[])
    for path in tmp_path.glob("ledger-*.jsonl"):
        path.rename(tmp_path / f"away-{path.name}")
    if killed:
        ledger = Ledger(tmp_path)
    assert ([*ledger.open], ledger.number) == (["000002", "000003"], 3)
    ledger.add("anna", "remove", site="bonn", reason="by anna")
    assert Ledger(tmp_path).removed.keys() == {"bonn", "ulm"}
    ledger.add("anna", "add", site="bonn")
    assert Ledger(tmp_path).open == ledger.open
    ledger.add("anna", "add", site="ulm")
    newest = max(path.name for path in tmp_path.glob("*ledger-*"))
    assert newest.endswith("000004.jsonl")


def test_a_folder_with_jobs_and_without_its_ledger_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotated(tmp_path, monkeypatch)
    (tmp_path / "ledger.jsonl").unlink()
    with pytest.raises(DamagedError, match=r"ledger\.jsonl"):
        Ledger(tmp_path)
    for path in tmp_path.glob("ledger-*.jsonl"):
        path.unlink()
    (tmp_path / "jobs" / "000001").mkdir(parents=True)
    with pytest.raises(DamagedError, match=r"ledger\.jsonl"):
        Ledger(tmp_path)


@pytest.mark.parametrize("file", ["ledger-000001.jsonl", "ledger-000002.jsonl", "ledger.jsonl"])
def test_a_changed_line_is_named_in_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    rotated(tmp_path, monkeypatch)
    lines = (tmp_path / file).read_text().splitlines(keepends=True)
    (tmp_path / file).write_text("".join([lines[0], *lines[2:]]))
    with pytest.raises(DamagedError, match=r"jsonl: line"):
        Ledger(tmp_path)
    (tmp_path / file).write_text("".join(lines))
    if file == "ledger-000002.jsonl":  # a gap between files
        (tmp_path / file).unlink()
        with pytest.raises(DamagedError, match=r"ledger\.jsonl: line 1 "):
            Ledger(tmp_path)
