"""A pack that is run again ends in the same bits, or the first thing that parted is named."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from fedmx.course.hashes import model_hash
from fedmx.pack import PackError, PackFile, Verification, pack, verify
from fedmx.pack.pack_file import packed
from fedmx.pack.records import check_records
from fedmx.run.checksum import CHECKSUM, sealed
from tests.fedmx.command_line import ROOT, environment, fedmx
from tests.fedmx.pack.packed_runs import (
    Members,
    chain_anew,
    forged,
    records,
    run,
    write_experiment,
    write_records,
)
from tests.fedmx.recorded_runs import TREE, run_of

OTHERS = [name for name in os.environ.get("FEDMX_OTHER_PYTHON", "").split(os.pathsep) if name]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack with a hook of the user's own."""
    path = tmp_path_factory.mktemp("own") / "own.fedmx"
    folder = run(path.parent, '["mine:Mine"]')
    done = fedmx("pack", folder, "-o", path, "--own-modules", cwd=path.parent)
    assert done.code == 0, done.err
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of fedmx's own code alone, of a run that a condition ended."""
    folder = tmp_path_factory.mktemp("plain")
    compute = {**TREE["compute"], "train": {"batch_size": 20, "learning_rate": 0.01}}
    made = run_of(folder, rounds=9, compute=compute, stop={"accuracy": 0.5})
    pack(made, folder / "plain.fedmx")
    return folder / "plain.fedmx"


def rounds_of(path: Path) -> int:
    return len(records(dict(PackFile.read(path).members), "rounds.jsonl"))


def test_a_pack_of_fedmxs_own_code_runs_again_in_the_same_bits(plain: Path) -> None:
    told: list[tuple[int, int]] = []
    found = verify(plain, on_round=lambda round, rounds: told.append((round, rounds)))
    assert found.same
    assert (found.code, found.versions, found.parted) == ((), (), None)
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
    assert done.code == 4, done
    assert done.err == ""
    assert not trace.exists()
    lines = [line.split(":", 1) for line in done.out.splitlines()]
    code = [text.strip() for label, text in lines if label == "code"]
    assert code == [
        "logic.hooks.0: mine:Mine (a module of the pack)",
        "modules/mine.py: 17 lines",
        "modules/shared_by_mine.py: 1 lines",
    ]
    assert "not run again: it needs code that is not fedmx's" in done.out
    assert f"if you trust it: fedmx verify {own} --trust" in done.out


def test_with_trust_it_runs_the_modules_of_the_pack_and_no_others(
    own: Path, tmp_path: Path
) -> None:
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
    assert found.outcome == "not run"
    assert found.code == ("modules/sklearn/__init__.py: 1 lines",)


def test_another_module_parts_in_the_updates_of_the_first_round(own: Path, tmp_path: Path) -> None:
    def change(members: Members) -> None:
        members["modules/shared_by_mine.py"] = b"FACTOR = 1.5\n"

    path = forged(own, change, tmp_path / "x.fedmx")
    first = records(dict(PackFile.read(own).members), "rounds.jsonl")[0]
    found = verify(path, trust=True)
    assert (found.outcome, found.versions) == ("other bits", ())
    assert found.parted is not None
    assert found.parted.round == 1
    assert sorted(found.parted.clients) == sorted(first["participants"])
    done = fedmx("verify", path, "--trust", cwd=tmp_path)
    assert done.code == 3
    clients = ", ".join(map(str, found.parted.clients))
    expected = f"result:   other bits: round 1: the updates of clients {clients} differ"
    assert done.out.splitlines()[-1] == expected


def test_a_run_that_fails_here_has_parted(own: Path, tmp_path: Path) -> None:
    def change(members: Members) -> None:
        members["modules/shared_by_mine.py"] = b"FACTOR = 1e12\n"

    found = verify(forged(own, change, tmp_path / "x.fedmx"), trust=True)
    assert (found.outcome, found.parted and found.parted.round) == ("other bits", 1)
    assert found.reason.startswith("round 1: here it failed: "), found.reason


