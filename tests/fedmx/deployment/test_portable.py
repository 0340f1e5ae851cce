"""`compute.bits: portable`: one instruction set for every process of a federation."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedmx import Experiment, simulate
from fedmx.run import RunFolder
from fedmx.run.identity import Identity
from layers.compute.bits import (
    NUMPYS_NOTICE,
    PORTABLE_ENVIRONMENT,
    OtherInstructionsError,
    is_portable,
)
from tests.fedmx.command_line import CommandResult, fedmx
from tests.fedmx.processes import Deployment
from tests.fedmx.recorded_runs import record
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # each process of PyTorch loads it

MODEL = """
from mxnet.gluon import Block, nn, rnn


def convolution_and_lstm(classes) -> Block:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(6, kernel_size=5, padding=2, activation="relu"),
        nn.MaxPool2D(4),
        nn.HybridLambda(lambda F, x: F.reshape(x, shape=(0, 6, -1))),
        rnn.LSTM(20, num_layers=2, layout="NTC", input_size=49),
        nn.Dense(classes),
    )
    return net
"""
EXPERIMENT = """\
name: small
rounds: 2
clients: 1
compute:
  bits: {bits}
  engine: {engine}
  model: {model}
  data: digits
  normalise: {{scale: 16}}
  train: {{steps: 3, batch_size: 10, learning_rate: 0.05}}
  evaluate: {{every: 2}}
"""
# The limits of a portable run, set from outside: the process does not take itself for portable.
RESTRICTED = dict(PORTABLE_ENVIRONMENT) | {
    "NPY_DISABLE_CPU_FEATURES": " ".join(
        reversed(PORTABLE_ENVIRONMENT["NPY_DISABLE_CPU_FEATURES"].split())
    ),
    "PYTHONWARNINGS": NUMPYS_NOTICE,
}
IN_THE_SHELL = {"MXNET_SUBGRAPH_BACKEND": "MKLDNN", "MXNET_SAFE_ACCUMULATION": "1"}


def write(
    folder: Path,
    bits: str = "portable",
    model: str = "portable_model:convolution_and_lstm",
    engine: str = "mxnet",
) -> Path:
    (folder / "portable_model.py").write_text(MODEL)
    path = folder / "small.yaml"
    path.write_text(EXPERIMENT.format(bits=bits, model=model, engine=engine))
    return path


def ran(folder: Path, *words: str, **environment: str) -> RunFolder:
    """Run the experiment by a command in a process of its own."""
    kept = set(folder.glob("runs/*"))
    result = fedmx("run", "small.yaml", "--own-modules", *words, cwd=folder, **environment)
    assert result.code == 0, result.err
    assert "Warning" not in result.err
    (run,) = set(folder.glob("runs/*")) - kept
    return RunFolder.open(run)


@pytest.fixture(
    scope="module",
    params=[
        ("portable_model:convolution_and_lstm", "mxnet"),
        *(
            pytest.param((model, "torch"), marks=pytest.mark.needs_torch)
            for model in ("2nn", "lenet5")
        ),
    ],
)
def model(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A model, and its engine."""
    if request.param[1] == "torch":
        pytest.importorskip("torch", reason="needs PyTorch: see .ci/torch")
    found: tuple[str, str] = request.param
    return found


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory, model: tuple[str, str]) -> RunFolder:
    """A run whose process begins natively."""
    folder = tmp_path_factory.mktemp("portable")
    write(folder, "portable", *model)
    return ran(folder)


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory, model: tuple[str, str]) -> RunFolder:
    """A native run on a machine without better instructions, with more in the user's shell."""
    folder = tmp_path_factory.mktemp("restricted")
    write(folder, "native", *model)
    return ran(folder, **RESTRICTED, **IN_THE_SHELL)


@pytest.fixture
def native(native_run: Path, tmp_path: Path) -> Path:
    """A native run, as if it had been killed after its last round."""
    copy = shutil.copytree(native_run, tmp_path / native_run.name)
    (copy / "status.json").unlink()
    return copy


