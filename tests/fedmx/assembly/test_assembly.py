"""The assembly of an experiment: checks across parts, and the facts for a run folder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmx import Assembly, Experiment, ExperimentError
from fedmx.assembly.data import data_sha256
from layers.compute.data.datasets.arrays import from_arrays
from layers.compute.data.partitions.biased import Biased
from layers.logic.algorithms.fedaim import FedAimSplit
from layers.logic.numeric.distances import DISTANCES, uniform, usual_threshold

COMPUTE = {"model": "2nn", "data": "digits", "normalise": {"scale": 16}}


def fedaim(partition: dict[str, Any], selector: dict[str, Any]) -> Assembly:
    compute = {**COMPUTE, "partition": {"name": "biased", **partition}}
    logic = {"preset": {"name": "fedaim", **selector}}
    return Assembly(Experiment(rounds=1, clients=10, compute=compute, logic=logic))


L1, EMD = {"distance": "l1"}, {"distance": "emd"}


@pytest.mark.parametrize(("partition", "selector"), [(L1, EMD), (L1, {}), ({}, L1)])
def test_fedaim_and_the_partition_need_one_distance_unless_a_threshold_is_given(
    partition: dict[str, Any], selector: dict[str, Any]
) -> None:
    with pytest.raises(ExperimentError, match=r"partition .* fedaim by") as caught:
        _ = fedaim(partition, selector).logic
    assert "\n" not in str(caught.value)
    assert fedaim(partition, {**selector, "threshold": 1.7}).logic
    assert fedaim({**partition, "threshold": 1.7}, selector).logic


@pytest.mark.parametrize("distance", ["emd", "l1"])
def test_fedaim_and_the_partition_have_the_same_distances_and_thresholds(distance: Any) -> None:
    assembly = fedaim({"distance": distance}, {"distance": distance})
    y, (rows, _) = assembly.data.dataset.train.y, assembly.parts
    counts = np.array([np.bincount(y[mine], minlength=10) for mine in rows])
    selector = assembly.logic.selector
    assert isinstance(selector, FedAimSplit)
    bias = DISTANCES[selector.distance](counts, uniform(10))
    assert (bias >= usual_threshold(distance, 10) - 1e-9).sum() == 4
    for classes in (3, 10, 62):
        assert Biased(distance=distance)._threshold(classes) == usual_threshold(distance, classes)


@pytest.mark.parametrize("preset", ["fedprox", "fednova"])
def test_parts_check_the_highest_learning_rate_of_the_schedule(preset: str) -> None:
    def made(gamma: float) -> Assembly:
        schedule = {"name": "step", "every": 1, "gamma": gamma}
        compute = {**COMPUTE, "train": {"learning_rate": 0.1, "schedule": schedule}}
        logic = {"preset": {"name": preset, "mu": 2.0}}
        return Assembly(Experiment(rounds=3, clients=2, compute=compute, logic=logic))

    with pytest.raises(ExperimentError, match=r"learning_rate 10\.\d* times mu 2\.0"):
        _ = made(10.0).logic
    assert made(2.0).logic.training_of(3).learning_rate == pytest.approx(0.4)


def test_the_facts_hold_the_accuracy_of_the_most_frequent_label_and_the_checksum() -> None:
    digits = Assembly(Experiment(rounds=1, clients=2, compute=COMPUTE))
    facts, labels = digits.facts(), digits.data.dataset.test.y
    assert facts["targets"] == {"kind": "classes", "size": 10, "places": 0}
    assert facts["chance"] == pytest.approx(max(np.mean(labels == one) for one in range(10)))
    assert facts["data_sha256"] == data_sha256(digits.data.dataset)


def test_every_sample_label_and_user_changes_the_checksum_of_the_data() -> None:
    x, y = np.arange(24, dtype=np.uint8).reshape(6, 1, 2, 2), np.array([0, 1, 0, 1, 0, 1])
    users = np.array([0, 0, 1, 1, 0, 1])

    def checksum(**changed: np.ndarray) -> str:
        given = {"x": x, "y": y, "users": users, **changed}
        train = (given["x"][:4], given["y"][:4], given["x"][4:], given["y"][4:])
        return data_sha256(from_arrays(*train, given["users"][:4], given["users"][4:], name="mine"))

    same = {checksum(), checksum(x=x.copy(order="F"))}
    assert len(same) == 1
    others = [
        checksum(**{name: np.concatenate([array[:at], array[at : at + 1] ^ 1, array[at + 1 :]])})
        for name, array in (("x", x), ("y", y), ("users", users))
        for at in range(6)
    ]
    assert len({*same, *others}) == 19
