"""`compute.bits: portable`: one instruction set for every process of a federation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from fedmx import Experiment, simulate
from fedmx.run import RunFolder
from fedmx.run.identity import Identity
from layers.compute.bits import (
    PORTABLE_ENVIRONMENT,
    OtherInstructionsError,
    cpu_flags,
    is_portable,
)
from tests.fedmx.command_line import fedmx
from tests.fedmx.processes import Deployment
from tests.network.conftest import Certificates

CLIENTS = 2
EXPERIMENT = """\
name: small
rounds: 2
clients: 2
compute:
  bits: portable
  model: {model}
  data: {data}
  normalise: {{scale: {scale}}}
  train: {{steps: 3, batch_size: 10, learning_rate: 0.05}}
  evaluate: {{every: 2}}
logic: {{selector: {{name: uniform, count: 2}}}}
"""


def write(folder: Path, model: str) -> Path:
    rng = np.random.default_rng(1)
    data, scale = "digits", 16
    if model == "lstm":
        x, y = rng.integers(0, 50, (60, 25)).astype(np.float32), rng.integers(0, 2, 60)
        np.savez(folder / "tweets.npz", x_train=x, y_train=y, x_test=x[:10], y_test=y[:10])
        scale = 1
        data = f"{{name: arrays, path: {folder / 'tweets.npz'}}}"
        model = "{name: lstm, vocabulary: 50, dimensions: 8}"
    path = folder / "small.yaml"
    path.write_text(EXPERIMENT.format(model=model, data=data, scale=scale), encoding="utf-8")
    return path


def final_model(folder: Path, *words: str, **environment: str) -> bytes:
    """Run the experiment by a command, and return the bytes of its final model."""
    kept = set(folder.glob("runs/*"))
    result = fedmx("run", "small.yaml", *words, cwd=folder, **environment)
    assert result.code == 0, result.err
    assert "Warning" not in result.err
    (run,) = set(folder.glob("runs/*")) - kept
    portable = "bits=native" not in " ".join(words)
    assert (facts_of(run)["instructions"] == "portable") == portable
    return (run / "model.safetensors").read_bytes()


def facts_of(run: Path) -> Mapping[str, object]:
    return RunFolder.open(run).facts


@pytest.mark.parametrize("model", ["lenet5", "lstm"])
def test_it_gives_the_bits_of_a_machine_that_has_no_better_instructions(
    model: str, tmp_path: Path
) -> None:
    write(tmp_path, model)
    # numpy warns of a feature that the CPU does not have.
    better = " ".join(name for name in ("AVX512F", "AVX512CD") if name.lower() in cpu_flags())
    restricted = dict(PORTABLE_ENVIRONMENT) | {"NPY_DISABLE_CPU_FEATURES": better}
    portable = final_model(tmp_path)
    assert portable == final_model(tmp_path, "--set", "compute.bits=native", **restricted)
    assert portable == final_model(tmp_path, "--executor", "processes:2")


def test_a_server_and_clients_that_begin_natively_all_become_portable(
    tmp_path: Path, certificates: Certificates
) -> None:
    deployment = Deployment(tmp_path, write(tmp_path, "lenet5"), certificates)
    try:
        server = deployment.serve()
        clients = [deployment.client(number, CLIENTS) for number in range(CLIENTS)]
        assert [one.code() for one in (server, *clients)] == [0, 0, 0], server.output
        for client in clients:
            assert "portable instructions" in client.output
            assert "Traceback" not in client.output
        run = deployment.run
    finally:
        deployment.end()
    deployed = (run.path / "model.safetensors").read_bytes()
    assert facts_of(run.path)["instructions"] == "portable"
    assert deployed == final_model(tmp_path)


@pytest.mark.skipif(is_portable(), reason="this process is portable itself")
def test_a_program_that_has_begun_natively_is_told_what_to_do(tmp_path: Path) -> None:
    experiment = Experiment.read(write(tmp_path, "2nn"))
    with pytest.raises(OtherInstructionsError, match="start Python with DNNL_MAX_CPU_ISA='AVX2'"):
        simulate(experiment)


def test_a_run_that_goes_on_with_other_instructions_says_so(tmp_path: Path) -> None:
    write(tmp_path, "2nn")
    result = fedmx("run", "small.yaml", "--set", "compute.bits=native", cwd=tmp_path)
    assert result.code == 0, result.err
    (run,) = tmp_path.glob("runs/*")
    facts = facts_of(run)
    Identity({**facts, "instructions": "sse4_1"}).write(run)
    (run / "status.json").unlink()  # as if it had been killed
    result = fedmx("resume", str(run), cwd=tmp_path)
    differing = f"instructions sse4_1 against {facts['instructions']}"
    assert f"the run goes on with {differing}: " in result.err
    assert facts_of(run)["resumed"] == [[differing]]


def test_native_experiments_keep_the_digest_that_they_had_without_the_key() -> None:
    tree = {"rounds": 1, "clients": 2, "compute": {"model": "2nn", "data": "digits"}}
    native = Experiment.from_dict(tree)
    assert native.digest() == native.with_overrides(["compute.bits=native"]).digest()
    assert native.digest() != native.with_overrides(["compute.bits=portable"]).digest()


def test_a_variable_in_the_users_shell_decides_no_bit(tmp_path: Path) -> None:
    write(tmp_path, "2nn")
    plain = final_model(tmp_path, "--set", "compute.bits=native")
    given = {"MXNET_SUBGRAPH_BACKEND": "MKLDNN", "MXNET_SAFE_ACCUMULATION": "1"}
    assert final_model(tmp_path, "--set", "compute.bits=native", **given) == plain
    for run in tmp_path.glob("runs/*"):
        assert facts_of(run)["variables"]["MXNET_SUBGRAPH_BACKEND"] == "default"


def test_a_run_that_goes_on_with_another_variable_says_so(tmp_path: Path) -> None:
    write(tmp_path, "2nn")
    native = ("--set", "compute.bits=native")
    result = fedmx("run", "small.yaml", *native, cwd=tmp_path, NPY_PROMOTION_STATE="weak")
    assert result.code == 0, result.err
    (run,) = tmp_path.glob("runs/*")
    (run / "status.json").unlink()  # as if it had been killed
    result = fedmx("resume", str(run), cwd=tmp_path)
    assert "NPY_PROMOTION_STATE=weak" in result.err
    (differing,) = facts_of(run)["resumed"][0]
    assert differing.startswith("variables ")


def test_another_minor_version_goes_on_only_if_that_is_allowed(tmp_path: Path) -> None:
    write(tmp_path, "2nn")
    result = fedmx("run", "small.yaml", "--set", "compute.bits=native", cwd=tmp_path)
    assert result.code == 0, result.err
    (run,) = tmp_path.glob("runs/*")
    facts = facts_of(run)
    (run / "status.json").unlink()  # as if it had been killed
    Identity({**facts, "fedmx": "0.0.9"}).write(run)
    result = fedmx("resume", str(run), cwd=tmp_path)
    assert result.code == 2
    assert "fedmx 0.0.9" in result.err
    assert "--allow-version" in result.err
    assert result.err.count("\n") == 1
    result = fedmx("resume", str(run), "--allow-version", cwd=tmp_path)
    assert result.code == 0, result.err
    assert facts_of(run)["resumed"] == [[f"fedmx 0.0.9 against {facts['fedmx']}"]]
    Identity({**facts, "fedmx": facts["fedmx"] + "9"}).write(run)
    (run / "status.json").unlink()
    assert fedmx("resume", str(run), cwd=tmp_path).code == 0, "of the same minor version"
