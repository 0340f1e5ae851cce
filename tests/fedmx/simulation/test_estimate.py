"""What an estimate says of a run is what the run then has."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmx import Assembly, Experiment, simulate
from fedmx.cli.run import estimate_lines
from fedmx.simulation.estimate import Estimate, estimate
from tests.fedmx.kinds import TREE


def experiment(logic: Any, **compute: Any) -> Experiment:
    known = {**TREE["compute"], "model": "logistic", "engine": "numpy"}
    return Experiment(**{**TREE, "compute": {**known, **compute}, "logic": logic})


def estimated(given: Experiment) -> Estimate:
    """The estimate, whose times are parts of the time that it took."""
    began = time.perf_counter()
    found = estimate(Assembly(given))
    took_s = time.perf_counter() - began
    assert 0 < found.step_s < took_s
    assert 0 < found.evaluation_s < took_s
    assert found.process_bytes > 1 << 20
    return found


@pytest.mark.parametrize(
    ("train", "every", "evaluations"),
    [
        ({"epochs": 2, "batch_size": 20}, 1, 3),
        ({"epochs": 3, "batch_size": "all"}, 2, 2),
        ({"steps": 7, "batch_size": 20}, 3, 1),
        ({"steps": 2, "batch_size": 20}, 4, 1),
    ],
    ids=str,
)
def test_an_estimate_has_the_numbers_of_the_run(train: Any, every: int, evaluations: int) -> None:
    logic = {"preset": {"name": "fedavg", "count": 4}}
    given = experiment(logic, train=train, evaluate={"every": every})
    found = estimated(given)
    assert (found.cohort, found.concurrency, found.rounds) == (4, None, 3)
    assert (found.memory_bytes, found.evaluations) == (0, evaluations)
    sizes = list(Assembly(given).sizes().values())
    assert found.samples.tolist() == sizes
    batch = train["batch_size"]
    batches = [1 if batch == "all" else -(-size // batch) for size in sizes]
    steps = train["steps"] if "steps" in train else train["epochs"] * np.mean(batches)
    assert found.steps == steps
    with simulate(given) as simulation:
        rounds = list(simulation)
    assert sum(one.accuracy is not None for one in rounds) == evaluations
    assert [one.tasks for one in rounds] == [found.cohort] * 3
    down, up = (found.cohort or 0) * found.task_bytes, (found.cohort or 0) * found.update_bytes
    for one in rounds:  # the numbers of rounds, clients and samples have a byte or two
        assert one.down_bytes == pytest.approx(down, abs=64)
        assert one.up_bytes == pytest.approx(up, abs=64)


def test_an_estimate_counts_the_memory_of_hooks_and_asked_clients_not_yet() -> None:
    asked = {"name": "power-of-choice", "count": 2, "candidates": 4}
    uniform = {"name": "mean", "weights": "uniform"}
    found = estimated(experiment({"selector": asked, "aggregator": uniform, "hooks": ["top-k"]}))
    assert (found.cohort, found.concurrency, found.seconds) == (None, None, None)
    parameters = 784 * 10 + 10
    assert found.memory_bytes == 4 * parameters
    assert found.update_bytes < found.task_bytes


KNOWN = Estimate(
    samples=np.array([10, 30]),
    cohort=3,
    concurrency=None,
    steps=2.5,
    task_bytes=1000,
    update_bytes=100,
    step_s=0.5,
    evaluation_s=7.0,
    evaluations=2,
    memory_bytes=0,
    process_bytes=1 << 20,
    rounds=4,
)


def test_the_seconds_of_a_run_are_those_of_its_steps_and_evaluations() -> None:
    assert KNOWN.seconds == 4 * 3 * 2.5 * 0.5 + 2 * 7.0


def test_a_dry_run_says_how_many_clients_work_and_what_hooks_keep() -> None:
    later = replace(KNOWN, cohort=1200, concurrency=4000, memory_bytes=3 << 20)
    text = "\n".join(estimate_lines(later))
    for number in ("1,200", "4,000", "3.00 MiB", "6.00 MiB"):
        assert number in text
