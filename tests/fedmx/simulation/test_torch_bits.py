"""Modules of PyTorch end in the same bits in processes, over TLS, after a stop and in a replay."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedmx import Assembly, Experiment, recorded, serve, simulate
from fedmx.history.replay import replay
from fedmx.simulation.executors.processes import ProcessBackend
from tests.fedmx.command_line import fedmx
from tests.fedmx.fleet import Fleet
from tests.fedmx.kinds import TREE, experiment, outcome
from tests.fedmx.recorded_runs import run_of
from tests.network.conftest import Certificates

pytestmark = [pytest.mark.needs_torch, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[3]
MODELS = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        layers = nn.Linear(784, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3)
        super().__init__(nn.Flatten(), *layers, nn.Linear(16, 10))
"""
KIND: dict[str, Any] = {
    "compute": {
        **TREE["compute"],
        "engine": "torch",
        "model": "torch_models:Net",
        "loss": "distillation",
    },
    "logic": {"preset": {"name": "fedavg", "fraction": 0.7}, "hooks": ["fedprox"]},
}
SCAFFOLD = {**KIND, "logic": {"preset": {"name": "scaffold", "fraction": 0.7}}}
SCAFFOLD["compute"] = {**KIND["compute"], "loss": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the module of the models is."""
    pytest.importorskip("torch", reason="needs PyTorch: see .ci/torch")
    found = tmp_path_factory.mktemp("torch")
    (found / "torch_models.py").write_text(MODELS)
    path = list(sys.path)
    yield found
    sys.path[:] = path


@pytest.mark.parametrize("kind", [KIND, SCAFFOLD])
def test_many_processes_have_the_bits_of_one(kind: dict[str, Any], folder: Path) -> None:
    given = experiment(folder, **kind)
    backend = ProcessBackend(2)
    try:
        assert outcome(given, backend) == outcome(given)
    finally:
        backend.close()


def test_over_tls_it_ends_in_the_bits_of_the_simulation(
    folder: Path, certificates: Certificates, tmp_path: Path
) -> None:
    network = {"address": "127.0.0.1:0", "heartbeat_s": 30, "tls": certificates.files}
    two = {**KIND, "clients": 2, "logic": {"hooks": ["fedprox"]}}  # each process loads PyTorch
    with Fleet(2, certificates) as fleet:
        server = serve(experiment(folder, **two, network=network), "run")
        list(fleet.run(server, tmp_path, folder))
    alone = simulate(experiment(folder, **two))
    list(alone)
    assert server.weights.tobytes() == alone.weights.tobytes()
    assert server.state.buffers.tobytes() == alone.state.buffers.tobytes()


def test_a_stopped_run_goes_on_and_replays_to_the_same_bits(folder: Path, tmp_path: Path) -> None:
    whole = run_of(tmp_path / "whole", modules=folder, **{**TREE, **KIND})
    assert replay(whole, modules=None).same is True
    assert whole.facts["engine"] == "torch"
    assert whole.facts["torch"]
    (whole.path / "status.json").unlink()
    for later in (2, 3):
        whole.checkpoint_path(later).unlink(missing_ok=True)
    before = whole.model_path.read_bytes()
    given = Experiment.parse(whole.experiment_yaml, folder=folder, modules=None)
    list(recorded(simulate(Assembly(given)), whole))
    assert whole.model_path.read_bytes() == before


def test_an_own_module_is_exported_as_its_state_dict_and_has_no_graph(
    folder: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    run = run_of(tmp_path, modules=folder, **{**TREE, **KIND})
    import torch_models

    words = ("export", run.path, "--own-modules", "--to")
    assert fedmx(*words, "torch", "--out", "net.safetensors", cwd=tmp_path).code == 0
    module, state = torch_models.Net(), load_file(tmp_path / "net.safetensors")
    module.load_state_dict(state)  # strict: with BatchNorm's counter
    final = load_file(run.model_path)
    assert final.keys() < state.keys()
    assert all(state[name].equal(value) for name, value in final.items())
    assert not (tmp_path / "net.py").exists()
    assert "--to torch" in fedmx(*words, "onnx", cwd=tmp_path).error_text


def printed(example: str) -> list[str]:
    """The lines that an example prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(ROOT / "examples" / example)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_example_trains_a_users_own_module_and_dataset(folder: Path) -> None:
    *_, last = printed("torch_model_and_data.py")
    assert float(last.split()[1].rstrip("%")) > 70


def test_the_example_of_adapters_sends_no_frozen_base(folder: Path) -> None:
    first, *_, last = printed("torch_lora.py")
    sent, whole = (int(number) for number in re.findall(r"\d+", first))
    assert sent < whole / 5
    mib = float(re.findall(r"([\d.]+) MiB up", last)[0])
    assert mib == pytest.approx(5 * 4 * sent / 2**20, abs=0.02)  # five clients, float32
