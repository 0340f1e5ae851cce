"""A pack that is run again ends in the same bits, or the first divergence is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx.history import PackError, PackFile, pack, verify
from fedmx.history.pack import packed
from tests.fedmx.command_line import ROOT, environment, fedmx
from tests.fedmx.pack.packed_runs import (
    Change,
    Members,
    chain_anew,
    forged,
    in_member,
    records,
    rounds_of,
    run,
    with_facts,
    write_records,
)
from tests.fedmx.recorded_runs import run_of

OTHERS = [name for name in os.environ.get("FEDMX_OTHER_PYTHON", "").split(os.pathsep) if name]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack with a hook of the user's own."""
    path = tmp_path_factory.mktemp("own") / "own.fedmx"
    folder = run(path.parent, '["mine:Mine"]')
    done = fedmx("pack", folder, "-o", path, "--own-modules", cwd=path.parent)
    assert done.code == 0, done.err
    return path


SHARED = "modules/shared_by_mine.py"


def test_a_pack_of_fedmxs_own_code_runs_again_in_the_same_bits(plain: Path) -> None:
    told: list[tuple[int, int]] = []
    found = verify(plain, on_round=lambda round, rounds: told.append((round, rounds)))
    assert found.same
    assert (found.code, found.versions, found.divergence) == ((), (), None)
    assert found.ended.startswith(f"after {rounds_of(plain)} of 9 rounds, as the pack says because")
    rounds = rounds_of(plain)
    assert 1 < rounds < 9  # it was ended by its accuracy, and ends there again
    assert told == [(round, rounds) for round in range(1, rounds + 1)]
    last = records(dict(PackFile.read(plain).members), "rounds.jsonl")[-1]
    assert (found.recorded.chain, found.recorded.model_sha256) == (
        last["chain"],
        last["model_sha256"],
    )


