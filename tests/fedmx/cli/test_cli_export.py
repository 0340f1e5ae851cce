"""Models leave a run folder for other programs, and weights come back as a run's start."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from fedmx import recorded, simulate
from fedmx.assembly.assembly import Assembly
from fedmx.cli.main import main as command
from fedmx.errors import ExperimentError
from fedmx.experiment import Experiment
from fedmx.export import TrainedModel
from fedmx.run import RunError, RunFolder
from layers.compute.data.targets import Targets
from tests.fedmx.recorded_runs import TREE, run_of

TEN = Targets("classes", 10)
DIGEST_WITHOUT_START = "d7e62e91e0a8b9dd597d561256b667cba11e3b5cba619e27790b2cb083ae9a23"

SMALL = """
name: small
rounds: 2
clients: 4
compute:
  model: {name: lenet5, classes: 10}
  data: {name: arrays, path: own.npz}
  normalise: {scale: 16, mean: 0.3, std: 0.4}
  train: {steps: 4}
"""
FORMATS = {
    "onnx": "lenet5.onnx",
    "torch": "lenet5_torch.safetensors",
    "safetensors": "lenet5.safetensors",
}


def write_samples(path: Path) -> None:
    rng = np.random.default_rng(4)
    x = rng.integers(0, 17, (120, 1, 28, 28)).astype(np.uint8)
    y = rng.integers(0, 10, 120)
    np.savez(path, x_train=x[:80], y_train=y[:80], x_test=x[80:], y_test=y[80:])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, and its model in every format; the data are gone."""
    pytest.importorskip("onnx", reason="needs onnx")
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "small.yaml").write_text(SMALL)
        write_samples(folder / "own.npz")
        assert command(["run", "small.yaml"]) == 0
        (folder / "own.npz").rename(folder / "away.npz")
        for kind in FORMATS:
            assert command(["export", str(the_run(folder)), "--to", kind]) == 0
    return folder


