"""The tasks in examples/tasks: each by simulation and over mutual TLS, with equal bits."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from fedmx import Experiment, simulate
from fedmx.assembly.assembly import Assembly
from tests.fedmx.processes import Deployment
from tests.fedmx.recorded_runs import record
from tests.fedmx.timeless import timeless
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # several processes on a busy machine

TASKS = Path(__file__).resolve().parents[3] / "examples" / "tasks"
DEPLOYED = {
    "regression": ["rmse", "r2", "mae"],
    "multi_label": ["macro_f1", "micro_f1", "exact_match", "auc"],
    "imbalanced": ["macro_f1", "balanced_accuracy", "per_class_accuracy", "confusion_matrix"],
    "characters": ["perplexity", "accuracy", "top_k_accuracy"],
}
SMALL = {
    "rounds": "2",
    "logic.selector.fraction": "1.0",
    "compute.evaluate.per_client": "false",
    "compute.train.epochs": "1",
}


def small(task: str, folder: Path) -> Path:
    """Write a task of two rounds into a folder."""
    file = folder / f"{task}.yaml"
    overrides = [f"{key}={value}" for key, value in SMALL.items()]
    file.write_text(Experiment.read(TASKS / file.name, overrides, modules=None).to_yaml())
    return file


@pytest.mark.parametrize("task", DEPLOYED)
def test_a_task_is_deployed_with_the_bits_of_its_simulation(
    task: str, tmp_path: Path, certificates: Certificates
) -> None:
    file = small(task, tmp_path)
    number = yaml.safe_load(file.read_text())["clients"]
    modules = ("--module", "task_data", "--module", "task_models")
    for module in TASKS.glob("*.py"):
        shutil.copyfile(module, tmp_path / module.name)
    with Deployment(tmp_path, file, certificates) as deployment:
        server = deployment.serve()
        clients = [deployment.client(one, number, *modules) for one in range(number)]
        for process in (server, *clients):
            assert process.code() == 0, process.output
        over_tls = deployment.run
    given = Experiment.read(file, folder=TASKS, modules=None)
    simulated = record(given, tmp_path / "simulated")
    assert simulated.model_path.read_bytes() == over_tls.model_path.read_bytes()
    other = ("control_bytes", "rejected_connections", "chain")
    assert timeless(simulated.rounds(), *other) == timeless(over_tls.rounds(), *other)
    assert list(simulated.evaluations()) == list(over_tls.evaluations())
    last = over_tls.rounds()[-1]
    assert [key for key in DEPLOYED[task] if last.get(key) is None] == []


@pytest.mark.parametrize("engine", ["numpy", pytest.param("torch", marks=pytest.mark.needs_torch)])
@pytest.mark.parametrize("task", ["regression", "multi_label", "imbalanced"])
def test_a_task_of_a_named_model_is_the_same_on_each_engine(task: str, engine: str) -> None:
    if engine == "torch":
        pytest.importorskip("torch", reason="needs PyTorch: see .ci/torch")
    ends = []
    for one in ("mxnet", engine):
        overrides = [*(f"{key}={value}" for key, value in SMALL.items()), f"compute.engine={one}"]
        experiment = Experiment.read(TASKS / f"{task}.yaml", overrides, modules=None)
        with simulate(experiment) as simulation:
            ends.append([round.evaluation.values for round in simulation][-1])
    for key, value in ends[0].items():
        np.testing.assert_allclose(ends[1][key], np.array(value, float), atol=2e-3, err_msg=key)
    assert ends[0]["loss"] == pytest.approx(ends[1]["loss"], abs=1e-4)


def test_every_task_has_a_file_that_can_be_read() -> None:
    for file in TASKS.glob("*.yaml"):
        experiment = Experiment.read(file, modules=None)
        if experiment.compute.engine != "torch":
            assert Assembly(experiment).metrics
