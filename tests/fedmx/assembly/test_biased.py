"""FedAIM and the partition `biased` measure by one distance who is extremely biased."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmx import Assembly, Experiment, ExperimentError
from layers.compute.data.partitions.biased import Biased
from layers.logic.algorithms.fedaim import FedAimSplit
from layers.logic.numeric.distances import DISTANCES, uniform, usual_threshold


def assembly(partition: dict[str, Any], selector: dict[str, Any]) -> Assembly:
    return Assembly(
        Experiment(
            rounds=1,
            clients=10,
            compute={
                "model": "2nn",
                "data": "digits",
                "normalise": {"scale": 16},
                "partition": {"name": "biased", **partition},
            },
            logic={"preset": {"name": "fedaim", **selector}},
        )
    )


L1, EMD = {"distance": "l1"}, {"distance": "emd"}


@pytest.mark.parametrize(("partition", "selector"), [(L1, EMD), (L1, {}), ({}, L1)])
def test_two_distances_are_refused_unless_a_threshold_says_that_they_are_meant(
    partition: dict[str, Any], selector: dict[str, Any]
) -> None:
    with pytest.raises(ExperimentError, match="set distance to the same in both") as caught:
        _ = assembly(partition, selector).logic
    assert "\n" not in str(caught.value)
    assert assembly(partition, {**selector, "threshold": 1.7}).logic
    assert assembly({**partition, "threshold": 1.7}, selector).logic


@pytest.mark.parametrize("distance", ["emd", "l1"])
def test_both_have_the_same_distances_and_the_same_thresholds(distance: Any) -> None:
    parts = assembly({"distance": distance}, {"distance": distance})
    y, (rows, _) = parts.data.dataset.train.y, parts.parts
    counts = np.array([np.bincount(y[mine], minlength=10) for mine in rows])
    selector = parts.logic.selector
    assert isinstance(selector, FedAimSplit)
    apart = DISTANCES[selector.distance](counts, uniform(10))
    assert (apart >= usual_threshold(distance, 10) - 1e-9).sum() == 4
    for classes in (3, 10, 62):
        assert Biased(distance=distance)._threshold(classes) == usual_threshold(distance, classes)