def the_run(folder: Path) -> Path:
    (found,) = (folder / "runs").glob("small-*")
    return found


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder of a test's own, with the data, as the working directory."""
    folder = tmp_path / "here"
    shutil.copytree(made, folder)
    (folder / "away.npz").rename(folder / "own.npz")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that fails, and return the one line that it says."""

    def run(*words: str) -> str:
        capsys.readouterr()
        assert command(list(words)) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line.removeprefix("fedmx: ")

    return run


@pytest.mark.parametrize("kind", ["onnx", "safetensors"])
def test_an_export_says_what_the_model_takes_and_gives(
    here: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    capsys.readouterr()
    assert command(["export", str(the_run(here)), "--to", kind]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith("input:  float32 (n, 1, 28, 28): (x / 16 - 0.3) / 0.4")
    assert lines[-1].startswith("output: (n, 10): a logit for each class")


def start_of(path: str | Path, text: str = SMALL) -> Assembly:
    return Assembly(Experiment.parse(text, overrides=[f"compute.start={json.dumps(str(path))}"]))


def final_weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(the_run(folder) / "model.safetensors")


@pytest.mark.parametrize(
    ("normalise", "says"),
    [
        ({"scale": 16}, "x / 16, where"),
        ({"scale": 16, "std": 2}, "(x / 16) / 2, where"),
        ({"mean": 8}, "x - 8, where"),
    ],
)
def test_an_export_names_each_step_of_the_normalisation_that_changes_values(
    tmp_path: Path, normalise: dict[str, float], says: str
) -> None:
    folder = run_of(tmp_path, rounds=1, compute={**TREE["compute"], "normalise": normalise})
    assert f": {says}" in TrainedModel.of(folder).notes["input"]


def test_a_model_that_is_not_the_one_of_the_run_is_not_exported(tmp_path: Path) -> None:
    folder = run_of(tmp_path, rounds=1)
    content = bytearray(folder.model_path.read_bytes())
    content[-1] ^= 1
    folder.model_path.write_bytes(content)
    with pytest.raises(RunError, match=rf"^{folder.model_path}: "):
        TrainedModel.of(folder)
    given = {**TREE["compute"], "start": str(folder.path)}
    with pytest.raises(ExperimentError, match=rf"{folder.path}: {folder.model_path}: "):
        _ = Assembly(Experiment(**{**TREE, "compute": given})).start


def test_onnxruntime_opens_the_file_in_a_process_without_fedmx(here: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    code = """
import sys, numpy, onnx, onnxruntime
onnx.checker.check_model(onnx.load("lenet5.onnx"), full_check=True)
session = onnxruntime.InferenceSession("lenet5.onnx")
x = numpy.load("own.npz")["x_test"]
numpy.save("logits.npy", session.run(None, {"input": ((x / 16 - 0.3) / 0.4).astype("float32")})[0])
print(session.get_modelmeta().custom_metadata_map["input"])
assert not {"mxnet", "fedmx"} & set(sys.modules)
"""
    done = subprocess.check_output([sys.executable, "-c", code], cwd=here, text=True)
    assert done.startswith("float32 (n, 1, 28, 28): (x / 16 - 0.3) / 0.4, where x are")
    logits, y = np.load(here / "logits.npy"), np.load(here / "own.npz")["y_test"]
    recorded = RunFolder.open(the_run(here)).rounds()[-1]
    assert (logits.argmax(1) == y).mean() == pytest.approx(recorded["accuracy"])
    shifted = logits - logits.max(1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(y)), y]
    assert losses.mean() == pytest.approx(recorded["loss"], abs=1e-5)


def test_a_safetensors_file_has_the_runs_bits_and_says_what_it_is(here: Path) -> None:
    found, expected = load_file(here / "lenet5.safetensors"), final_weights(here)
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    with safe_open(here / "lenet5.safetensors", framework="numpy") as file:
        notes = file.metadata()
    assert (notes["model"], notes["settings"], notes["round"]) == ("lenet5", '{"classes": 10}', "2")
    assert notes["run"] == the_run(here).name
    keys = ("format", "model", "settings", "input", "output", "run", "round", "fedmx")
    assert set(notes) == set(keys)


def test_a_state_dict_comes_with_its_modules_source_which_is_printed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = load_file(here / "lenet5_torch.safetensors")
    assert set(state) == {
        f"{layer}.{tensor}"
        for layer in ("conv1", "conv2", "fc1", "fc2", "fc3")
        for tensor in ("weight", "bias")
    }
    capsys.readouterr()
    assert command(["export", str(the_run(here)), "--to", "torch", "--out", "net.safetensors"]) == 0
    printed = capsys.readouterr().out
    assert printed == (here / "net.py").read_text()
    assert "model.load_state_dict(load_file('net.safetensors'))" in printed
    compile(printed, "net.py", "exec")


@pytest.mark.parametrize("kind", [*FORMATS, "run", "model", "checkpoint"])
def test_a_run_begins_from_what_was_exported_bit_for_bit(here: Path, kind: str) -> None:
    files = {"run": "", "model": "model.safetensors"}
    files["checkpoint"] = "checkpoints/round-000002.safetensors"
    start = start_of(the_run(here) / files[kind] if kind in files else FORMATS[kind]).start
    expected = np.concatenate([value.reshape(-1) for value in in_order(final_weights(here))])
    assert np.array_equal(start.weights, expected)


def in_order(tensors: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [tensors[tensor.name] for tensor in Assembly(Experiment.parse(SMALL)).engine.layout]


def test_a_start_changes_the_result_and_all_executors_agree_on_it(here: Path) -> None:
    ends = {}
    for name, words in {
        "seed": [],
        "serial": ["--set", "compute.start=lenet5.onnx"],
        "processes": ["--set", "compute.start=lenet5.onnx", "--executor", "processes:1"],
    }.items():
        assert command(["run", "small.yaml", "--set", f"run.folder={name}", *words]) == 0
        (folder,) = (here / name).iterdir()
        ends[name] = (folder / "model.safetensors").read_bytes()
    assert ends["serial"] == ends["processes"] != ends["seed"]


def test_a_server_loads_the_start_and_clients_need_no_file(here: Path) -> None:
    from fedmx.deployment.serve import serve

    assembly = start_of("lenet5.safetensors", f"{SMALL}network: {{address: '127.0.0.1:0'}}\n")
    assert np.array_equal(serve(assembly, "run").state.weights, assembly.start.weights)
    (here / "lenet5.safetensors").unlink()
    sent = Experiment.parse(assembly.experiment.to_yaml())
    assert sent.digest() == assembly.experiment.digest()
    assert Assembly(sent, shape=(1, 28, 28), targets=TEN).logic.clients == 4


def test_a_resumed_run_goes_on_from_the_kept_start(here: Path, refused: Callable[..., str]) -> None:
    words = ["run", "small.yaml", "--set", "compute.start=lenet5.safetensors"]
    assert command([*words, "--set", "run.folder=whole"]) == 0
    (whole,) = (here / "whole").iterdir()
    cut = here / "cut"
    shutil.copytree(whole, cut)
    for path in (*cut.glob("checkpoints/*"), cut / "status.json", cut / "model.safetensors"):
        path.unlink()  # as if it had been killed before round 1 was done
    other = load_file("lenet5.safetensors")
    save_file({name: value + 1 for name, value in other.items()}, "lenet5.safetensors")
    tampered = here / "tampered"
    shutil.copytree(cut, tampered)
    assert command(["resume", str(cut)]) == 0
    assert (cut / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    shutil.copy("lenet5.safetensors", tampered / "start.safetensors")
    assert "not the weights that the run began from" in refused("resume", str(tampered))
    (tampered / "start.safetensors").unlink()
    assert "start.safetensors: cannot read it" in refused("resume", str(tampered))


def test_an_experiment_without_a_start_has_the_digest_that_it_had() -> None:
    text = "rounds: 2\nclients: 3\ncompute: {model: lenet5, data: digits}\n"
    assert Experiment.parse(text).digest() == DIGEST_WITHOUT_START
    other = Experiment.parse(text, overrides=["compute.start=a.onnx"])
    assert other.digest() != DIGEST_WITHOUT_START


def test_an_unfinished_run_gives_its_newest_checkpoint_and_says_its_round(
    here: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    run = the_run(here)
    (run / "status.json").unlink()
    (run / "checkpoints" / "round-000002.safetensors").unlink()
    capsys.readouterr()
    assert command(["export", str(run), "--to", "safetensors", "--out", "part.safetensors"]) == 0
    shown = capsys.readouterr()
    assert "its model after round 1" in shown.err
    assert "part.safetensors, of round 1" in shown.out
    with safe_open("part.safetensors", framework="numpy") as file:
        assert file.metadata()["round"] == "1"
    (run / "checkpoints" / "round-000001.safetensors").unlink()
    assert "has no checkpoint yet" in refused("export", str(run), "--to", "onnx")
    assert "has no checkpoint yet" in refused("run", "small.yaml", "--set", f"compute.start={run}")


def test_a_run_that_python_code_recorded_without_the_facts_is_not_exported(
    here: Path, refused: Callable[..., str]
) -> None:
    write_samples(Path("own.npz"))
    experiment = Experiment.read(Path("small.yaml"))
    folder = RunFolder.create(here, "bare", experiment.to_yaml(), {})
    with simulate(experiment) as simulation:
        list(recorded(simulation, folder))
    assert "run.json does not have shape" in refused("export", str(folder.path), "--to", "onnx")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.pop("0.weight"), "has no tensor 0.weight of shape (6, 1, 5, 5)"),
        (lambda t: t.update({"0.weight": np.zeros((6, 3, 5, 5), "f")}), "shape (6, 3, 5, 5), in"),
        (lambda t: t.update({"9.bias": np.zeros(3)}), "has a tensor 9.bias of shape (3,)"),
        (lambda t: t["7.bias"].fill(np.nan), "tensor 7.bias does not hold finite"),
        (lambda t: t.update({"7.bias": np.zeros(10, int)}), "tensor 7.bias does not hold"),
        (lambda t: t.clear(), "has no tensor 0.weight"),
    ],
    ids=["missing", "shape", "unknown", "nan", "integers", "empty"],
)
def test_weights_of_another_model_are_refused_by_the_tensor_that_does_not_fit(
    here: Path, change: Callable[[dict], object], said: str, refused: Callable[..., str]
) -> None:
    tensors = load_file("lenet5.safetensors")
    change(tensors)
    save_file(tensors, "other.safetensors")
    line = refused("run", "small.yaml", "--set", "compute.start=other.safetensors")
    assert line.startswith("compute.start: other.safetensors: ")
    assert said in line
    assert len(list((here / "runs").iterdir())) == 1


def test_a_checkpoint_an_onnx_file_and_a_state_dict_of_another_model_are_refused(
    here: Path, refused: Callable[..., str]
) -> None:
    words = ("run", "small.yaml", "--set", "compute.model=2nn", "--set")
    checkpoint = the_run(here) / "checkpoints" / "round-000002.safetensors"
    said = refused(*words, f"compute.start={checkpoint}")
    assert "weights are 61706 numbers, the model's 109386" in said
    assert "lenet5.onnx: has no tensor" in refused(*words, "compute.start=lenet5.onnx")
    tensors = load_file("lenet5_torch.safetensors")
    tensors["fc3.bias"] = tensors["fc3.bias"][:7]
    save_file(tensors, "other.safetensors")
    said = refused("run", "small.yaml", "--set", "compute.start=other.safetensors")
    assert "tensor fc3.bias has the shape (7,), in the model it is (10,)" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PK\x03\x04 a zip of torch.save", "is a pickle, which fedmx does not load"),
        (b"\x80\x02}q\x00.", "is a pickle, which fedmx does not load"),
        (b"no tensors", "is not a safetensors or ONNX file"),
        (b"", "is not a safetensors or ONNX file"),
        (None, "cannot be read: No such file or directory"),
    ],
    ids=["zip", "pickle", "text", "empty", "missing"],
)
def test_a_start_without_weights_is_refused(here: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        Path("given.pt").write_bytes(content)
    with pytest.raises(ExperimentError) as error:
        _ = start_of("given.pt").start
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("length", [0x0280, 0x0380, 0x0480, 0x0580])
def test_a_header_whose_length_looks_like_a_pickle_is_read(tmp_path: Path, length: int) -> None:
    compute = {"engine": "numpy", "model": "logistic", "data": "digits"}
    given = Experiment(rounds=1, clients=1, compute=compute)
    layout = Assembly(given, shape=(1, 8, 8), targets=TEN).engine.layout
    weights = np.arange(sum(one.stop - one.start for one in layout), dtype=np.float32)
    offsets = {one.name: {"data_offsets": [4 * one.start, 4 * one.stop]} for one in layout}
    header = {one.name: {"dtype": "F32", "shape": one.shape, **offsets[one.name]} for one in layout}
    path = tmp_path / "a.safetensors"
    text = json.dumps(header).ljust(length).encode()
    path.write_bytes(struct.pack("<Q", length) + text + weights.tobytes())
    begun = given.with_overrides([f"compute.start={path}"])
    assert np.array_equal(Assembly(begun, shape=(1, 8, 8), targets=TEN).start.weights, weights)


def test_a_start_that_is_no_regular_file_is_not_read(here: Path) -> None:
    os.mkfifo("pipe")
    for path in ("pipe", "/dev/zero"):
        with pytest.raises(ExperimentError, match="is not a regular file"):
            _ = start_of(path).start


def test_a_start_that_is_far_larger_than_the_model_is_refused_by_its_header(here: Path) -> None:
    size = 1 << 36
    header = json.dumps({"huge": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}})
    with open("huge.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header.encode())
        file.truncate(8 + len(header) + size)  # without room on the disk
    with pytest.raises(ExperimentError, match="has a tensor huge of shape"):
        _ = start_of("huge.safetensors").start


def test_an_own_model_is_exported_and_refused_when_its_module_is_gone(
    here: Path, refused: Callable[..., str]
) -> None:
    (here / "nets_of_mine.py").write_text(
        "from mxnet.gluon import nn\n\n\nclass Net(nn.HybridSequential):\n"
        "    def __init__(self, classes):\n        super().__init__()\n"
        "        self.add(nn.Conv2D(3, 5), nn.BatchNorm(), nn.Dense(classes))\n"
    )
    words = ["--set", "compute.model=nets_of_mine:Net", "--set", "run.folder=own"]
    assert command(["run", "small.yaml", *words]) == 0
    (run,) = (here / "own").iterdir()
    for kind in FORMATS:
        assert command(["export", str(run), "--to", kind, "--own-modules"]) == 0
    assert {path.name for path in here.glob("Net*")} == {
        *("Net.onnx", "Net_torch.safetensors", "Net_torch.py", "Net.safetensors")
    }
    assert "nets_of_mine:Net is not fedmx's code" in refused("export", str(run), "--to", "onnx")
    (here / "nets_of_mine.py").unlink()
    sys.modules.pop("nets_of_mine")
    line = refused("export", str(run), "--to", "onnx", "--module", "nets_of_mine")
    assert "there is no module 'nets_of_mine'" in line


def test_no_file_of_the_users_is_replaced_by_a_modules_source(
    here: Path, refused: Callable[..., str]
) -> None:
    Path("net.py").write_text("# mine\n")
    words = ("export", str(the_run(here)), "--to", "torch", "--out")
    assert "net.py: fedmx did not write this file" in refused(*words, "net.safetensors")
    assert Path("net.py").read_text() == "# mine\n"
    assert not Path("net.safetensors").exists()
    assert "none/net.safetensors: cannot write it" in refused(*words, "none/net.safetensors")
    assert not list(here.glob(".writing-*"))


TEXTS = """
import dataclasses
from pathlib import Path

