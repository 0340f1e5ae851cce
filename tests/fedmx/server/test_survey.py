"""Federated statistics, and models on files: what no sample leaves a client for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import Experiment, simulate
from fedmx.assembly.assembly import Assembly
from fedmx.client.policy import Policy, RefusedByPolicy
from fedmx.errors import ExperimentError, FedmxError
from fedmx.server.survey import Survey, normalised, survey, unnormalised
from layers.logic.core.statistics import QUANTILES
from tests.fedmx.command_line import fedmx

CLIENTS = 6


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Six sites with different numbers of samples; the last has its second feature in grams."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(CLIENTS), [40, 30, 5, 50, 60, 45])
    x = rng.normal([1, 50, -3], [1, 10, 0.1], (len(users), 3)).astype("f")
    x[users == 5, 1] *= 1000
    y = x[:, 0] * 2 + rng.normal(size=len(users)).astype("f")
    arrays = {"x_train": x, "y_train": y, "users_train": users}
    np.savez(tmp_path / "sites.npz", **arrays, x_test=x[:9], y_test=y[:9], users_test=users[:9])
    return tmp_path / "sites.npz"


def experiment(file: Path, **compute: Any) -> Experiment:
    data = {"name": "arrays", "path": str(file)}
    given = {"engine": "numpy", "model": "logistic", "data": data, "partition": "by-user"}
    return Experiment(rounds=2, clients=CLIENTS, compute={**given, **compute})


def surveyed(experiment: Experiment, least: int = 10) -> Survey:
    assembly = unnormalised(Assembly(experiment))
    with simulate(assembly) as server:
        return survey(server, assembly, least)


def test_the_statistics_are_those_of_all_samples_together(file: Path) -> None:
    found, given = surveyed(experiment(file)), np.load(file)
    own = given["x_train"][given["users_train"] != 2].astype(np.float64)
    assert found.silent == (2,)  # it has 5 samples
    assert found.all.number.tolist() == [len(own)] * 3
    np.testing.assert_allclose(found.all.mean, own.mean(0), rtol=1e-9)
    np.testing.assert_allclose(found.all.deviation, own.std(0), rtol=1e-9)
    bin_width = 8 * found.all.deviation / 64
    away = np.abs(found.all.quantiles - np.quantile(own, QUANTILES, axis=0))
    assert (away[:, [0, 2]] < bin_width[[0, 2]]).all()
    assert found.far() == [(5, 1)]


def test_labels_are_counted_and_images_have_a_mean_for_each_channel() -> None:
    given = {"engine": "numpy", "model": "2nn", "data": "digits", "normalise": {"scale": 16}}
    found = surveyed(Experiment(rounds=1, clients=3, compute=given))
    whole = Assembly(Experiment(rounds=1, clients=3, compute=given)).data.whole.train
    np.testing.assert_allclose(found.all.mean, [whole.x.mean()], rtol=1e-9)
    assert found.all.labels.tolist() == np.bincount(whole.y, minlength=10).tolist()


def test_federated_normalisation_is_recorded_as_numbers(file: Path) -> None:
    asked = experiment(file, normalise="federated")
    assembly = normalised(Assembly(asked), simulate)
    section = assembly.experiment.compute.normalise
    found = surveyed(experiment(file))
    assert list(section.mean) == found.all.mean.tolist()
    assert list(section.std) == found.all.deviation.tolist()
    with simulate(assembly) as one, simulate(asked) as two:
        losses = [[round.loss for round in server] for server in (one, two)]
    assert losses[0] == losses[1]


def test_a_client_tells_no_statistics_that_its_policy_excludes() -> None:
    policy = Policy(statistics=30)
    policy.check_statistics(30)
    with pytest.raises(RefusedByPolicy, match="statistics"):
        policy.check_statistics(29)


def test_a_private_experiment_has_no_survey_whose_statistics_no_epsilon_counts(file: Path) -> None:
    privacy = {"name": "central", "epsilon": 8, "clip": 1, "delta": 1e-5}
    for given in ({}, {"normalise": "federated"}):
        private = Experiment(**{**experiment(file, **given).tree(), "privacy": privacy})
        with pytest.raises(ExperimentError, match=r"^privacy: "):
            surveyed(private)
        if given:
            with pytest.raises(ExperimentError, match=r"^privacy: "):
                normalised(Assembly(private), simulate)


def test_a_survey_that_nobody_answers_says_so(file: Path) -> None:
    with pytest.raises(FedmxError, match="1000"):
        surveyed(experiment(file), least=1000)


def test_the_commands_show_statistics_and_models_on_files(file: Path, tmp_path: Path) -> None:
    text = experiment(file, normalise="federated").to_yaml()
    (tmp_path / "sites.yaml").write_text(text)
    shown = fedmx("survey", "sites.yaml", cwd=tmp_path)
    assert shown.code == 0, shown.err
    assert "client 5: feature 1 " in shown.out
    found = json.loads(fedmx("survey", "sites.yaml", "--json", cwd=tmp_path).out)
    assert found["far"] == [{"client": 5, "feature": 1}]
    assert fedmx("run", "sites.yaml", cwd=tmp_path).code == 0
    (run,) = (tmp_path / "runs").iterdir()
    last = json.loads((run / "rounds.jsonl").read_text().splitlines()[-1])
    told = fedmx("evaluate", str(run), "--data", str(file), "--json", cwd=tmp_path)
    (row,) = json.loads(told.out)
    assert (row["run"], row["round"], row["samples"]) == (run.name, 2, 9)
    assert {key: row[key] for key in ("loss", "rmse", "r2")} == pytest.approx(
        {key: last[key] for key in ("loss", "rmse", "r2")}, rel=1e-6
    )
    refused = fedmx("evaluate", str(run), "--data", "nothing.npz", cwd=tmp_path)
    assert refused.code == 2
    assert "nothing.npz" in refused.err