def test_a_hook_that_raises_is_an_error_with_its_place(own: Path, tmp_path: Path) -> None:
    def change(members: Members) -> None:
        members["modules/shared_by_mine.py"] = b"raise OSError('no such device')\n"

    done = fedmx("verify", forged(own, change, tmp_path / "x.fedmx"), "--trust", cwd=tmp_path)
    assert "'mine:Mine' cannot be imported: OSError: no such device" in done.error_text
    assert "modules/shared_by_mine.py:1" in done.error_text


def claim_accuracy(members: Members) -> None:
    lines = records(members, "rounds.jsonl")
    lines[1]["accuracy"] = 0.99
    write_records(members, "rounds.jsonl", lines)


def claim_update(members: Members) -> None:
    lines = records(members, "clients.jsonl")
    one = next(line for line in lines if line["round"] == 2 and line["update_sha256"])
    one["update_sha256"] = ["0" * 64]
    write_records(members, "clients.jsonl", lines)


def claim_loss_of_a_client(members: Members) -> None:
    lines = records(members, "clients.jsonl")
    next(line for line in lines if line["round"] == 2)["loss"] = 0.0
    write_records(members, "clients.jsonl", lines)


def claim_model(members: Members) -> None:
    tensors = load(members["model.safetensors"])
    vectors = [tensors["1.weight"], tensors["1.bias"]]
    vectors[1][0] = np.nextafter(vectors[1][0], np.float32(1), dtype=np.float32)
    members["model.safetensors"] = save(tensors)
    lines = records(members, "rounds.jsonl")
    flat = np.concatenate([one.reshape(-1) for one in vectors])
    lines[-1]["model_sha256"] = model_hash(flat, np.zeros(0, np.float32))
    write_records(members, "rounds.jsonl", lines)


@pytest.mark.parametrize(
    "change", [claim_accuracy, claim_update, claim_model], ids=lambda one: one.__name__
)
def test_a_changed_record_does_not_fit_the_chain(
    plain: Path, tmp_path: Path, change: object
) -> None:
    path = forged(plain, change, tmp_path / "x.fedmx")  # type: ignore[arg-type]
    round = rounds_of(plain) if change is claim_model else 2
    with pytest.raises(PackError, match=f"the records of round {round} do not fit the chain"):
        verify(path)


def parted_after(change: object, plain: Path, path: Path) -> Verification:
    def with_chain(members: Members) -> None:
        change(members)  # type: ignore[operator]
        chain_anew(members)

    found = verify(forged(plain, with_chain, path))
    assert found.outcome == "other bits"
    return found


def test_changed_records_with_a_new_chain_are_found_by_running_it_again(
    plain: Path, tmp_path: Path
) -> None:
    members = dict(PackFile.read(plain).members)
    accuracy = records(members, "rounds.jsonl")[1]["accuracy"]
    found = parted_after(claim_accuracy, plain, tmp_path / "1.fedmx")
    assert found.reason == f"round 2: 'accuracy' in the record is 0.99 in the pack, {accuracy} here"
    in_round = [one for one in records(members, "clients.jsonl") if one["round"] == 2]
    client = next(one["client"] for one in in_round if one["update_sha256"])
    found = parted_after(claim_update, plain, tmp_path / "2.fedmx")
    assert found.reason == f"round 2: the updates of client {client} differ"
    found = parted_after(claim_loss_of_a_client, plain, tmp_path / "3.fedmx")
    client = in_round[0]["client"]
    assert found.reason == f"round 2: 'loss' in the records of client {client} differ"


def test_another_model_with_a_new_chain_is_found_by_running_it_again(
    plain: Path, tmp_path: Path
) -> None:
    found = parted_after(claim_model, plain, tmp_path / "x.fedmx")
    assert found.parted is not None
    assert (found.parted.round, found.parted.clients) == (rounds_of(plain), ())
    assert found.reason.endswith(
        "all updates are the same, and the model after them is another one"
    )


def test_another_model_alone_is_found_without_running_anything(plain: Path, tmp_path: Path) -> None:
    def change(members: Members) -> None:
        tensors = load(members["model.safetensors"])
        tensors["1.bias"][3] += 1
        members["model.safetensors"] = save(tensors)

    with pytest.raises(PackError, match=r"model.safetensors is not the model after round"):
        verify(forged(plain, change, tmp_path / "x.fedmx"))


