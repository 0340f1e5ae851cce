"""The run folder keeps what happened, whole, and says plainly when it cannot."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from fedmx import RunFolder
from fedmx.client.participant import ClientMemory
from fedmx.monitoring.monitor import LiveFile
from fedmx.run import RunError, export_weights, gather_facts
from fedmx.run.checkpoint import Keep
from fedmx.run.durable import write_document, write_text_durably
from fedmx.run.events import EventLog
from fedmx.run.identity import new_folder
from fedmx.run.records import JsonLines, plain
from fedmx.run.secret_file import kept_key
from layers.logic import ClientLedger, ClientState
from tests.fedmx.command_line import copied

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "digits", "name: digits\n", {"seed": 1})


def test_a_run_folder_opens_as_it_was_created(tmp_path: Path) -> None:
    facts = gather_facts(seed=3, mode="simulation", digest="abc", engine="mxnet", portable=False)
    made = RunFolder.create(tmp_path / "a" / "runs", "digits", "seed: 3\n", facts)
    opened = RunFolder.open(made.path)
    assert (opened.experiment_yaml, opened.facts) == ("seed: 3\n", made.facts)
    assert facts.items() <= opened.facts.items()
    assert opened.facts["numpy"] == np.__version__
    assert opened.facts["started"]
    assert opened.rounds() == []
    assert list(opened.clients()) == []
    assert opened.latest_checkpoint() is None


def test_two_runs_never_share_a_folder(tmp_path: Path) -> None:
    paths = {RunFolder.create(tmp_path, "x", "", {}).path for _ in range(4)}
    assert len(paths) == 4
    assert all(re.fullmatch(r"x-\d{8}-\d{6}(-\d)?", path.name) for path in paths)


def test_a_run_takes_no_name_that_is_taken_not_even_one_taken_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(path: Path) -> None:
        (path / "mine").touch()

    def rename(old: Path, new: Path) -> Path:
        if new == late:
            (late / "another's").mkdir(parents=True)
        return renamed(old, new)

    names = [f"x-20260131-120000{number}" for number in ("", "-2", "-3", "-4")]
    empty, file, late, free = (tmp_path / name for name in names)
    empty.mkdir()
    file.touch()
    renamed = Path.rename
    monkeypatch.setattr(Path, "rename", rename)
    assert new_folder(tmp_path, "x", "20260131-120000", fill) == free
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert sorted(path.name for path in tmp_path.glob("*/*")) == ["another's", "mine"]


def test_an_interruption_leaves_a_whole_run_folder_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a fork, too: its folder has records and a checkpoint before it is a run."""

    def fill(made: RunFolder) -> None:
        made.append_round({"round": 1})
        made.save_checkpoint(1, {})
        assert not list(made.path.parent.glob("half-*")), "a kill would leave it under its name"

    def fsync(descriptor: int) -> None:
        if next(steps) == last:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", fsync)
    left = []
    for last in range(100):
        parent, steps = tmp_path / str(last), itertools.count()
        try:
            RunFolder.create(parent, "half", "", {}, {"words.json": b"[]"}, fill)
        except KeyboardInterrupt:
            left.append([RunFolder.open(path).rounds() for path in parent.iterdir()])
        else:
            break
    *before, renamed = left
    assert len(before) > 5
    assert not any(before)
    assert renamed == [[{"round": 1}]]


@settings(deadline=None)
@given(name=st.text(max_size=300))
def test_no_name_leaves_the_folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    parent = tmp_path_factory.mktemp("runs")
    made = RunFolder.create(parent, name, "", {}).path
    assert made.parent == parent
    assert list(parent.iterdir()) == [made]
    assert not made.name.startswith((".", "-"))


