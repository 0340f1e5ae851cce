"""An experiment names its engine, which alone is imported, and the record says which it was."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedmx import Assembly, Experiment, ExperimentError, RunFolder, simulate
from fedmx.history.diff import diff
from fedmx.history.replay import replay
from fedmx.run.identity import Identity
from tests.fedmx import kinds
from tests.fedmx.command_line import ROOT, environment, fedmx
from tests.fedmx.recorded_runs import run_of

NUMPY = {"compute": {**kinds.TREE["compute"], "model": "logistic", "engine": "numpy"}}

# Python imports it when it starts, also in the processes that a command starts.
SITE = """
import sys


class Missing:  # SciPy looks for torch among the modules, so None there would not do
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name=name)


sys.meta_path.insert(0, Missing())
sys.modules.update(dict.fromkeys(("mxnet", "gluoncv")))  # importing them fails
"""


def without_mxnet(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python, with these words, where MXNet cannot be imported."""
    (folder / "sitecustomize.py").write_text(SITE)
    return subprocess.run(
        [sys.executable, "-W", "ignore", *map(str, words)],
        cwd=folder,
        env=environment(PYTHONPATH=f"{folder}:{ROOT}"),
        capture_output=True,
        text=True,
    )


FEDMX = ("-m", "fedmx")
SMALL = ("--set", "rounds=2", "--set", "compute.train.epochs=1")


