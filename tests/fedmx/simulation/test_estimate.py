"""What a run will cost, before it begins, is what it then costs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from fedmx import Assembly, simulate
from fedmx.simulation.estimate import estimate
from tests.fedmx import kinds


def tree(**changed: Any) -> dict[str, Any]:
    """Return an experiment whose clients have different numbers of samples."""
    compute = {**kinds.TREE["compute"], "engine": "numpy", **changed.pop("compute", {})}
    return {**kinds.TREE, **changed, "rounds": 5, "compute": compute}


@pytest.mark.parametrize(
    ("logic", "cohort", "vectors_kept"),
    [
        ({"preset": "fedavg", "selector": {"name": "uniform", "count": 3}}, 3, 0),
        ({"preset": {"name": "scaffold", "count": 2}}, 2, 1),
    ],
)
def test_an_estimate_is_what_the_first_round_costs(
    tmp_path: Path, logic: dict[str, Any], cohort: int, vectors_kept: int
) -> None:
    given = kinds.experiment(tmp_path, **tree(logic=logic, compute={"evaluate": {"every": 2}}))
    found = estimate(Assembly(given))
    server = simulate(Assembly(given))
    rounds = list(server.rounds())
    first = rounds[0]
    assert (found.rounds, found.cohort, found.concurrency) == (5, cohort, None)
    assert first.down_bytes == cohort * found.task_bytes
    assert first.up_bytes == cohort * found.update_bytes
    assert found.evaluations == sum(one.accuracy is not None for one in rounds) == 3
    sizes = Assembly(given).sizes()
    assert found.samples.tolist() == list(sizes.values())
    assert found.steps == sum(-(-size // 20) for size in sizes.values()) / len(sizes)
    assert found.memory_bytes == vectors_kept * 4 * server.state.weights.size


@pytest.mark.parametrize(
    ("train", "steps"), [({"epochs": 3, "batch_size": "all"}, 3), ({"steps": 7}, 7)]
)
def test_local_steps_are_given_or_one_an_epoch_of_the_whole_data(
    tmp_path: Path, train: dict[str, Any], steps: int
) -> None:
    compute = {"train": {**train, "learning_rate": 0.05}, "evaluate": {"every": 5}}
    given = kinds.experiment(tmp_path, **tree(compute=compute))
    began = time.perf_counter()
    found = estimate(Assembly(given))
    took = time.perf_counter() - began
    assert (found.steps, found.evaluations) == (steps, 1)
    assert 0 < found.step_s * steps < took, "it was measured meanwhile"
    assert 0 < found.evaluation_s < took
    assert found.process_bytes > found.task_bytes
