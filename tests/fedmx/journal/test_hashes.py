"""The hashes of a run: each round is bound to its updates, its model and all rounds before it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedmx import Experiment, simulate
from fedmx.journal.chain import CHAIN, START, TIMES, chained, message_hash, model_hash
from fedmx.protocol.messages import CODEC
from fedmx.run import RunFolder
from fedmx.server.recorder import recorded
from layers.logic import Update

SETTINGS = """
name: chained
seed: 3
rounds: 4
clients: 6
compute: {data: digits, model: logistic, normalise: {scale: 16}}
logic: {preset: {name: fedavg, count: 3}}
"""
VECTORS = arrays(np.float32, st.integers(0, 40), elements=st.floats(-9, 9, width=32))


def run(tmp_path: Path, *, stop_after: int | None = None) -> RunFolder:
    folder = RunFolder.create(tmp_path, "chained", Experiment.parse(SETTINGS).to_yaml(), {})
    go_on(folder, stop_after=stop_after)
    return folder


def go_on(folder: RunFolder, *, stop_after: int | None = None) -> None:
    with simulate(Experiment.parse(SETTINGS)) as simulation:
        for round in recorded(simulation, folder):
            if round.round == stop_after:
                break


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return run(tmp_path_factory.mktemp("whole"))


def links(folder: RunFolder) -> list[str]:
    """The chain, made again from what the folder says."""
    made, link = [], START
    for record in folder.rounds():
        sent = {one["client"]: one["update_blake3"] for one in folder.clients(record["round"])}
        updates = [one for client in record["participants"] for one in sent[client]]
        link = chained(link, record, updates, record["model_sha256"])
        made.append(link)
    return made


def test_the_records_have_the_chain_that_follows_from_them(whole: RunFolder) -> None:
    found = [record[CHAIN] for record in whole.rounds()]
    assert len(set(found)) == 4
    assert found == links(whole)


def test_the_last_record_has_the_hash_of_the_final_model(whole: RunFolder) -> None:
    server = whole.latest_checkpoint().state["server"]
    whole_model = server["weights"].tobytes() + server["buffers"].tobytes()
    assert whole.rounds()[-1]["model_sha256"] == hashlib.sha256(whole_model).hexdigest()


def test_every_participant_has_one_hash_and_the_others_have_none(whole: RunFolder) -> None:
    for record in whole.rounds():
        for one in whole.clients(record["round"]):
            assert len(one["update_blake3"]) == (one["client"] in record["participants"])


def test_a_run_that_was_resumed_has_the_same_chain(whole: RunFolder, tmp_path: Path) -> None:
    folder = run(tmp_path, stop_after=2)
    go_on(RunFolder.open(folder.path))
    assert [one[CHAIN] for one in folder.rounds()] == [one[CHAIN] for one in whole.rounds()]


RECORD: dict[str, Any] = {"round": 1, "loss": 0.5, "seconds": 1.0, "participants": [1, 2]}


@given(st.sampled_from(TIMES), st.floats(0, 1e6))
def test_times_do_not_change_the_chain(key: str, seconds: float) -> None:
    assert chained("", {**RECORD, key: seconds}, ["a"], "m") == chained("", RECORD, ["a"], "m")


@pytest.mark.parametrize(
    "other",
    [
        ("x", RECORD, ["a", "b"], "m"),
        ("", {**RECORD, "loss": 0.25}, ["a", "b"], "m"),
        ("", RECORD, ["b", "a"], "m"),
        ("", RECORD, ["a"], "m"),
        ("", RECORD, ["a", "b"], "n"),
    ],
    ids=["what came before", "the record", "the order", "an update less", "the model"],
)
def test_anything_else_changes_it(other: tuple[Any, ...]) -> None:
    assert chained(*other) != chained("", RECORD, ["a", "b"], "m")


@given(VECTORS, VECTORS, st.data())
def test_one_bit_changes_the_hash_of_a_model(
    weights: np.ndarray, buffers: np.ndarray, data: st.DataObject
) -> None:
    both = np.concatenate([weights, buffers])
    if not both.size:
        return
    flipped = both.copy()
    place = data.draw(st.integers(0, both.size * 32 - 1))
    flipped.view(np.uint8)[place // 8] ^= 1 << (place % 8)
    one = model_hash(weights, buffers)
    assert one == model_hash(weights.copy(), buffers)
    assert one != model_hash(flipped[: weights.size], flipped[weights.size :])


@given(VECTORS)
def test_the_hash_of_a_message_is_that_of_its_bytes_on_the_network(delta: np.ndarray) -> None:
    update = Update(1, 2, 3, 4, delta, delta[:0], {"loss": 0.5})
    encoded = bytes(CODEC.encode(update))
    assert message_hash(update) == blake3(encoded).hexdigest()
    assert message_hash(CODEC.decode(bytearray(encoded))) == message_hash(update)
