"""A pack whose records were changed is found out, and records of any form are borne."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from fedmx.history import PackError, PackFile, Verification, verify
from fedmx.history.packing import check_records
from fedmx.history.records import CheckedRecords
from fedmx.journal.chain import model_hash
from fedmx.run.durable import CHECKSUM, sealed
from tests.fedmx.command_line import fedmx
from tests.fedmx.pack.packed_runs import (
    Change,
    Members,
    chain_anew,
    forged,
    in_member,
    in_records,
    records,
    rounds_of,
    with_facts,
    write_records,
)

claim_accuracy = in_records("rounds.jsonl", 1, accuracy=0.99)


def claim_update(members: Members) -> None:
    lines = records(members, "clients.jsonl")
    one = next(line for line in lines if line["round"] == 2 and line["update_blake3"])
    one["update_blake3"] = ["0" * 64]
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


@pytest.mark.parametrize("change", [claim_accuracy, claim_update, claim_model])
def test_a_changed_record_breaks_the_chain(plain: Path, tmp_path: Path, change: Change) -> None:
    path = forged(plain, change, tmp_path / "x.fedmx")
    round = rounds_of(plain) if change is claim_model else 2
    with pytest.raises(PackError, match=f"the records of round {round} do not fit the chain"):
        verify(path)


def verified_after(change: Change, plain: Path, path: Path) -> Verification:
    def with_chain(members: Members) -> None:
        change(members)
        chain_anew(members)

    found = verify(forged(plain, with_chain, path))
    assert found.outcome == "other bits"
    return found


def test_changed_records_with_a_new_chain_are_found_by_a_run(plain: Path, tmp_path: Path) -> None:
    members = dict(PackFile.read(plain).members)
    accuracy = records(members, "rounds.jsonl")[1]["accuracy"]
    found = verified_after(claim_accuracy, plain, tmp_path / "1.fedmx")
    assert found.reason.startswith("round 2: the records differ in accuracy")
    assert f"0.99 against {accuracy}" in found.reason
    in_round = [one for one in records(members, "clients.jsonl") if one["round"] == 2]
    client = next(one["client"] for one in in_round if one["update_blake3"])
    found = verified_after(claim_update, plain, tmp_path / "2.fedmx")
    assert found.reason == f"round 2: the updates of client {client} differ"
    found = verified_after(claim_loss_of_a_client, plain, tmp_path / "3.fedmx")
    client = in_round[0]["client"]
    assert found.reason == f"round 2: the records of client {client} differ in 'loss'"


def test_another_model_with_a_new_chain_is_found_by_a_run(plain: Path, tmp_path: Path) -> None:
    found = verified_after(claim_model, plain, tmp_path / "x.fedmx")
    assert (found.divergence.round, found.divergence.what) == (rounds_of(plain), "fold")
    assert found.divergence.clients == ()


@pytest.mark.parametrize("how", ["no bytes", "half", "a tensor more", "halves"])
def test_a_pack_without_a_model_of_its_tensors_is_refused_by_its_name(
    plain: Path, tmp_path: Path, how: str
) -> None:
    def change(members: Members) -> None:
        whole = members["model.safetensors"]
        tensors = load(whole)
        more = {**tensors, "more": np.zeros(1, np.float32)}
        members["model.safetensors"] = {
            "no bytes": b"",
            "half": whole[: len(whole) // 2],
            "a tensor more": save(more),
            "halves": save({name: one.astype(np.float16) for name, one in tensors.items()}),
        }[how]

    with pytest.raises(PackError, match=r"model\.safetensors"):
        verify(forged(plain, change, tmp_path / "x.fedmx"))


def truncated(members: Members) -> None:
    write_records(members, "rounds.jsonl", records(members, "rounds.jsonl")[:-1])


def without_the_first(members: Members) -> None:
    write_records(members, "rounds.jsonl", records(members, "rounds.jsonl")[1:])


def other_bias(members: Members) -> None:
    tensors = load(members["model.safetensors"])
    tensors["1.bias"][3] += 1
    members["model.safetensors"] = save(tensors)


CLIENTS, ROUNDS, MODEL = "clients.jsonl", "rounds.jsonl", "model.safetensors"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (in_member(ROUNDS, b"", b""), "no rounds"),
        (truncated, "model.safetensors"),
        (without_the_first, "no sound record of round 1"),
        (other_bias, "model.safetensors is not the model after round"),
        (with_facts("seed: 1", "seed: 2"), "x.fedmx: experiment.yaml"),
        (in_records(ROUNDS, 0, chain=..., model_sha256=...), "round 1 has no hashes"),
        (in_member(ROUNDS, b"accuracy", b"accurbcy"), "rounds.jsonl:1"),
        (in_member(CLIENTS, b"accepted", b"acceqted"), "clients.jsonl:1"),
        (in_records(ROUNDS, 1, chain=...), "round 2"),
        (in_records(ROUNDS, 0, model_sha256=5), "round 1"),
        (in_records(ROUNDS, 1, participants=...), "round 2"),
        (in_records(ROUNDS, 1, participants=["0"]), "round 2"),
        (in_records(CLIENTS, 0, update_blake3="0" * 64), "clients.jsonl"),
        (in_records(CLIENTS, 0, update_blake3=[5]), "clients.jsonl"),
        (in_records(CLIENTS, 0, client="0"), "clients.jsonl"),
        (in_member(MODEL, b"bias", b"saib"), "model.safetensors"),
        (in_member(MODEL, b'"F32"', b'"I32"'), "model.safetensors"),
        (in_member("experiment.yaml", b"rounds", b"Rounds"), "experiment.yaml"),
        (in_member("status.json", b"", b"{}"), "not done"),
        (with_facts(builds=None), "run.json"),
        (with_facts(builds=[7]), "run.json"),
        (with_facts(fork={"round": 1}), "run.json"),
        (with_facts(fork={"round": 1, "run": "parent"}), "checkpoint of round 1"),
    ],
)
def test_what_does_not_fit_is_named_before_anything_is_run(
    change: Change, named: str, plain: Path, tmp_path: Path
) -> None:
    with pytest.raises(PackError) as caught:
        verify(forged(plain, change, tmp_path / "x.fedmx"))
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


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
            check_records(pack, CheckedRecords(pack.unpack(Path(folder) / "run")))


def write_first_round(members: Members, **values: Any) -> None:
    """Change the first record without a look at what it holds, as a stranger's program can."""
    first, _, others = members["rounds.jsonl"].partition(b"\n")
    record = {key: one for key, one in json.loads(first).items() if key != CHECKSUM} | values
    members["rounds.jsonl"] = json.dumps(sealed(record, "")).encode() + b"\n" + others


@pytest.mark.parametrize(
    "values",
    [
        {"model_sha256": "\ud800"},
        {"note": "\ud800", "model_sha256": "\udfff"},
        {"note": json.loads("[" * 700 + "]" * 700)},
    ],
    ids=["half a pair", "two halves", "lists in lists"],
)
def test_a_record_that_no_run_writes_is_one_line(
    values: dict[str, Any], plain: Path, tmp_path: Path
) -> None:
    path = forged(plain, lambda members: write_first_round(members, **values), tmp_path / "x.fedmx")
    assert "the records of round 1 " in fedmx("verify", path, cwd=tmp_path).error_text