def test_what_is_no_run_is_refused_in_a_line_with_why(tmp_path: Path, folder: RunFolder) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    broken = RunFolder.create(tmp_path, "broken", "", {}).path
    (broken / "run.json").write_text("{")
    foreign = RunFolder.create(tmp_path, "foreign", "", {}).path
    (foreign / "run.json").write_text("[1]")
    newer = RunFolder.create(tmp_path, "newer", "", {}).path
    (newer / "run.json").write_text('{"format": 99, "facts": {}}')
    bare = RunFolder.create(tmp_path, "bare", "", {}).path
    (bare / "experiment.yaml").unlink()
    kept = RunFolder.create(tmp_path, "kept", "", {})
    (kept.path / "run.json").unlink()
    for path, reason in {
        kept.path: "run.json is missing; restore it from a copy",
        tmp_path / "nowhere": "there is no such folder",
        folder.path / "run.json": "is a file",
        empty: "not a run folder",
        tmp_path: "are in it",
        broken: "run.json:1: damaged",
        foreign: "not written by fedmx",
        newer: "format 99",
        bare: r"No such file or directory\); restore it from a copy, or start a new run$",
    }.items():
        with pytest.raises(RunError, match=reason) as caught:
            RunFolder.open(path)
        assert str(caught.value).count(str(path)) == 1
        assert "\n" not in str(caught.value)


def test_records_are_strict_json_and_come_back(folder: RunFolder) -> None:
    record = {"round": 1, "loss": float("nan"), "rate": np.float32(0.5), "participants": (1, 2)}
    folder.append_round(record)
    folder.append_clients([{"round": 1, "client": np.int64(7)}, {"round": 2, "client": 8}])
    line = (folder.path / "rounds.jsonl").read_text()
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert folder.rounds() == [{"round": 1, "loss": None, "rate": 0.5, "participants": [1, 2]}]
    assert list(folder.clients(2)) == [{"round": 2, "client": 8}]
    assert len(list(folder.clients())) == 2


def test_a_record_that_json_does_not_know_adds_nothing(folder: RunFolder) -> None:
    with pytest.raises(RunError, match="secret"):
        folder.append_clients([{"round": 1}, {"round": 1, "secret": object()}])
    assert list(folder.clients()) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(deadline=None)
@given(values=st.lists(json_values, max_size=4), torn=st.binary(max_size=30))
def test_every_record_survives_a_line_that_was_cut(
    tmp_path_factory: pytest.TempPathFactory, values: list[object], torn: bytes
) -> None:
    lines = JsonLines(tmp_path_factory.mktemp("lines") / "x.jsonl")
    records = [{"value": value} for value in values]
    lines.append(records)
    with open(lines.path, "ab") as file:
        file.write(torn.replace(b"\n", b""))
    assert list(lines.read()) == plain(records, "")
    lines.append([{"value": "after"}])
    assert list(lines.read()) == [*plain(records, ""), {"value": "after"}]


def test_resuming_forgets_what_came_after_the_checkpoint(folder: RunFolder) -> None:
    for number in (1, 2, 3):
        folder.append_round({"round": number})
        folder.append_clients([{"round": number, "client": 0}, {"round": number, "client": 1}])
        folder.save_checkpoint(number, {"round": number}, keep=Keep(3))
    with open(folder.path / "rounds.jsonl", "ab") as file:
        file.write(b'{"round": 4, "acc')
    folder.finish("interrupted", "Ctrl-C")
    folder.truncate_after(2)
    assert [record["round"] for record in folder.rounds()] == [1, 2]
    assert [record["round"] for record in folder.clients()] == [1, 1, 2, 2]
    assert len((folder.path / "rounds.jsonl").read_bytes().splitlines()) == 2
    assert folder.latest_checkpoint().round == 2
    with folder.lock():
        assert folder.status == "running"


def test_a_full_disk_leaves_whole_lines_and_says_so(folder: RunFolder) -> None:
    result = copied(
        """
import resource, sys
from fedmx.run import RunError, RunFolder
folder = RunFolder.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    for number in range(100):
        folder.append_round({"round": number, "text": "x" * 100})
except RunError as error:
    print(number, error)
""",
        folder.path,
        cwd=ROOT,
    )
    number, _, message = result.out.partition(" ")
    assert "rounds.jsonl: cannot write (File too large); free disk space" in message, result.err
    assert [record["round"] for record in folder.rounds()] == list(range(int(number)))
    assert (folder.path / "rounds.jsonl").read_bytes().endswith(b"}\n")