@pytest.fixture(scope="module")
def numpy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits of the quickstart on numpy, where MXNet cannot be imported."""
    folder = tmp_path_factory.mktemp("without")
    words = ("run", ROOT / "examples/quickstart.yaml", "--set", "compute.engine=numpy", *SMALL)
    done = without_mxnet(folder, *FEDMX, *words)
    assert done.returncode == 0, done.stderr
    (run,) = folder.glob("runs/quickstart-*")
    return run


def test_the_numpy_engine_runs_where_mxnet_is_missing(numpy_run: Path) -> None:
    facts = json.loads((numpy_run / "run.json").read_text())["facts"]
    assert facts["engine"] == "numpy"
    assert "mxnet" not in {*facts, *facts["builds"]}
    assert facts["numpy"]
    assert (numpy_run / "model.safetensors").exists()


def test_reports_exports_and_lists_need_no_mxnet(numpy_run: Path) -> None:
    folder = numpy_run.parent
    for words in (
        ("report", numpy_run),
        ("replay", numpy_run, "--round", "2"),
        ("export", numpy_run, "--to", "safetensors", "--out", "model.safetensors"),
        ("list",),
        ("explain", "lenet5"),
        ("schema",),
    ):
        done = without_mxnet(folder, *FEDMX, *words)
        assert done.returncode == 0, (words, done.stderr)
    done = without_mxnet(folder, *FEDMX, "export", numpy_run, "--to", "onnx")
    assert done.returncode == 2
    assert "mxnet" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_mxnet_that_is_missing_is_named_with_the_other_engine(tmp_path: Path) -> None:
    done = without_mxnet(tmp_path, *FEDMX, "run", ROOT / "examples/quickstart.yaml", *SMALL)
    assert done.returncode == 2
    assert "mxnet" in done.stderr
    assert "compute.engine: numpy" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.timeout(300)  # many processes on a busy machine
def test_the_quickstart_runs_on_numpy_where_mxnet_is_missing(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import quickstart; from pathlib import Path; "
        "sys.exit(quickstart.main(Path('quick'), ('rounds=2', 'clients=2')))"
    )
    done = without_mxnet(tmp_path, "-c", code, ROOT / "examples")
    assert done.returncode == 0, done.stderr
    assert len([line for line in done.stdout.splitlines() if "numpy" in line]) == 1
    assert "The final models are the same, bit for bit:" in done.stdout
    for run in tmp_path.glob("quick/*/*/*/run.json"):
        assert json.loads(run.read_text())["facts"]["engine"] == "numpy"


def test_weights_of_one_engine_begin_a_run_of_another(numpy_run: Path, tmp_path: Path) -> None:
    given = ["rounds=1", "compute.train.steps=0", f"compute.start={numpy_run}"]
    (first,) = simulate(Experiment.read(ROOT / "examples/quickstart.yaml", given))
    last = json.loads((numpy_run / "rounds.jsonl").read_text().splitlines()[-1])
    assert first.accuracy == pytest.approx(last["accuracy"], abs=0.005)


@pytest.mark.parametrize("kind", ["onnx", "torch", "safetensors"])
def test_a_named_model_is_exported_from_any_engine_with_its_bits(
    kind: str, numpy_run: Path, tmp_path: Path
) -> None:
    file = tmp_path / f"model.{'onnx' if kind == 'onnx' else 'safetensors'}"
    done = fedmx("export", numpy_run, "--to", kind, "--out", file, cwd=tmp_path)
    assert done.code == 0, done.err
    given = [f"compute.start={start}" for start in (file, numpy_run)]
    one, other = (
        Assembly(Experiment.read(ROOT / "examples/quickstart.yaml", [start])).start
        for start in given
    )
    assert one.weights.tobytes() == other.weights.tobytes()


@pytest.mark.parametrize("engine", ["numpy", pytest.param("torch", marks=pytest.mark.needs_torch)])
def test_one_file_ends_in_the_same_band_on_every_engine(engine: str) -> None:
    pytest.importorskip(engine, reason="needs PyTorch: see .ci/torch")
    compute = {**kinds.TREE["compute"], "model": "lenet5"}
    scaffold = {"preset": {"name": "scaffold", "fraction": 1.0}}
    ends = []
    for name in ("mxnet", engine):
        tree = {**kinds.TREE, "compute": {**compute, "engine": name}, "logic": scaffold}
        *_, last = simulate(Experiment.parse(json.dumps(tree)))
        ends.append((last.accuracy, last.loss, last.report.traffic))
    (accuracy, loss, traffic), (other, other_loss, other_traffic) = ends
    assert accuracy > 0.3
    assert other == pytest.approx(accuracy, abs=0.02)
    assert other_loss == pytest.approx(loss, abs=0.02)
    assert other_traffic == traffic


LIST = ("list", "models", "--json", "--engine")


def test_a_list_has_the_models_of_an_engine() -> None:
    listed = {
        engine: set(json.loads(fedmx(*LIST, engine, cwd=ROOT).out)["models"])
        for engine in ("mxnet", "numpy")
    }
    assert {"logistic", "2nn", "lenet5", "cnn3"} <= listed["numpy"] < listed["mxnet"]
    assert "lstm" not in listed["numpy"]
    assert "'numpi'" in fedmx(*LIST, "numpi", cwd=ROOT).error_text


def test_a_model_of_another_engine_is_refused_with_the_engines_that_have_it() -> None:
    compute = {**NUMPY["compute"], "model": "resnet18-cifar"}
    given = Experiment.parse(json.dumps({**kinds.TREE, "compute": compute}))
    with pytest.raises(ExperimentError, match=r"resnet18-cifar .* numpy.*mxnet"):
        simulate(given)


@pytest.mark.parametrize(("key", "value"), [("device", "cuda"), ("precision", "bf16")])
@pytest.mark.parametrize(("engine", "bits"), [("numpy", "native"), ("torch", "portable")])
def test_a_gpu_and_bf16_are_for_torch_and_promise_no_portable_bits(
    engine: str, bits: str, key: str, value: str
) -> None:
    compute = {**NUMPY["compute"], "engine": engine, "bits": bits, key: value}
    with pytest.raises(ExperimentError, match=rf"compute\.{key}: {value}.*torch.*native"):
        simulate(Experiment.parse(json.dumps({**kinds.TREE, "compute": compute})))


NORMED = """
from torch import nn
def net(classes) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.BatchNorm1d(8), nn.Linear(8, classes))
"""


@pytest.mark.needs_torch
def test_batch_norm_never_meets_a_mini_batch_of_one_sample(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: see .ci/torch")
    (tmp_path / "normed.py").write_text(NORMED)
    compute = {"model": "normed:net", "engine": "torch", "train": {"batch_size": 10}}
    compute |= {"data": "digits", "normalise": {"scale": 16}}
    tree = {"rounds": 1, "clients": 131, "compute": compute, "logic": {"min_updates": 131}}
    tree["logic"]["selector"] = {"name": "uniform", "count": 131}  # of 11 samples each
    (tmp_path / "e.yaml").write_text(json.dumps(tree))
    words = ("run", "e.yaml", "--own-modules")
    done = fedmx(*words, cwd=tmp_path)
    assert done.code == 0, done.err
    for more in ((), ("--dry-run",)):
        alone = fedmx(*words, "--set", "compute.train.batch_size=1", *more, cwd=tmp_path)
        assert alone.code == 2
        assert re.search(r"fedmx: client \d+.* mini-batch of 1:", alone.err)
        assert "resume" not in alone.err
    assert len(list((tmp_path / "runs").iterdir())) == 1, "a run that made no round left a folder"


@pytest.mark.needs_torch
def test_a_gpu_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: see .ci/torch")
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    words = ("run", ROOT / "examples/quickstart.yaml", "--set", "compute.engine=torch")
    said = fedmx(*words, "--set", "compute.device=cuda", cwd=tmp_path).error_text
    assert "cuda" in said
    assert "compute.device" in said


def test_what_ran_on_a_gpu_is_said_to_promise_no_bits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = (run_of(tmp_path, rounds=2, compute=NUMPY["compute"]) for _ in range(2))
    Identity({**one.facts, "device": "cuda (some GPU)"}).write(one.path)
    one = RunFolder.open(one.path)
    assert "cuda (some GPU), on which bits are not promised" in diff(one, other).sentence
    replay(one)
    assert "cuda (some GPU), on which bits are not promised" in caplog.text


def test_a_diff_says_first_that_the_engine_is_another(tmp_path: Path) -> None:
    found = diff(run_of(tmp_path, rounds=2), run_of(tmp_path, rounds=2, compute=NUMPY["compute"]))
    assert found.sentence.startswith("another engine, mxnet against numpy;")
    assert found.divergence.round == 1
