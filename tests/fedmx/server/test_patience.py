"""A run with `stop.patience` ends after so many rounds without a new best accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedmx import Experiment, RunFolder, recorded, simulate
from fedmx.report.statistics import FEWEST_SEEDS
from fedmx.sweeps.sweep import SEEDS
from tests.fedmx.recorded_runs import TREE

PATIENCE = 3


def experiment(**changed: Any) -> Experiment:
    compute = {**TREE["compute"], "train": {"learning_rate": 5.0}}  # it soon gets no better
    tree = {**TREE, "rounds": 200, "compute": compute, "run": {}, "stop": {"patience": PATIENCE}}
    return Experiment(**{**tree, **changed})


def test_a_run_ends_after_so_many_rounds_without_a_new_best_accuracy() -> None:
    with simulate(experiment()) as simulation:
        accuracies = [round.accuracy or 0.0 for round in simulation]
    best = max(accuracies)
    at = accuracies.index(best) + 1
    assert len(accuracies) == at + PATIENCE < 200
    assert simulation.reason.startswith(f"accuracy is no better than {best:.4f} of round {at}")
    for last in range(PATIENCE + 1, len(accuracies)):  # it could not have ended sooner
        assert max(accuracies[last - PATIENCE : last]) > max(accuracies[: last - PATIENCE])


def test_patience_counts_rounds_also_where_few_are_evaluated() -> None:
    compute = {**TREE["compute"], "train": {"learning_rate": 5.0}, "evaluate": {"every": 2}}
    with simulate(experiment(compute=compute)) as simulation:
        measured = {one.round: one.accuracy for one in simulation if one.accuracy is not None}
    at = max(measured, key=lambda number: (measured[number], -number))
    assert max(measured) == at + PATIENCE + 1  # the first evaluation after the patience


def test_a_resumed_run_ends_in_the_same_round(tmp_path: Path) -> None:
    given = experiment()
    folder = RunFolder.create(tmp_path, "patience", given.to_yaml(), {})
    whole = [one.round for one in recorded(simulate(given), folder)]
    other = RunFolder.create(tmp_path, "patience", given.to_yaml(), {})
    rounds = recorded(simulate(given), other)
    for one in rounds:
        if one.round == whole[-1] - 1:
            break
    rounds.close()
    assert [one.round for one in recorded(simulate(given), other)] == whole[-1:]
    assert other.reason == folder.reason


def test_patience_changes_only_the_digest_of_experiments_that_have_it() -> None:
    assert experiment(stop={}).digest() == experiment(stop={"patience": None}).digest()
    assert experiment(stop={}).digest() != experiment().digest()


def test_a_sweep_has_enough_seeds_for_all_intervals_by_default() -> None:
    assert SEEDS >= FEWEST_SEEDS