def test_a_second_process_is_refused_by_the_pid_of_the_first(folder: RunFolder) -> None:
    code = """
import sys
import time
from fedmx.run import RunError, RunFolder
try:
    with RunFolder.open(sys.argv[1]).lock():
        print("locked")
except RunError as error:
    print(error)
"""
    with folder.lock():
        assert f"in use by process {os.getpid()};" in copied(code, folder.path, cwd=ROOT).out
        with pytest.raises(RunError, match=str(os.getpid())), folder.lock():
            pytest.fail("the same process locked twice")
        assert "in use" in copied(code, folder.path, cwd=ROOT).out
    assert copied(code, folder.path, cwd=ROOT).out == "locked\n"


def test_a_killed_process_gives_up_the_lock_though_its_worker_lives(folder: RunFolder) -> None:
    code = """
import os, signal, sys
from fedmx.run import RunFolder
with RunFolder.open(sys.argv[1]).lock():
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        sys.stdin.read()  # until the test closes the pipe
        os._exit(0)
    signal.pause()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder.path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        worker = int(process.stdout.readline())
        with pytest.raises(RunError, match=f"process {process.pid}"), folder.lock():
            pytest.fail("locked twice")
        process.send_signal(signal.SIGKILL)
        process.wait()
        os.kill(worker, 0)
        assert folder.status == "interrupted"
        with folder.lock():
            assert folder.status == "running"
        process.stdin.close()


def test_a_killed_run_is_not_taken_for_the_process_with_its_number_now(folder: RunFolder) -> None:
    lock = folder.path / "lock"
    lock.write_text(f"{2**62}\n")  # of a larger number, by a killed process
    with folder.lock():
        assert lock.read_text() == f"{os.getpid()}\n"
    lock.write_text(f"{os.getpid()}\n")  # as a killed process leaves it
    assert folder.process is None
    assert folder.status == "interrupted"


def test_whoever_asks_for_the_process_is_not_in_its_way(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with folder.lock():
        (lock,) = (path for path in folder.path.iterdir() if "lock" in path.name)
    asking = os.open(lock, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda _: os.close(asking))  # it ends while one waits
    with folder.lock():
        assert folder.process == os.getpid()


def test_exported_weights_come_back_and_fit_only_their_layout(tmp_path: Path) -> None:
    layout = [("dense.weight", (3, 2)), ("dense.bias", (3,)), ("scale", ()), ("none", (0, 4))]
    vector = np.linspace(-1, 1, 10, dtype=np.float32)
    path = tmp_path / "model.safetensors"
    export_weights(path, layout, vector)
    first = path.read_bytes()
    export_weights(path, layout, vector)
    assert path.read_bytes() == first
    tensors = load_file(path)
    assert {name: tensor.shape for name, tensor in tensors.items()} == dict(layout)
    written = np.concatenate([tensors[name].reshape(-1) for name, _ in layout])
    assert written.dtype == np.float32
    np.testing.assert_array_equal(written, vector)
    with pytest.raises(RunError, match="the layout has 10 numbers"):
        export_weights(path, layout, vector[:-1])
    with pytest.raises(RunError, match="'a' twice"):
        export_weights(path, [("a", (5,)), ("a", (5,))], vector)
    assert path.read_bytes() == first


def test_a_recorded_reason_is_told_however_the_run_ended(folder: RunFolder) -> None:
    assert (folder.status, folder.reason) == ("interrupted", "its process ended before the run did")
    for status in ("done", "stopped", "interrupted", "failed"):
        folder.finish(status, f"because\n of {status}")
        again = RunFolder.open(folder.path)
        assert (again.status, again.reason) == (status, f"because of {status}")
        folder.finish(status)
        assert folder.reason == ""
    with pytest.raises(RunError, match="unknown ending 'dead'; there are: done"):
        folder.finish("dead")  # type: ignore[arg-type]
    write_document(
        folder.path / "status.json",
        {"status": "failed", "reason": "a\nstate: done\r\nb\x85c", "ended": "", "files": {}},
    )
    assert folder.reason == "a state: done b c"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EIO, "Input/output"), r"cannot lock the run folder \(Input/output\)"),
        (OSError(errno.EROFS, "Read-only"), r"folder \(Read-only\); make it writable"),
        (BlockingIOError(), r"in use by process \(unknown\);"),
    ],
    ids=["broken", "read-only", "locked"],
)
def test_a_folder_that_cannot_be_locked_is_named_and_no_file_stays_open(
    error: OSError, said: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int, operation: int) -> None:
        raise error

    before = sorted(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(RunError, match=said):
        folder.lock().__enter__()
    assert sorted(os.listdir("/proc/self/fd")) == before


def a_folder(path: Path) -> None:
    """Put a folder where a file was."""
    path.unlink(missing_ok=True)
    path.mkdir()


def a_file(path: Path) -> None:
    """Put a file where a folder was."""
    path.rmdir()
    path.touch()


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)


def salvaged(run: RunFolder) -> None:
    (damage,) = RunFolder.open(run.path, salvage=True).damage
    raise RunError(damage)


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def opened(run: RunFolder) -> object:
    return RunFolder.open(run.path)


OTHER = '{"format": 4, "facts": [], "files": {}}'
Act = Callable[[Any], object]
TROUBLES: list[tuple[str, Callable[[Path], object], Act, str]] = [
    ("run.json", a_folder, opened, "cannot read it (Is a directory); restore the file"),
    ("run.json", text("[" * 100_000), salvaged, "damaged (maximum recursion depth exceeded"),
    ("run.json", text(OTHER), opened, "not written by fedmx; restore the file"),
    ("status.json", a_folder, lambda run: run.finish("done"), "cannot write"),
    ("run.json", a_folder, lambda run: run.note_resumed(["python 3.12"]), "cannot write (Is a"),
    ("model.safetensors", Path.unlink, lambda run: run.check(run.model_path), "cannot read it (No"),
    ("rounds.jsonl", a_folder, lambda run: run.rounds(), "cannot read (Is a directory)"),
    ("clients.jsonl", a_folder, lambda run: run.append_clients([{}]), "cannot write (Is a direc"),
    ("checkpoints", a_file, lambda run: run.save_checkpoint(1, {}), "cannot write (File exists)"),
    (
        "checkpoints/round-000002.safetensors",
        a_folder,
        lambda run: run.truncate_after(1),
        "cannot remove (",
    ),
    ("secret.key", a_folder, lambda run: run.draw_secret(), "cannot read the secret of the run ("),
    ("secret.key", flipped, lambda run: run.draw_secret(), "the secret is damaged; restore it"),
    ("file", text(""), lambda run: kept_key(run.path / "file" / "secret.key"), ""),
    ("file", text(""), lambda run: RunFolder.create(run.path / "file", "x", "", {}), ""),
]


@pytest.mark.parametrize(("name", "spoil", "act", "said"), TROUBLES)
def test_what_cannot_be_read_or_written_is_named_with_the_reason(
    name: str, spoil: Callable[[Path], object], act: Act, said: str, folder: RunFolder
) -> None:
    folder.model_path.write_bytes(b"a model")
    folder.finish("done")
    folder.draw_secret()
    path = folder.path / name
    spoil(path)
    with pytest.raises(RunError) as caught:
        act(folder)
    text = str(caught.value)
    assert "\n" not in text
    if said:
        assert text.startswith((f"{path}: {said}", f"{folder.path}: {said}")), text
    else:
        assert text.startswith((f"{path}/secret.key: cannot write", f"{path}: cannot make"))


def test_many_damaged_lines_are_told_in_ten_and_a_count(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    (folder.path / "clients.jsonl").write_text("{}\n" * 20_000)
    assert list(folder.clients()) == []
    told = [line.getMessage() for line in caplog.records]
    assert len(told) == 11
    assert "clients.jsonl:10: " in told[9]
    assert "19,990" in told[10]
    assert len(folder.damage) == 11


def test_only_its_owner_can_read_a_run_folder(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = RunFolder.create(tmp_path / "runs", "digits", "name: digits\n", {"seed": 1})
        folder.append_round({"round": 1})
        folder.append_clients([{"round": 1, "client": 0}])
        folder.save_checkpoint(1, {"a": np.zeros(2)})
        with folder.lock():
            EventLog(folder.events_path).close()
            with LiveFile(folder.live_path, dict):
                export_weights(folder.model_path, [("w", (2,))], np.zeros(2, np.float32))
                write_text_durably(folder.report_path, "a page")
        folder.finish("done")
        ledger = ClientLedger(ClientState(1, {"a": {"b": 1}}))
        ClientMemory(tmp_path / "memory", "run", 3).keep(ledger)
    finally:
        os.umask(before)
    for top in (folder.path, tmp_path / "memory"):
        for path in (top, *top.rglob("*")):
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