import numpy as np

from layers.compute.data.datasets import from_arrays


def texts() -> dict:
    assert Path("texts-are-here").exists(), "the texts are gone"
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 5, (40, 25)), rng.integers(0, 2, 40)
    found = from_arrays(x[:30], y[:30], x[30:], y[30:], name="texts")
    return dataclasses.replace(found, words=("", "a", "good", "bad", "film"))
"""


def test_word_vectors_from_a_file_are_exported_without_the_texts(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "texts_of_mine.py").write_text(TEXTS)
    (here / "texts-are-here").touch()
    (here / "glove.txt").write_text("good 1 2 3\nfilm 4 5 6\n")
    (here / "words.yaml").write_text(
        "name: words\nrounds: 1\nclients: 2\ncompute:\n"
        "  model: {name: lstm, vocabulary: 8, dimensions: 3, glove: glove.txt}\n"
        "  data: 'texts_of_mine:texts'\n"
    )
    assert command(["run", "words.yaml", "--own-modules"]) == 0
    (run,) = (here / "runs").glob("words-*")
    (here / "texts-are-here").unlink()
    capsys.readouterr()
    for kind in FORMATS:
        assert command(["export", str(run), "--to", kind, "--own-modules"]) == 0
    assert "int64 tokens (n, 25)" in capsys.readouterr().out
    for file, name in (("lstm", "vectors"), ("lstm_torch", "embedding1.weight")):
        vectors = load_file(f"{file}.safetensors")[name]
        assert vectors.shape == (8, 3)
        assert vectors[[0, 2, 4]].tolist() == [[0, 0, 0], [1, 2, 3], [4, 5, 6]]
    (here / "texts-are-here").touch()
    given = Experiment.read(
        "words.yaml", ["compute.start=lstm_torch.safetensors"], modules=["texts_of_mine"]
    )
    assert Assembly(given).start is not None
    other = Experiment.read(
        "words.yaml", ["compute.start=lstm.onnx", "compute.model.seed=9"], modules=["texts_of_mine"]
    )
    with pytest.raises(ExperimentError, match=r"tensor vectors is a constant of the model"):
        _ = Assembly(other).start
