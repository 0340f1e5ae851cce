"""Evaluation by clients: over mutual TLS as in a simulation, and without data on the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as reference
from safetensors.numpy import load_file

from fedmx import Experiment, RunFolder, recorded, simulate
from fedmx.assembly.assembly import Assembly
from fedmx.client.participant import Participant
from fedmx.errors import ExperimentError
from fedmx.server.evaluation import of_clients
from layers.compute.data.targets import Targets
from layers.compute.engines.evaluation import Evaluator
from layers.compute.losses import Softmax
from layers.compute.metrics.classes import MacroF1
from layers.logic import ClientLedger, LogicError, Question
from tests.fedmx.processes import Deployment
from tests.fedmx.recorded_runs import record
from tests.fedmx.timeless import timeless
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # several processes on a busy machine

CLIENTS = 4
EXPERIMENT = """
name: sites
seed: 5
rounds: 3
clients: 4
compute:
  engine: numpy
  model: logistic
  data: {DATA}
  normalise: federated
  train: {epochs: 2, learning_rate: 0.05}
  evaluate:
    validation: 0.25
    clients: {every: 2, fraction: 0.6}
    metrics: [rmse, r2, mae]
logic:
  preset: {name: fedavg, fraction: 0.5}
"""
ARRAYS = "{name: arrays, path: sites.npz}"
DECLARED = "{name: declared, shape: [6], targets: real, size: 1}"


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 6)).astype("f")
    y = (x @ rng.normal(size=6) + 0.1 * rng.normal(size=120)).astype("f")
    return {"x_train": x[:80], "y_train": y[:80], "x_test": x[80:], "y_test": y[80:]}


def deployed(folder: Path, data: str, certificates: Certificates) -> RunFolder:
    file = folder / "experiment.yaml"
    file.write_text(EXPERIMENT.replace("{DATA}", data))
    own = str(folder / "sites.npz")
    np.savez(own, **arrays())
    with Deployment(folder, file, certificates) as deployment:
        server = deployment.serve()
        more = "--data", own, "--keep-model", str(folder / "kept.safetensors")
        clients = [deployment.client(one, CLIENTS, *more) for one in range(CLIENTS)]
        for process in (server, *clients):
            assert process.code() == 0, process.output
        return deployment.run


Runs = dict[str, RunFolder]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Runs:
    """A run simulated, deployed, and deployed with a server that has no data."""
    folders = {one: tmp_path_factory.mktemp(one) for one in ("with", "without")}
    made = {
        "deployed": deployed(folders["with"], ARRAYS, certificates),
        "without": deployed(folders["without"], DECLARED, certificates),
    }
    path = f"compute.data.path={folders['with'] / 'sites.npz'}"
    experiment = Experiment.read(folders["with"] / "experiment.yaml", [path], modules=None)
    return {**made, "simulated": record(experiment, folders["with"] / "simulated")}


def test_a_deployment_evaluates_as_a_simulation_does(runs: Runs) -> None:
    simulated, over_tls = runs["simulated"], runs["deployed"]
    assert simulated.model_path.read_bytes() == over_tls.model_path.read_bytes()
    other = ("control_bytes", "rejected_connections", "chain")
    assert timeless(simulated.rounds(), *other) == timeless(over_tls.rounds(), *other)
    assert timeless(simulated.clients()) == timeless(over_tls.clients())
    assert list(simulated.evaluations()) == list(over_tls.evaluations())
    rounds = over_tls.rounds()
    assert ["rmse" in one for one in rounds] == [False, True, True]
    assert [one.get("test") is not None for one in rounds] == [False, False, True]
    asked = [one["round"] for one in over_tls.evaluations()]
    assert asked == [2] * 2 + [3] * 4  # 60 % of 4 clients, and all of them at the end


def test_clients_keep_the_final_model(runs: Runs) -> None:
    kept = runs["deployed"].path.parents[1] / "kept.safetensors"
    final = load_file(runs["deployed"].model_path)
    for path in (kept, kept.with_stem("kept-best")):
        found = load_file(path)
        assert found.keys() == final.keys()
    assert all(np.array_equal(load_file(kept)[name], final[name]) for name in final)


def test_a_server_without_data_ends_in_the_same_model_and_results(runs: Runs) -> None:
    with_data, without = runs["deployed"], runs["without"]
    assert with_data.model_path.read_bytes() == without.model_path.read_bytes()
    assert list(with_data.evaluations()) == list(without.evaluations())
    for one, other in zip(with_data.rounds(), without.rounds(), strict=True):
        assert "test" not in other
        for key in ("loss", "rmse", "r2", "mae", "up_bytes", "down_bytes"):
            assert one.get(key) == other.get(key)


def test_the_last_results_are_those_of_the_last_model_on_samples_that_nobody_trained_on(
    runs: Runs,
) -> None:
    run = runs["deployed"]
    model = load_file(run.model_path)
    weight, bias = (model[name] for name in sorted(model, key=lambda one: model[one].ndim)[::-1])
    last = run.rounds()[-1]

    def values(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
        z = x @ weight[0] + bias[0]
        return {
            "rmse": np.sqrt(reference.mean_squared_error(y, z)),
            "mae": reference.mean_absolute_error(y, z),
            "r2": reference.r2_score(y, z),
        }

    file = run.path.parents[1] / "sites.npz"
    assembly = Assembly(run.experiment([f"compute.data.path={file}"]))
    test = assembly.data.test_samples
    on_test = values(test.x, test.y[:, 0])
    assert {key: last["test"][key] for key in on_test} == pytest.approx(on_test, rel=1e-5)
    asked = [one["client"] for one in run.evaluations() if one["round"] == 3]
    tests = [assembly.tests_of(client) for client in asked]
    x, y = (np.concatenate([getattr(one, name) for one in tests]) for name in ("x", "y"))
    assert {key: last[key] for key in on_test} == pytest.approx(values(x, y[:, 0]), rel=1e-5)
    for client in range(CLIENTS):
        held = {row.tobytes() for row in assembly.tests_of(client).x}
        assert not held & {row.tobytes() for row in assembly.samples_of(client).x}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (
            {
                "privacy": {"name": "central", "epsilon": 8, "clip": 1, "delta": 1e-5},
                "logic": {
                    "selector": {"name": "poisson", "probability": 0.5},
                    "aggregator": {"name": "mean", "weights": "uniform"},
                },
            },
            "compute.evaluate.clients",
        ),
        ({"logic": {"preset": "fedper"}}, "compute.evaluate.clients"),
        ({"compute": {"evaluate": {"clients": {}, "per_client": True}}}, "per_client"),
        ({"compute": {"evaluate": {"validation": 0.1, "personal": True}}}, "personal"),
        ({"compute": {"data": {"name": "declared", "shape": [64], "size": 10}}}, "--data FILE"),
    ],
)
def test_what_clients_cannot_evaluate_is_refused(changed: dict[str, Any], named: str) -> None:
    compute = {"engine": "numpy", "model": "2nn", "data": "digits", "normalise": {"scale": 16}}
    tree = {"rounds": 1, "clients": 3, "logic": {"preset": "fedavg"}, **changed}
    tree["compute"] = {**compute, "evaluate": {"clients": {}}, **changed.get("compute", {})}
    with pytest.raises(ExperimentError, match=named), simulate(Experiment(**tree)) as simulation:
        list(simulation)


def test_validation_is_taken_from_the_training_samples_and_the_test_split_is_touched_once(
    tmp_path: Path,
) -> None:
    compute = {"engine": "numpy", "model": "2nn", "data": "digits", "normalise": {"scale": 16}}
    evaluate = {"validation": 0.2, "metrics": ["macro-f1", "accuracy"]}
    tree = {"rounds": 3, "clients": 4, "compute": {**compute, "evaluate": evaluate}}
    experiment = Experiment(**tree, stop={"patience": 5})
    assembly = Assembly(experiment)
    whole, trained = assembly.data.whole.train, np.concatenate(list(assembly.parts[0]))
    assert len(trained) + len(assembly.evaluated_samples) == len(whole)
    assert not np.isin(assembly.held_back.validation, trained).any()
    counts = np.bincount(assembly.evaluated_samples.y)
    assert counts.max() - counts.min() <= 1  # balanced
    run = RunFolder.create(tmp_path, "run", experiment.to_yaml(), {})
    for _ in recorded(simulate(experiment), run):
        pass
    rounds = run.rounds()
    assert [*rounds[-1]["test"]] == ["loss", "accuracy", "macro_f1"]
    assert all("macro_f1" in one for one in rounds)
    assert all("test" not in one for one in rounds[:-1])


RIGHT = {"loss": [3.0, 6.0], "accuracy": [2.0, 6.0], "macro_f1": [1.0, 1.0, 3.0, 1.0]}


@pytest.mark.parametrize(
    "lie",
    [
        {"loss": [3.0, 0.0]},
        {"loss": [3.0, -6.0]},
        {"loss": [3.0, 6.5]},
        {"loss": [3.0, 1e300]},
        {"loss": [np.inf, 6.0]},
        {"accuracy": [np.nan, 6.0]},
        {"accuracy": [60.0, 6.0]},
        {"accuracy": [-1.0, 6.0]},
        {"macro_f1": [1.0, 1.0]},
        {"macro_f1": [1e250, 1.0, 3.0, 1.0]},
        {"other": [1.0]},
    ],
    ids=str,
)
def test_results_that_no_samples_can_have_are_left_out_and_logged(
    lie: dict[str, list[float]], caplog: pytest.LogCaptureFixture
) -> None:
    of = Evaluator((MacroF1(),), Softmax(), Targets("classes", 2))
    honest = {name: np.array(one) for name, one in RIGHT.items()}
    lying = {**honest, **{name: np.array(one) for name, one in lie.items()}}
    alone = of_clients(of, {0: honest}, untrusted=True)
    assert of_clients(of, {0: honest, 7: lying, 8: {}}, untrusted=True) == alone
    assert "client 7" in caplog.text
    assert "client 8" not in caplog.text
    with pytest.raises(ValueError, match="not the sums"):
        of_clients(of, {7: lying}, untrusted=False)


def test_a_client_evaluates_only_where_the_experiment_says_so() -> None:
    compute = {"engine": "numpy", "model": "2nn", "data": "digits", "normalise": {"scale": 16}}
    local = {"name": "local", "noise": 1, "clip": 1, "delta": 1e-5}
    for privacy in ({}, {"privacy": local}):
        assembly = Assembly(Experiment(rounds=1, clients=3, compute=compute, **privacy))
        one = Participant(0, assembly.logic, assembly.client_compute(0), ClientLedger())
        question = Question("evaluate", values=99, weights=assembly.engine.weights.copy())
        with pytest.raises(LogicError, match="do not evaluate"):
            one.answer(question)


def test_the_success_of_an_attack_is_measured_where_clients_evaluate() -> None:
    compute = {"engine": "numpy", "model": "2nn", "data": "digits", "normalise": {"scale": 16}}
    tree = {"rounds": 1, "clients": 3, "compute": {**compute, "evaluate": {"clients": {}}}}
    attack = {"name": "back-door", "clients": 0.4}
    with simulate(Experiment(**tree, attack=attack)) as simulation:
        (round,) = simulation
    assert {"accuracy", "loss"} <= round.evaluation.values.keys()
    assert "attack_success" in round.record()