def test_records_without_hashes_or_with_gaps_are_refused(plain: Path, tmp_path: Path) -> None:
    def old(members: Members) -> None:
        lines = records(members, "rounds.jsonl")
        for line in lines:
            del line["chain"], line["model_sha256"]
        write_records(members, "rounds.jsonl", lines)

    with pytest.raises(PackError, match=r"round 1 has no hashes: .* run the experiment again"):
        verify(forged(plain, old, tmp_path / "x.fedmx"))

    def gap(members: Members) -> None:
        write_records(members, "rounds.jsonl", records(members, "rounds.jsonl")[1:])

    with pytest.raises(PackError, match="the record of round 1 is missing"):
        verify(forged(plain, gap, tmp_path / "x.fedmx"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)


@given(st.data())
def test_records_of_any_form_fit_or_raise_a_pack_error(plain: Path, data: st.DataObject) -> None:
    members = dict(PackFile.read(plain).members)
    name = data.draw(st.sampled_from(["rounds.jsonl", "clients.jsonl"]))
    lines = records(members, name)
    line = data.draw(st.sampled_from(lines))
    line[data.draw(st.sampled_from(sorted(line)))] = data.draw(JSON)
    write_records(members, name, lines)
    with tempfile.TemporaryDirectory() as folder:
        path = forged(plain, lambda found: found.update(members), Path(folder) / "x.fedmx")
        pack = PackFile.read(path)
        with contextlib.suppress(PackError):
            check_records(pack, pack.unpack(Path(folder) / "run"))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def write_first_round(members: Members, **values: Any) -> None:
    """Change the first record without a look at what it holds, as a stranger's program can."""
    rounds = records(members, "rounds.jsonl")
    text = json.dumps({**{key: one for key, one in rounds[0].items() if key != CHECKSUM}, **values})
    _, _, others = members["rounds.jsonl"].partition(b"\n")
    members["rounds.jsonl"] = json.dumps(sealed(json.loads(text), "")).encode() + b"\n" + others


@pytest.mark.parametrize(
    "values",
    [{"model_sha256": "\ud800"}, {"note": "\ud800", "model_sha256": "\udfff"}, {"note": 700}],
    ids=["half a pair", "two halves", "lists in lists"],
)
def test_a_record_that_no_run_writes_is_one_line(
    values: dict[str, Any], plain: Path, tmp_path: Path
) -> None:
    deep = {key: nested(one) if isinstance(one, int) else one for key, one in values.items()}
    path = forged(plain, lambda members: write_first_round(members, **deep), tmp_path / "x.fedmx")
    error = fedmx("verify", path, cwd=tmp_path).error_text
    assert "the records of round 1 hold what no run writes" in error


@pytest.mark.parametrize("fact", [{"round": "x"}, {"round": 1, "folder": "/"}, "a fork", None])
def test_a_pack_that_says_it_is_a_fork_is_neither_unpacked_nor_verified(
    fact: object, plain: Path, tmp_path: Path
) -> None:
    def change(members: Members) -> None:
        write_experiment(members, members["experiment.yaml"].decode(), fork=fact)

    path = forged(plain, change, tmp_path / "x.fedmx")
    with pytest.raises(PackError, match="its run is a fork"):
        PackFile.read(path).unpack(tmp_path / "run")
    with pytest.raises(PackError, match="its run is a fork"):
        verify(path)
    assert list(tmp_path.iterdir()) == [path]


def test_another_experiment_is_not_the_one_of_the_run(plain: Path, tmp_path: Path) -> None:
    def change(members: Members) -> None:
        text = members["experiment.yaml"].decode().replace("seed: 1", "seed: 2")
        write_experiment(members, text)

    expected = r"x\.fedmx: experiment\.yaml: this is not the experiment that the run began with"
    with pytest.raises(PackError, match=expected):
        verify(forged(plain, change, tmp_path / "x.fedmx"))


def test_facts_of_another_form_are_refused(plain: Path, tmp_path: Path) -> None:
    def change(members: Members) -> None:
        write_experiment(members, members["experiment.yaml"].decode(), builds=[7])

    with pytest.raises(PackError, match=r"run.json does not say which builds"):
        verify(forged(plain, change, tmp_path / "x.fedmx"))

    def fork(members: Members) -> None:
        write_experiment(members, members["experiment.yaml"].decode(), fork={})

    with pytest.raises(PackError, match="its run is a fork, whose first rounds had other settings"):
        verify(forged(plain, fork, tmp_path / "x.fedmx"))


def test_a_strangers_cluster_and_number_of_processes_are_not_used(
    plain: Path, tmp_path: Path
) -> None:
    def change(members: Members) -> None:
        text = members["experiment.yaml"].decode()
        assert "\n  ray: null\n" in text
        ray = "\n  ray: {address: 'ray://203.0.113.1:10001'}\n"
        write_experiment(members, text.replace("\n  ray: null\n", ray))

    assert verify(forged(plain, change, tmp_path / "x.fedmx")).same


def test_a_deployed_run_is_run_again_by_its_course(tmp_path: Path) -> None:
    logic = {"preset": {"name": "fedavg", "count": 2}, "hooks": ["stc"]}
    pack(run_of(tmp_path, deployed=True, rounds=2, logic=logic), tmp_path / "deployed.fedmx")
    assert "course.jsonl" in PackFile.read(tmp_path / "deployed.fedmx").members
    found = verify(tmp_path / "deployed.fedmx")
    assert found.same, found.reason

    def change(members: Members) -> None:
        lines = records(members, "rounds.jsonl")
        lines[1]["up_bytes"] += 1
        write_records(members, "rounds.jsonl", lines)
        chain_anew(members)

    parted = verify(forged(tmp_path / "deployed.fedmx", change, tmp_path / "x.fedmx")).parted
    assert parted is not None
    assert parted.round == 2


def test_a_deployed_run_without_its_course_is_checked_and_not_run(
    plain: Path, tmp_path: Path
) -> None:
    def change(members: Members) -> None:
        write_experiment(members, members["experiment.yaml"].decode(), mode="server")

    path = forged(plain, change, tmp_path / "x.fedmx")
    found = verify(path)
    assert found.outcome == "not run"
    assert found.reason == "its clients were on other machines, and their course is not recorded"
    assert fedmx("verify", path, cwd=tmp_path).code == 4


def test_other_versions_are_told_and_facts_of_any_form_are_borne(
    plain: Path, tmp_path: Path
) -> None:
    def change(members: Members) -> None:
        text = members["experiment.yaml"].decode()
        write_experiment(members, text, numpy="1.2.3", threads={}, start=5)

    found = verify(forged(plain, change, tmp_path / "x.fedmx"))
    assert found.same
    assert [line.split()[:4] for line in found.versions] == [
        ["numpy", "1.2.3", "against", np.__version__],
        ["threads", "{}", "against", "1"],
    ]


def test_a_pack_does_not_say_where_on_this_machine_modules_are(plain: Path, tmp_path: Path) -> None:
    def change(members: Members) -> None:
        text = members["experiment.yaml"].decode()
        write_experiment(members, text, modules=str(tmp_path), address="203.0.113.1:1")

    facts = (
        PackFile.read(forged(plain, change, tmp_path / "x.fedmx")).unpack(tmp_path / "run").facts
    )
    assert not {"modules", "address"} & facts.keys()


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
        rng = np.random.default_rng(1)
        x = rng.integers(0, 16, (80, 1, 4, 4)).astype(np.uint8)
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
    assert done.error_text.startswith(
        f"{start}, which is not here: data.npz: there is no such file"
    ), done
    assert done.error_text.endswith(f"(FEDMX_DATA is {tmp_path})")


def test_a_portable_run_is_run_again_on_the_portable_instructions(tmp_path: Path) -> None:
    folder = run(tmp_path, "[]", "--set", "compute.bits=portable")
    done = fedmx("pack", folder, "-o", "x.fedmx", cwd=tmp_path)
    assert done.code == 0, done.err
    found = verify(tmp_path / "x.fedmx")  # this process runs on the CPU's own
    assert (found.outcome, found.versions) == ("same bits", ())


def test_a_file_that_is_no_pack_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.fedmx").write_bytes(b"PK nothing")
    text = fedmx("verify", "x.fedmx", cwd=tmp_path).error_text
    assert text == "x.fedmx: not a pack, or damaged (File is not a zip file)"
    assert fedmx("verify", "y.fedmx", cwd=tmp_path).error_text == (
        "y.fedmx: cannot read it (No such file or directory)"
    )


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
