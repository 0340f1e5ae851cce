"""The experiments of the papers can be run as they are, in the setting of their paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import numpy as np
import pytest

from fedmx import Assembly, Experiment, LogicError, Offer, OpenRound
from layers.compute.data.targets import Targets
from tests.fedmx.algorithms import experiment
from tests.logic.toys import planned

FOLDER = Path(__file__).resolve().parents[3] / "experiments"
MNIST = [FOLDER / f"mnist-{name}.yaml" for name in ("fedavg", "projected-stc", "stc")]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_an_experiment_has_the_name_of_its_file_and_a_command_in_the_readme(path: Path) -> None:
    assert Experiment.read(path).name == path.stem
    assert f"fedmx run experiments/{path.name}" in (FOLDER / "README.md").read_text()


def alike(paths: list[Path], *but: str) -> bool:
    """Whether the experiments differ only in their names, their logic and these settings."""
    trees = []
    for path in paths:
        tree = Experiment.read(path).tree()
        for key in ("name", "logic", *but):
            *above, last = key.split(".")
            del reduce(dict.__getitem__, above, tree)[last]
        trees.append(tree)
    return all(tree == trees[0] for tree in trees)


def as_mnist(path: Path) -> Assembly:
    return Assembly(
        Experiment.read(path, modules=["largest_norms"]),
        shape=(1, 28, 28),
        targets=Targets("classes", 10),
    )


@pytest.mark.parametrize("path", MNIST, ids=lambda path: path.stem)
def test_the_setting_is_that_of_the_paper_and_only_the_algorithm_differs(path: Path) -> None:
    assembly = as_mnist(path)
    assert assembly.engine.weights.size == 356_298
    everyone = OpenRound(dict.fromkeys(range(200), 300))
    assert len(planned(assembly.logic.selector, everyone)) == 20
    training = assembly.logic.training_of(1)
    assert (training.epochs, training.batch_size, training.learning_rate) == (1, 64, 0.1)
    assert alike(MNIST)


def test_fedsso_and_its_baselines_differ_only_in_algorithm_and_learning_rate() -> None:
    paths = [FOLDER / f"mnist-fedsso{name}.yaml" for name in ("", "-fedavg", "-fedprox")]
    rates = []
    for assembly in map(as_mnist, paths):
        assert assembly.engine.weights.size == 199_210
        rates.append([assembly.logic.training_of(round).learning_rate for round in (1, 2)])
    assert rates == [[0.01 / 2, 0.01 / 3], [0.01, 0.01], [0.01, 0.01]]
    assert alike(paths, "compute.train.schedule")


def test_the_clients_have_two_shards_of_150_images_and_their_labels_for_the_test(
    data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDMX_DATA", str(data_root))
    assembly = Assembly(Experiment.read(MNIST[0]))
    train, test = assembly.parts
    assert {len(rows) for rows in train} == {300}
    assert {len(rows) for rows in test} == {50}
    y_train, y_test = assembly.data.dataset.train.y, assembly.data.dataset.test.y
    strangers = [len(set(y_test[b]) - set(y_train[a])) for a, b in zip(train, test, strict=True)]
    assert sum(strangers) < 20


BIASED = sorted(FOLDER.glob("mnist-biased-*.yaml"))


def test_the_runs_with_biased_clients_differ_only_in_the_algorithm() -> None:
    for path in BIASED:
        training = as_mnist(path).logic.training_of(1)
        assert (training.epochs, training.batch_size, training.learning_rate) == (2, 64, 0.01)
        assert training.momentum == 0.78
    assert len(BIASED) == 8
    assert alike(BIASED)


def test_two_in_five_of_the_biased_clients_are_extremely_biased(
    data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDMX_DATA", str(data_root))
    assembly = Assembly(Experiment.read(FOLDER / "mnist-biased-fedaim.yaml"))
    y = assembly.data.dataset.train.y
    counts = np.array([np.bincount(y[rows], minlength=10) for rows in assembly.parts[0]])
    shares = counts / counts.sum(1, keepdims=True)
    far = np.abs(np.cumsum(shares - 0.1, axis=1)[:, :-1]).sum(1) >= 3 - 1e-9
    assert far.sum() == 20
    assert (counts[far] > 0).sum(1).max() <= 2
    assert (counts[~far] > 0).sum(1).min() >= 5


@pytest.fixture
def selector():
    return as_mnist(FOLDER / "knapsack-largest-norms.yaml").logic.selector


def granted(selector, norms: Sequence[float], training: int = 0) -> list[int]:
    """The clients whose offers of these norms are granted while `training` others still train."""
    round, verdicts = OpenRound(dict.fromkeys(range(len(norms) + training), 600)), []
    round.answer = verdicts.append
    steps = selector.run(round)
    next(steps)
    assert all(lane.offer for lane in round.planned)
    round.offers = {k: Offer(3, k, 10, norm) for k, norm in enumerate(norms)}
    round.offers_due = dict.fromkeys(range(len(norms), len(norms) + training))
    steps.send(round.offers[len(norms) - 1])
    assert {one.client for one in verdicts} == (set() if training else set(round.offers))
    return [one.client for one in verdicts if one.granted]


def test_all_clients_train_and_the_ten_largest_of_twenty_updates_are_granted(selector) -> None:
    norms = np.random.default_rng(2).permutation(20) / 10
    assert set(granted(selector, norms)) == set(np.argsort(norms)[-10:].tolist())


def test_nothing_is_decided_while_a_client_trains(selector) -> None:
    assert granted(selector, [1.0] * 12, training=1) == []


def test_of_equal_norms_the_lowest_clients_are_granted(selector) -> None:
    assert granted(selector, [1.0] * 12) == list(range(10))
    assert granted(selector, [0.0, 2.0]) == [0, 1]


def test_the_experiments_with_a_knapsack_differ_only_in_the_selector() -> None:
    names = ("knapsack-largest-norms", "knapsack-random", "knapsack-fedcs")
    assert alike([FOLDER / f"{name}.yaml" for name in names], "clock")
    random = as_mnist(FOLDER / "knapsack-random.yaml").logic.selector
    assert len(planned(random, OpenRound(dict.fromkeys(range(20), 600)))) == 10


def test_a_deadline_is_refused(selector) -> None:
    with pytest.raises(LogicError, match="count"):
        dataclasses.replace(selector, count=0)
    logic = dataclasses.replace(Assembly(experiment({})).logic, deadline_s=3.0)
    with pytest.raises(LogicError, match="deadline_s"):
        selector.check(logic)