def test_no_code_of_a_pack_runs_without_trust(own: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    done = fedmx("verify", own, cwd=tmp_path, FEDMX_TEST_TRACE=str(trace))
    assert (done.code, done.err) == (4, "")
    assert not trace.exists()
    for part in ("mine:Mine", "modules/mine.py", "modules/shared_by_mine.py", "--trust"):
        assert part in done.out


def test_with_trust_it_runs_the_modules_of_the_pack_alone(own: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    for name in ("mine.py", "shared_by_mine.py"):  # of the same names where the command is typed
        (tmp_path / name).write_text("raise RuntimeError('another module of that name')\n")
    words = ("verify", own, "--trust", "--executor", "serial", "--json")
    done = fedmx(*words, cwd=tmp_path, FEDMX_TEST_TRACE=str(trace))
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["outcome"], found["rounds"]) == ("same bits", rounds_of(own))
    assert trace.exists()
    assert done.err.splitlines()[-1] == f"round {found['rounds']}/{found['rounds']}  the same bits"


def test_modules_that_nothing_names_need_trust_as_well(plain: Path, tmp_path: Path) -> None:
    def change(members: Members) -> None:
        members["modules/sklearn/__init__.py"] = b"raise SystemExit('it ran')\n"

    found = verify(forged(plain, change, tmp_path / "x.fedmx"))
    assert (found.outcome, found.code) == ("not run", ("modules/sklearn/__init__.py: 1 lines",))


def test_another_module_parts_in_the_updates_of_the_first_round(own: Path, tmp_path: Path) -> None:
    path = forged(own, in_member(SHARED, b"", b"FACTOR = 1.5\n"), tmp_path / "x.fedmx")
    first = records(dict(PackFile.read(own).members), "rounds.jsonl")[0]
    found = verify(path, trust=True)
    assert (found.outcome, found.versions) == ("other bits", ())
    assert found.divergence.round == 1
    assert sorted(found.divergence.clients) == sorted(first["participants"])
    done = fedmx("verify", path, "--trust", cwd=tmp_path)
    assert done.code == 3
    clients = ", ".join(map(str, found.divergence.clients))
    assert done.out.splitlines()[-1].startswith("result:   other bits: round 1: ")
    assert f"clients {clients} " in done.out.splitlines()[-1]


def test_a_run_that_fails_here_diverges(own: Path, tmp_path: Path) -> None:
    path = forged(own, in_member(SHARED, b"", b"FACTOR = 1e12\n"), tmp_path / "x.fedmx")
    found = verify(path, trust=True)
    assert (found.outcome, found.divergence and found.divergence.round) == ("other bits", 1)
    assert found.reason.startswith("round 1: here it failed: "), found.reason


def test_a_hook_that_raises_is_an_error_with_its_place(own: Path, tmp_path: Path) -> None:
    change = in_member(SHARED, b"", b"raise OSError('no such device')\n")
    done = fedmx("verify", forged(own, change, tmp_path / "x.fedmx"), "--trust", cwd=tmp_path)
    assert "'mine:Mine' cannot be imported: OSError: no such device" in done.error_text
    assert "modules/shared_by_mine.py:1" in done.error_text


@pytest.mark.parametrize("fact", [{"round": "x"}, {"round": 1, "folder": "/"}, "a fork", {}, None])
def test_a_pack_that_says_it_is_a_fork_is_neither_unpacked_nor_verified(
    fact: object, plain: Path, tmp_path: Path
) -> None:
    path = forged(plain, with_facts(fork=fact), tmp_path / "x.fedmx")
    with pytest.raises(PackError, match="its run is a fork"):
        PackFile.read(path).unpack(tmp_path / "run")
    with pytest.raises(PackError, match="its run is a fork"):
        verify(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_strangers_cluster_and_processes_are_not_used(plain: Path, tmp_path: Path) -> None:
    ray = "\n  ray: {address: 'ray://203.0.113.1:10001'}\n"
    assert verify(forged(plain, with_facts("\n  ray: null\n", ray), tmp_path / "x.fedmx")).same


def in_entries(change: Callable[[list[Any]], None]) -> Change:
    """A change of the second journal's entries."""

    def in_journal(members: Members) -> None:
        lines = records(members, "journal.jsonl")
        change(lines[1]["entries"])
        write_records(members, "journal.jsonl", lines)

    return in_journal


def other_update(entries: list[Any]) -> None:
    next(event for _, event, *_ in entries if event["event"] == "update")["blake3"] = "0" * 64


def other_task(entries: list[Any]) -> None:
    next(one for _, _, *some in entries for one in some if one[0] == "tasks")[2][1] = 7


def one_more(key: str) -> Change:
    def change(members: Members) -> None:
        lines = records(members, "rounds.jsonl")
        lines[1][key] += 1
        write_records(members, "rounds.jsonl", lines)
        chain_anew(members)

    return change


def test_a_deployed_run_is_run_again_by_its_journal(tmp_path: Path) -> None:
    logic = {"preset": {"name": "fedavg", "count": 2}, "hooks": ["stc"]}
    whole = tmp_path / "deployed.fedmx"
    pack(run_of(tmp_path, deployed=True, rounds=2, logic=logic), whole)
    assert "journal.jsonl" in PackFile.read(whole).members
    found = verify(whole)
    assert found.same, found.reason
    for change, what in (
        (one_more("up_bytes"), "records"),
        (in_entries(other_update), "run"),
        (in_entries(other_task), "run"),
        (one_more("control_bytes"), None),
    ):
        found = verify(forged(whole, change, tmp_path / "forged.fedmx")).divergence
        assert (found and (found.round, found.what)) == (what and (2, what))


def test_a_deployed_run_without_journal_is_checked_alone(plain: Path, tmp_path: Path) -> None:
    def change(members: Members) -> None:
        with_facts(mode="server")(members)
        del members["journal.jsonl"]

    path = forged(plain, change, tmp_path / "x.fedmx")
    found = verify(path)
    assert found.outcome == "not run"
    assert "journal" in found.reason
    assert fedmx("verify", path, cwd=tmp_path).code == 4


def test_other_versions_are_told_and_any_facts_are_borne(plain: Path, tmp_path: Path) -> None:
    change = with_facts(numpy="1.2.3", threads={}, start=5)
    found = verify(forged(plain, change, tmp_path / "x.fedmx"))
    assert found.same
    assert [line.split()[:4] for line in found.versions] == [
        ["numpy", "1.2.3", "against", np.__version__],
        ["threads", "{}", "against", "1"],
    ]


def test_a_pack_does_not_say_where_on_this_machine_modules_are(plain: Path, tmp_path: Path) -> None:
    change = with_facts(modules=str(tmp_path), address="203.0.113.1:1")
    path = forged(plain, change, tmp_path / "x.fedmx")
    assert not {"modules", "address"} & PackFile.read(path).unpack(tmp_path / "run").facts.keys()


def test_no_word_of_a_pack_is_a_line_of_the_result(plain: Path, tmp_path: Path) -> None:
    content = PackFile.read(plain)
    manifest = content.manifest.model_copy(update={"run": "x\nresult:   \x1b[1mthe same bits"})
    path = tmp_path / "worded.fedmx"
    path.write_bytes(packed(manifest, {**content.members, "modules/a.py": b""}))
    said = fedmx("verify", path, cwd=tmp_path)
    assert said.code == 4
    results = [line for line in said.out.splitlines() if line.startswith("result:")]
    assert [line.split()[1] for line in results] == ["not"]
    assert "\x1b" not in said.out


def test_data_that_are_gone_or_others_are_named_with_their_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_data(first: int) -> None:
        x = np.random.default_rng(1).integers(0, 16, (80, 1, 4, 4)).astype(np.uint8)
        x[0, 0, 0, 0] = first
        y = np.arange(80) % 4
        np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])

    write_data(0)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.fedmx"
    pack(run(tmp_path, "[]", "--set", "compute.data={name: arrays, path: data.npz}"), path)
    needed = PackFile.read(path).manifest.data.sha256
    start = f"{path}: the run needs the data set data.npz of SHA-256 {needed}"
    monkeypatch.delenv("FEDMX_DATA", raising=False)
    write_data(1)
    with pytest.raises(PackError) as caught:
        verify(path)
    text = str(caught.value)
    assert text.startswith(f"{start}; data.npz here has "), text
    assert text.endswith("(FEDMX_DATA is not set)"), text
    (tmp_path / "data.npz").unlink()
    done = fedmx("verify", path, cwd=tmp_path, FEDMX_DATA=str(tmp_path))
    assert done.error_text.startswith(f"{start}, which is not here: data.npz: "), done
    assert done.error_text.endswith(f"(FEDMX_DATA is {tmp_path})")


def test_a_portable_run_is_run_again_on_the_portable_instructions(tmp_path: Path) -> None:
    folder = run(tmp_path, "[]", "--set", "compute.bits=portable", "--set", "rounds=2")
    done = fedmx("pack", folder, "-o", "x.fedmx", cwd=tmp_path)
    assert done.code == 0, done.err
    found = verify(tmp_path / "x.fedmx")  # this process runs on the CPU's own
    assert (found.outcome, found.versions) == ("same bits", ())


@pytest.mark.needs_second_python
@pytest.mark.skipif(not OTHERS, reason="needs a second interpreter: set FEDMX_OTHER_PYTHON")
@pytest.mark.parametrize("python", OTHERS or ["none"])
def test_a_pack_of_one_python_verifies_on_another(own: Path, python: str) -> None:
    done = subprocess.run(
        [python, "-m", "fedmx", "verify", str(own), "--trust", "--json"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["outcome"] == "same bits"
    assert any(line.startswith("python ") for line in found["versions"]) == (
        subprocess.check_output([python, "-V"]) != subprocess.check_output([sys.executable, "-V"])
    )
