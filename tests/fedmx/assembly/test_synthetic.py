"""An experiment on `synthetic` data: generated for its clients and seed, tested by client."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedmx import Assembly, Experiment
from fedmx.cli.datasets import dataset_locations
from layers.compute.data.datasets.synthetic import Synthetic
from layers.logic.seeds import derive


def experiment(number: int = 1, **data: Any) -> Experiment:
    data = {"name": "synthetic", "alpha": 1, "beta": 1, **data}
    compute = {"model": "logistic", "data": data, "partition": "by-user"}
    return Experiment(seed=number, rounds=3, clients=12, compute=compute)


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
