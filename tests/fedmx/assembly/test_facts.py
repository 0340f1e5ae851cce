"""A run folder says of its data what a reader of the results needs."""

from __future__ import annotations

import numpy as np
import pytest

from fedmx import Assembly, Experiment
from fedmx.assembly.data import data_sha256
from layers.compute.data.datasets.arrays import from_arrays


def test_the_facts_have_the_accuracy_of_the_most_frequent_label() -> None:
    compute = {"model": "2nn", "data": "digits", "normalise": {"scale": 16}}
    digits = Assembly(Experiment(rounds=1, clients=2, compute=compute))
    facts, labels = digits.facts(), digits.data.dataset.test.y
    assert facts["classes"] == 10
    assert facts["chance"] == pytest.approx(max(np.mean(labels == one) for one in range(10)))


def test_the_facts_have_a_checksum_that_every_sample_label_and_user_decides() -> None:
    x, y = np.arange(24, dtype=np.uint8).reshape(6, 1, 2, 2), np.array([0, 1, 0, 1, 0, 1])
    users = np.array([0, 0, 1, 1, 0, 1])

    def checksum(**changed: np.ndarray) -> str:
        given = {"x": x, "y": y, "users": users, **changed}
        train = (given["x"][:4], given["y"][:4], given["x"][4:], given["y"][4:])
        data = from_arrays(*train, given["users"][:4], given["users"][4:], name="mine")
        return data_sha256(data)

    same = {checksum(), checksum(x=x.copy(order="F"))}
    assert len(same) == 1
    others = [
        checksum(**{name: np.concatenate([array[:at], array[at : at + 1] ^ 1, array[at + 1 :]])})
        for name, array in (("x", x), ("y", y), ("users", users))
        for at in range(6)
    ]
    assert len({*same, *others}) == 19
    compute = {"model": "2nn", "data": "digits", "normalise": {"scale": 16}}
    digits = Assembly(Experiment(rounds=1, clients=2, compute=compute))
    assert digits.facts()["data_sha256"] == data_sha256(digits.data.dataset)