@pytest.fixture(scope="module")
def native_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native")
    return record(Experiment.read(write(folder, "native", "logistic")), folder / "runs").path


def test_it_gives_the_bits_of_a_machine_without_better_instructions_whatever_the_shell_sets(
    portable: RunFolder, restricted: RunFolder
) -> None:
    assert portable.facts["instructions"] == "portable"
    assert restricted.facts["instructions"] != "portable"
    if restricted.facts["engine"] == "mxnet":
        assert restricted.facts["variables"]["MXNET_SUBGRAPH_BACKEND"] == "default"
    assert portable.model_path.read_bytes() == restricted.model_path.read_bytes()


def test_workers_are_portable(portable: RunFolder, model: tuple[str, str], tmp_path: Path) -> None:
    write(tmp_path, "portable", *model)
    by_worker = ran(tmp_path, "--executor", "processes:1")
    assert by_worker.model_path.read_bytes() == portable.model_path.read_bytes()


def test_a_server_and_clients_that_begin_natively_all_become_portable(
    portable: RunFolder, model: tuple[str, str], tmp_path: Path, certificates: Certificates
) -> None:
    with Deployment(tmp_path, write(tmp_path, "portable", *model), certificates) as deployment:
        server = deployment.serve()
        client = deployment.client(0, 1, "--module", "portable_model")
        assert [one.code() for one in (server, client)] == [0, 0], server.output
        assert "portable instructions" in client.output
        assert "Traceback" not in client.output
        run = deployment.run
    assert run.facts["instructions"] == "portable"
    assert run.model_path.read_bytes() == portable.model_path.read_bytes()


@pytest.mark.skipif(is_portable(), reason="this process is portable itself")
def test_a_program_that_has_begun_natively_is_told_what_to_do(tmp_path: Path) -> None:
    experiment = Experiment.read(write(tmp_path, model="2nn"))
    with pytest.raises(OtherInstructionsError, match="start Python with DNNL_MAX_CPU_ISA='AVX2'"):
        simulate(experiment)


def resumed(run: Path, *words: str, **facts: object) -> CommandResult:
    """Go on with a run that began with other facts; words and facts of the resumed run."""
    Identity({**RunFolder.open(run).facts, **facts}).write(run)
    (run / "status.json").unlink(missing_ok=True)
    return fedmx("resume", str(run), *words, cwd=run.parent)


@pytest.mark.parametrize(
    ("fact", "told"),
    [
        ({"instructions": "sse4_1"}, "instructions sse4_1 against "),
        ({"variables": {"NPY_PROMOTION_STATE": "weak"}}, "variables NPY_PROMOTION_STATE=weak"),
    ],
)
def test_a_run_that_goes_on_with_other_instructions_or_variables_says_so(
    native: Path, fact: dict[str, object], told: str
) -> None:
    result = resumed(native, **fact)
    assert result.code == 0, result.err
    (differing,) = RunFolder.open(native).facts["resumed"][0]
    assert differing.startswith(told)
    assert f"the run goes on with {differing}: " in result.err


def test_native_experiments_keep_the_digest_that_they_had_without_the_key() -> None:
    tree = {"rounds": 1, "clients": 2, "compute": {"model": "2nn", "data": "digits"}}
    native = Experiment.from_dict(tree)
    assert native.digest() == native.with_overrides(["compute.bits=native"]).digest()
    assert native.digest() != native.with_overrides(["compute.bits=portable"]).digest()


def test_another_minor_version_goes_on_only_if_that_is_allowed(native: Path) -> None:
    here = RunFolder.open(native).facts["fedmx"]
    error = resumed(native, fedmx="0.0.9").error_text
    assert "fedmx 0.0.9" in error
    assert "--allow-version" in error
    result = resumed(native, "--allow-version", fedmx="0.0.9")
    assert result.code == 0, result.err
    assert RunFolder.open(native).facts["resumed"] == [[f"fedmx 0.0.9 against {here}"]]
    assert resumed(native, fedmx=here + "9").code == 0, "of the same minor version"
