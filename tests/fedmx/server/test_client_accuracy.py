"""The accuracy on each client's own test samples: measured, shown, and a reason to stop."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import Assembly, Experiment, ExperimentError, RunFolder, simulate
from fedmx.report.curves import AXES, BY_CLIENT, draw, has_values
from fedmx.report.groups import Group, common_client_target, comparison
from fedmx.report.summary import RunSummary, deviation
from layers.compute.data.dataset import Samples
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.models import build_model
from layers.compute.errors import ComputeError


def experiment(**changed: Any) -> Experiment:
    compute = {
        "model": "2nn",
        "data": "digits",
        "normalise": {"scale": 16},
        "partition": {"name": "shards", "per_client": 2},
        "evaluate": {"per_client": True, "batch_size": 100},
        "train": {"batch_size": 20},
    }
    return Experiment(**{"rounds": 3, "clients": 8, "compute": compute, **changed})


def record(number: int, mean: float | None, variance: float | None) -> dict[str, Any]:
    return {
        "round": number,
        "accuracy": 0.1 * number,
        "client_accuracy_mean": mean,
        "client_accuracy_variance": variance,
        "up_bytes": 2**20,
        "down_bytes": 2**20,
        "elapsed_s": 2.0 * number,
    }


def folder(parent: Path, records: list[dict[str, Any]], text: str) -> RunFolder:
    run = RunFolder.create(parent, "digits", text, {"seed": 1, "mode": "simulation"})
    for one in records:
        run.append_round(one)
    return run


def test_which_answers_are_right_is_said_sample_by_sample() -> None:
    rng = np.random.default_rng(1)
    data = Samples(rng.random((70, 1, 28, 28), dtype="f"), rng.integers(0, 10, 70))
    engine = MXNetEngine(build_model("2nn"), (1, 28, 28), 10)
    scores = engine.scores(data, 16)
    each = [engine.evaluate(Samples(data.x[i : i + 1], data.y[i : i + 1])) for i in range(70)]
    assert scores.right.tolist() == [one.accuracy == 1 for one in each]
    assert scores.metrics() == engine.evaluate(data, 16)
    assert scores.metrics().accuracy == scores.right.mean()


def test_rows_by_themselves_have_the_scores_that_they_have_among_all() -> None:
    rng = np.random.default_rng(2)
    data = Samples(rng.random((70, 1, 28, 28), dtype="f"), rng.integers(0, 10, 70))
    engine = MXNetEngine(build_model("lenet5"), (1, 28, 28), 10)
    whole = engine.scores(data, 16)
    parts = [engine.scores(data, 16, *rows) for rows in ((0, 32), (32, 48), (48, None))]
    for name in ("right", "losses"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        assert joined.tobytes() == getattr(whole, name).tobytes()
    for rows in ((8, 16), (0, 71), (16, 16)):
        with pytest.raises(ComputeError, match="rows"):
            engine.scores(data, 16, *rows)


def test_mean_and_variance_are_those_of_evaluating_client_by_client() -> None:
    assembly = Assembly(experiment())
    simulation = simulate(assembly)
    *_, last = simulation
    engine, test = assembly.engine, assembly.data.test_samples
    engine.load(simulation.state.weights, simulation.state.buffers)
    each = [
        engine.evaluate(Samples(test.x[rows], test.y[rows])).accuracy for rows in assembly.parts[1]
    ]
    assert len(each) == 8
    assert last.client_accuracy_mean == pytest.approx(np.mean(each))
    assert last.client_accuracy_variance == pytest.approx(np.var(each))
    assert last.client_accuracy_variance > 0
    assert last.record()["client_accuracy_mean"] == last.client_accuracy_mean
    assert last.record()["client_accuracy_variance"] == last.client_accuracy_variance


def test_a_client_without_test_samples_is_left_out_of_the_mean() -> None:
    def data() -> dict[str, np.ndarray]:
        rng = np.random.default_rng(1)
        x, y, users = rng.random((30, 4), dtype="f"), rng.integers(0, 3, 30), np.arange(30) % 3
        here = [row for row in range(12) if users[row] != 1]
        made = {"x": x, "y": y, "users": users}
        return {f"{name}_train": one for name, one in made.items()} | {
            f"{name}_test": one[here] for name, one in made.items()
        }

    compute = {"model": {"name": "2nn", "hidden": [5, 5]}, "data": data, "partition": "by-user"}
    compute["evaluate"] = {"per_client": True}
    assembly = Assembly(Experiment(rounds=1, clients=3, compute=compute))
    assert [len(rows) for rows in assembly.parts[1]] == [4, 0, 4]
    (only,) = simulate(assembly)
    assert only.client_accuracy_mean == pytest.approx(only.accuracy)


@pytest.mark.parametrize(
    ("override", "unmeasured"),
    [
        ("compute.evaluate={every: 3}", [True, True, True]),
        ("compute.evaluate.every=2", [True, False, False]),
    ],
)
def test_nothing_unmeasured_is_said_about_clients(override: str, unmeasured: list[bool]) -> None:
    rounds = simulate(experiment().with_overrides([override]))
    assert [round.client_accuracy_mean is None for round in rounds] == unmeasured


def test_a_run_ends_when_the_mean_over_clients_is_enough() -> None:
    everybody = {"selector": {"name": "uniform", "fraction": 1.0}}
    simulation = simulate(experiment(rounds=200, stop={"client_accuracy": 0.75}, logic=everybody))
    rounds = list(simulation)
    assert rounds[-1].round < 200
    assert rounds[-1].client_accuracy_mean >= 0.75
    assert all(round.client_accuracy_mean < 0.75 for round in rounds[:-1])
    assert re.fullmatch(r"mean accuracy over clients 0\.\d{4} reached 0\.75", simulation.reason)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("compute.evaluate.per_client=false", "stop.client_accuracy: is not measured; set comp"),
        ("compute.evaluate.sample=10", "compute.evaluate.per_client: needs all test samples"),
        ("stop.client_accuracy=1.5", "stop.client_accuracy: must be at most 1"),
    ],
)
def test_what_cannot_be_measured_is_refused_when_it_is_read(override: str, said: str) -> None:
    whole = experiment(stop={"client_accuracy": 0.5})
    with pytest.raises(ExperimentError, match=re.escape(said)):
        whole.with_overrides([override])


STOP = "rounds: 9\nstop: {client_accuracy: 0.8}\n"


def test_a_report_counts_to_the_mean_over_clients(tmp_path: Path) -> None:
    means = [(0.5, 0.04), (None, None), (0.8, 0.01), (0.9, 0.0025)]
    run = folder(tmp_path, [record(n, *m) for n, m in enumerate(means, start=1)], STOP)
    run.finish("done")
    summary = RunSummary.of(run)
    target = common_client_target([summary])
    assert target == 0.8
    rows = dict(comparison([summary], None, target))
    assert rows["Final accuracy by client, mean"] == ["90.00 %"]
    assert rows["Final accuracy by client, variance"] == ["0.0025"]
    assert rows["To 80 %, mean over clients: rounds"] == ["3"]
    assert rows["To 80 %, mean over clients: bytes up and down"] == ["6.00 MiB"]
    assert rows["To 80 %, mean over clients: machine time"] == ["6.00 s"]
    assert [deviation(point.client_accuracy_variance) for point in summary.points] == [
        pytest.approx(0.2),
        None,
        pytest.approx(0.1),
        pytest.approx(0.05),
    ]


def test_the_band_is_drawn_in_the_colour_of_its_run(tmp_path: Path) -> None:
    runs = [
        RunSummary.of(folder(tmp_path, [record(1, 0.2, 0.01), record(2, m, 0.01)], STOP))
        for m in (0.5, 0.7)
    ]
    for axis in AXES[:3]:
        figure = draw([Group.alone(run, run.folder.name) for run in runs], BY_CLIENT, axis, 0.8)
        assert set(re.findall(r"fill: var\(--run-(\d)\)", figure)) >= {"0", "1"}
        assert "#0102" not in figure


def test_a_report_of_runs_without_clients_says_nothing_of_them(tmp_path: Path) -> None:
    run = folder(tmp_path, [record(1, None, None)], STOP)
    summary = RunSummary.of(run)
    assert common_client_target([summary], 0.9) is None
    assert not has_values([Group.alone(summary, run.name)], BY_CLIENT, AXES[0])
    assert not any("client" in label for label, _ in comparison([summary], 0.5))
