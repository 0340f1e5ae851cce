"""Clients that train at once: the models of those that train alone, with any number of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedmx
from fedmx import Experiment, ExperimentError, simulate
from fedmx.history.recorded import facts_here, other_versions
from fedmx.history.replay import replay
from layers.logic import ClientFailed
from tests.fedmx.kinds import KINDS, TREE, experiment, outcome, write_models
from tests.fedmx.recorded_runs import run_of
from tests.fedmx.simulation.test_executors import MemoryCrew

pytestmark = [pytest.mark.needs_torch, pytest.mark.timeout(300)]

MODELS = """
from torch import nn


class Normed(nn.Sequential):
    def __init__(self):
        layers = nn.Linear(784, 16), nn.BatchNorm1d(16), nn.ReLU()
        super().__init__(nn.Flatten(), *layers, nn.Linear(16, 10))


class Dropping(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(784, 16), nn.Dropout(0.5), nn.Linear(16, 10))
"""
# Why clients of a kind train one after the other.
ALONE = {
    "ditto": "DittoTrainer",
    "own head": "FedRepTrainer",
    "own norm": "BatchNorm",
    "kept state": "adamw",
    "loss with a reference": "BatchNorm",
    "dropout": "dropout",
    "batch norm": "BatchNorm",
    "round memory": "Counts",
}
# A codec that keeps the largest values may keep others where two are almost equal.
SPARSE = ("projected stc", "passes", "asynchronous")
SCAFFOLD = {"preset": {"name": "scaffold", "fraction": 1.0}}
TORCH = {**TREE["compute"], "engine": "torch"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the modules of the models and parts are."""
    pytest.importorskip("torch", reason="needs PyTorch: see .ci/torch")
    found = tmp_path_factory.mktemp("cohort")
    write_models(found)
    (found / "kind_models.py").write_text(MODELS)
    return found


def of_torch(folder: Path, executor: Any, **changed: Any) -> Experiment:
    compute = {**TORCH, **changed.pop("compute", {}), "engine": "torch"}
    return experiment(folder, **{"compute": compute, "executor": executor, **changed})


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_ends_in_the_model_of_clients_that_train_alone(
    kind: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = []
    for executor in ("serial", {"cohort": {"clients": 4}}):
        with simulate(of_torch(folder, executor, **{**KINDS[kind], "rounds": 1})) as simulation:
            list(simulation)
        models.append(simulation.weights)
    said = [one.getMessage() for one in caplog.records if "one after the other" in one.getMessage()]
    agree = np.isclose(*models, rtol=0, atol=1e-5)
    assert agree.mean() > 0.99 if kind in SPARSE else agree.all()
    assert [ALONE[kind] in line for line in said] == [True] if kind in ALONE else not said


@pytest.fixture(scope="module")
def one_process(folder: Path) -> list[Any]:
    return outcome(of_torch(folder, {"cohort": {"clients": 2}}, logic=SCAFFOLD))


@settings(max_examples=8)
@given(
    size=st.integers(1, 4),
    deaths=st.integers(0, 2),
    draw=st.randoms(use_true_random=False),
    depth=st.integers(1, 2),
)
def test_any_number_of_workers_and_any_deaths_give_the_bits_of_one_process(
    folder: Path, one_process: list[Any], size: int, deaths: int, draw: Any, depth: int
) -> None:
    backend = MemoryCrew(size, draw.randrange, deaths, depth)
    given = of_torch(folder, {"ray": {"clients": 2}}, logic=SCAFFOLD)
    assert outcome(given, backend) == one_process
    assert not backend.shared, "every shared buffer is released"


def test_a_run_records_it_and_replays_to_the_same_bits(folder: Path, tmp_path: Path) -> None:
    tree = {**TREE, "compute": TORCH, "logic": SCAFFOLD, "executor": {"cohort": {"clients": 3}}}
    run = run_of(tmp_path, modules=folder, **tree)
    assert run.facts["cohort"] == 3
    assert replay(run, modules=None).same is True
    here = facts_here(Experiment.parse(run.experiment_yaml, folder=folder, modules=None))
    assert ["cohort:3" in line for line in other_versions(run.facts, here)] == [True]


FAILS = """
from dataclasses import dataclass

from fedmx import ClientSide, Hook


@dataclass(frozen=True)
class Fails(Hook):
    class Client(ClientSide):
        def send(self, update, context):
            if update.client == 4:
                raise ValueError("too warm")
            return update
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_names_its_client(folder: Path, workers: int) -> None:
    (folder / "fails.py").write_text(FAILS)
    given = of_torch(folder, {"cohort": {"clients": 3}}, logic={"hooks": ["fails:Fails"]})
    backend = MemoryCrew(workers, lambda n: 0) if workers else None
    with pytest.raises(ClientFailed, match="too warm") as raised, simulate(given, backend) as one:
        list(one)
    assert raised.value.client == 4


def test_another_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"compute\.engine: torch"):
        simulate(experiment(tmp_path, executor="cohort"))


def test_on_ray_a_worker_that_is_lost_repeats_its_clients(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs Ray")
    monkeypatch.setenv("RAY_worker_niceness", "0")
    monkeypatch.setenv("PYTHONPATH", str(Path(fedmx.__file__).parents[1]))
    killed = tmp_path / "killed"
    hooks = [{"name": "kind_parts:Kills", "file": str(killed)}]
    logic = {"preset": {"name": "fedavg", "fraction": 1.0}, "hooks": hooks}
    on_ray = outcome(of_torch(folder, {"ray": {"workers": 2, "clients": 2}}, logic=logic))
    assert killed.exists()
    assert outcome(of_torch(folder, {"cohort": {"clients": 2}}, logic=logic)) == on_ray
