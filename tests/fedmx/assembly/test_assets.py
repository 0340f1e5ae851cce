"""Assets and held-out samples: disjoint from the clients, and equal bits in the file."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from fedmx import Assembly, Experiment, FedmxError, simulate
from fedmx.assembly.assets import AssetFile, file_of_samples, samples_in
from fedmx.report.strata import label_shares
from layers.compute.data.dataset import Normalise, materialise
from layers.compute.data.datasets import Raw
from layers.compute.data.partitions import divide
from layers.compute.data.partitions.label_free import Iid
from layers.compute.losses.references import Distillation
from layers.logic import Training
from layers.logic.seeds import derive

DIGITS = """
seed: 3
rounds: 2
clients: 5
compute:
  model: 2nn
  data: digits
  normalise: {{scale: 16}}
  train: {{steps: 2, batch_size: 10, learning_rate: 0.05}}
logic: {logic}
"""
SHARING = "{preset: {name: fedshare, fraction: 0.4, shared: 0.1}}"
HOLDING = "{preset: {name: csfedavg, fraction: 0.4, held_out: 0.1}}"
BOTH = "{hooks: [{name: fedshare, shared: 0.1}, {name: divergence, held_out: 0.05}]}"
NEITHER = "{preset: fedavg}"


def assembly(logic: str) -> Assembly:
    return Assembly(Experiment.parse(DIGITS.format(logic=logic)))


def test_assets_held_out_samples_and_client_parts_divide_the_training_split() -> None:
    made = assembly(BOTH)
    number = len(made.data.dataset.train)
    shared, held_out = made.held_back.assets["shared"], made.held_back.held_out
    assert (len(shared), len(held_out)) == (round(0.1 * number), round(0.05 * number))
    assert sorted(np.concatenate([shared, held_out, *made.parts[0]])) == list(range(number))
    classes = np.bincount(made.data.dataset.train.y[shared])
    assert classes.max() - classes.min() <= 1


def test_without_assets_clients_divide_the_whole_split_and_no_model_is_built() -> None:
    made = assembly(NEITHER)
    whole = divide(made.data.dataset, Iid(), 5, derive(3, "partition"))
    for ours, theirs in zip(made.parts, whole, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert "engine" not in vars(made)
    assert made.assets == {}
    assert made.server_logic is made.logic


@pytest.mark.parametrize("logic", [BOTH, SHARING, NEITHER])
def test_a_report_counts_the_labels_of_the_clients_parts(logic: str) -> None:
    made = assembly(logic)
    shares = label_shares(made.experiment.to_yaml(), range(5))
    for found, part in zip(shares, made.parts[0], strict=True):
        assert found == pytest.approx(np.bincount(made.data.dataset.train.y[part]) / len(part))


def test_hooks_that_take_all_samples_are_refused() -> None:
    logic = "{hooks: [{name: fedshare, shared: 0.6}, {name: divergence, held_out: 0.6}]}"
    with pytest.raises(FedmxError, match="all of the 1442 training samples"):
        assembly(logic).parts  # noqa: B018, made at its first use


@settings(deadline=None)
@given(
    st.sampled_from(["uint8", "float32", "float64", "int64"]),
    st.sampled_from([None, Normalise(255.0, 0.1307, 0.3081), Normalise(1.0, (0.1, 1 / 3), 0.7)]),
    st.integers(1, 7),
)
def test_samples_from_the_file_have_the_bits_of_the_data_set(dtype, normalise, number) -> None:
    rng = np.random.default_rng(number)
    raw = Raw((rng.random((9, 2, 3)) * 255).astype(dtype), rng.integers(0, 4, 9))
    rows = rng.permutation(9)[:number]
    if normalise is None and dtype == "uint8":
        return  # refused when the data are looked at
    sent = file_of_samples("some", raw, rows, normalise)
    assert sent.content == file_of_samples("some", raw, rows, normalise).content
    here, there = materialise(raw, rows, normalise), samples_in(AssetFile("some", sent.content))
    assert (here.x.dtype, here.x.tobytes()) == (there.x.dtype, there.x.tobytes())
    assert (here.y.dtype, here.y.tobytes()) == (there.y.dtype, there.y.tobytes())


X, Y = np.zeros((2, 3), np.float32), np.zeros(2, np.int64)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no file of this kind",
        save({"x": X}),
        save({"x": X, "y": Y[:1]}),
        save({"x": X, "y": Y.astype(np.int32)}),
        save({"x": X, "y": Y, "more": np.zeros(1)}),
        save({"x": X, "y": Y, "scale": np.zeros(())}),
        save({"x": X, "y": Y, "mean": np.zeros((1, 2))}),
    ],
)
def test_a_file_without_samples_is_refused_in_one_line(content: bytes) -> None:
    with pytest.raises(FedmxError, match="asset 'some'") as caught:
        samples_in(AssetFile("some", content))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (np.array(2, np.int64), "int64 of shape ()"),
        (np.array(2, np.float32), "float32 of shape ()"),
        (np.array([2], np.int64), "int64 of shape (1,)"),
        (np.full((1, 3), 2.0), "float64 of shape (1, 3)"),
    ],
)
def test_settings_other_than_float64_numbers_are_refused(value, what) -> None:
    content = save({"x": X, "y": Y, "scale": value})
    with pytest.raises(FedmxError, match=re.escape(what)):
        samples_in(AssetFile("some", content))


def test_the_file_is_written_atomically_and_only_if_it_differs(tmp_path: Path) -> None:
    made = assembly(SHARING).assets["shared"]
    path = tmp_path / "assets" / "shared.safetensors"
    path.parent.mkdir()
    path.write_bytes(b"half of it")
    made.write(path)
    before = path.stat()
    made.write(path)
    assert path.read_bytes() == made.content
    assert path.stat().st_ino == before.st_ino
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    with pytest.raises(FedmxError, match=r"shared.safetensors: .* cannot be written"):
        made.write(path / "shared.safetensors")


def test_the_bytes_of_a_file_count_once_for_every_client_also_after_a_resume() -> None:
    made = assembly(SHARING)
    simulation = simulate(made)
    first, second = simulation
    assert first.file_bytes == sum(made.assets["shared"].wire_bytes(one) for one in range(5))
    assert first.record()["file_bytes"] == first.file_bytes
    assert second.file_bytes == 0
    resumed = simulate(made)
    resumed.last_round = 3
    resumed.restore({**simulation.checkpoint(), "reason": ""})
    (third,) = resumed
    assert third.file_bytes == 0


def test_fedshare_clients_train_on_shared_and_own_samples() -> None:
    made = assembly(SHARING)
    (first, _) = simulate(made)
    sizes = made.sizes()
    for told in first.report.clients:
        assert told.samples == sizes[told.client] + len(made.asset_samples["shared"])


def test_the_server_warms_up_on_the_shared_samples_alone() -> None:
    """The clients return the model untrained, so only the warm-up changes it."""
    text = DIGITS.format(logic=SHARING.replace("shared: 0.1", "shared: 0.1, warm_up: 3"))
    server = simulate(Assembly(Experiment.parse(text.replace("steps: 2", "steps: 0"))))
    list(server)
    made = assembly(SHARING)
    weights, buffers = made.engine.initial(made.experiment.seed)
    seed = derive(derive(3, "server:0:FedShare", 1, -1), "warm-up")
    training = Training(epochs=3, batch_size=10, learning_rate=0.05)
    found, _ = made.server_logic.facilities.train_on_asset(
        "shared", weights, buffers, training, seed
    )
    made.engine.load(weights, buffers)
    made.engine.train(made.asset_samples["shared"], training, seed)
    assert server.weights.tobytes() == found.tobytes() == made.engine.weights.tobytes()
    assert found.tobytes() != weights.tobytes()


def test_the_server_computes_on_the_shared_samples_and_learns_given_probabilities() -> None:
    made = assembly(SHARING)
    facilities, engine, shared = (
        made.server_logic.facilities,
        made.engine,
        made.asset_samples["shared"],
    )
    weights, buffers = engine.initial(3)
    logits = facilities.outputs_on_asset("shared", weights, buffers)
    engine.load(weights, buffers)
    assert logits.tobytes() == engine.outputs(shared).logits.tobytes()
    one_class = np.zeros_like(logits)
    one_class[:, 7] = 1
    found, _ = facilities.train_on_asset(
        "shared",
        weights,
        buffers,
        Training(steps=60, batch_size=0, learning_rate=0.5),
        11,
        loss=Distillation(reference=None, weight=1.0),
        arrays={"soft_labels": one_class},
    )
    after = facilities.outputs_on_asset("shared", found, buffers)
    assert (after.argmax(1) == 7).all(), "the labels of the samples do not matter"


def test_the_server_trains_on_its_held_out_samples_alone() -> None:
    made = assembly(HOLDING)
    train, engine = made.data.dataset.train, made.engine
    weights, buffers = engine.initial(3)
    training = made.logic.training_of(1)
    found = made.server_logic.facilities.auxiliary(weights, buffers, training, 11)
    engine.load(weights, buffers)
    engine.train(materialise(train, made.held_back.held_out, made.data.normalise), training, 11)
    assert found.tobytes() == engine.weights.tobytes()
    assert found.tobytes() != weights.tobytes()
    (first, _) = simulate(assembly(HOLDING))
    assert all(told.metrics["divergence"] > 0 for told in first.report.clients)
