"""An experiment on `synthetic` data: generated for its clients and seed, tested by client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmx import Assembly, Experiment, simulate
from fedmx.cli.datasets import dataset_locations
from layers.compute.data.dataset import Samples
from layers.compute.data.datasets.synthetic import Synthetic
from layers.logic.seeds import derive


def experiment(number: int = 1, **data: Any) -> Experiment:
    return Experiment(
        seed=number,
        rounds=3,
        clients=12,
        compute={
            "model": "logistic",
            "data": {"name": "synthetic", "alpha": 1, "beta": 1, **data},
            "partition": "by-user",
            "train": {"epochs": 2, "learning_rate": 0.01},
            "evaluate": {"per_client": True},
        },
        logic={"preset": {"name": "fedprox", "mu": 1.0, "fraction": 0.5}},
    )


def test_each_client_has_its_own_samples_and_the_server_has_all_test_samples() -> None:
    assembly = Assembly(experiment(4))
    synthetic = Synthetic(clients=12, seed=derive(4, "data"))
    tests = []
    for number in range(12):
        x, y = synthetic.client(number)
        trained = int(0.9 * len(y))
        mine = assembly.samples_of(number)
        np.testing.assert_array_equal(mine.x, x[:trained])
        np.testing.assert_array_equal(mine.y, y[:trained])
        tests.append(x[trained:])
    np.testing.assert_array_equal(assembly.data.test_samples.x, np.concatenate(tests))


def test_client_accuracy_is_measured_on_each_clients_test_samples() -> None:
    assembly = Assembly(experiment())
    simulation = simulate(assembly)
    *_, last = simulation
    engine, test = assembly.engine, assembly.data.test_samples
    engine.load(simulation.state.weights, simulation.state.buffers)
    each = [
        engine.evaluate(Samples(test.x[rows], test.y[rows])).accuracy for rows in assembly.parts[1]
    ]
    assert last.client_accuracy_mean == pytest.approx(np.mean(each))
    assert last.client_accuracy_variance == pytest.approx(np.var(each))
    assert last.client_accuracy_variance > 0


def test_the_experiments_seed_determines_the_samples_unless_the_data_have_a_seed() -> None:
    def first(one: Experiment) -> float:
        return float(Assembly(one).samples_of(0).x[0, 0])

    assert first(experiment(1)) == first(experiment(1))
    assert first(experiment(1)) != first(experiment(2))
    assert first(experiment(1, seed=7)) == first(experiment(2, seed=7))


def test_synthetic_data_are_listed_as_data_without_files() -> None:
    places = dict(dataset_locations())
    assert places["synthetic"] == "no files: drawn from the seed"
    assert places["digits"] == "here: it comes with an installed package"
