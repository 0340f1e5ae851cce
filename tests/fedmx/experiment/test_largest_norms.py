"""The ten largest updates are uploaded, in the experiment that compares them with ten at random."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from fedmx import Assembly, Experiment, LogicError, Offer, PendingOffers, Population
from tests.fedmx.algorithms import experiment

FOLDER = Path(__file__).resolve().parents[3] / "experiments"
RNG = np.random.default_rng(1)


def selector_of(path: Path):
    return Assembly(
        Experiment.read(path, modules=["largest_norms"]), shape=(1, 28, 28), classes=10
    ).logic.selector


@pytest.fixture
def selector():
    return selector_of(FOLDER / "knapsack-largest-norms.yaml")


def offers(norms):
    return [
        Offer(round=3, client=client, samples=10, norm=norm) for client, norm in enumerate(norms)
    ]


def test_everybody_trains_and_the_ten_largest_of_twenty_are_granted(selector) -> None:
    plan = selector.select(Population(dict.fromkeys(range(20), 600)), {}, 1, RNG)
    assert plan.clients == tuple(range(20))
    assert plan.offers
    norms = np.random.default_rng(2).permutation(20) / 10
    verdicts, _ = selector.on_offers(PendingOffers(offers(norms), ()), None)
    assert {one.client for one in verdicts} == set(range(20))
    granted = {one.client for one in verdicts if one.granted}
    assert granted == set(np.argsort(norms)[-10:].tolist())


def test_nothing_is_decided_while_a_client_trains(selector) -> None:
    assert selector.on_offers(PendingOffers(offers([1.0] * 12), {12}), None)[0] == []


def test_of_equal_norms_the_lowest_clients_are_granted_and_few_offers_all(selector) -> None:
    verdicts, _ = selector.on_offers(PendingOffers(offers([1.0] * 12), ()), None)
    assert [one.client for one in verdicts if one.granted] == list(range(10))
    verdicts, _ = selector.on_offers(PendingOffers(offers([0.0, 2.0]), ()), None)
    assert all(one.granted for one in verdicts)


def test_the_two_differ_in_who_uploads_alone_and_are_of_the_setting_of_the_others() -> None:
    trees = []
    for name in ("knapsack-largest-norms", "knapsack-random", "knapsack-fedcs"):
        tree = Experiment.read(FOLDER / f"{name}.yaml").tree()
        del tree["name"], tree["logic"], tree["clock"]
        trees.append(tree)
    assert trees[0] == trees[1] == trees[2]
    random = selector_of(FOLDER / "knapsack-random.yaml")
    everyone = Population(dict.fromkeys(range(20), 600))
    assert len(random.select(everyone, {}, 1, RNG).clients) == 10


def test_it_says_why_it_cannot_work_with_a_deadline(selector) -> None:
    with pytest.raises(LogicError, match="count"):
        dataclasses.replace(selector, count=0)
    logic = dataclasses.replace(Assembly(experiment({})).logic, deadline_s=3.0)
    with pytest.raises(LogicError, match="deadline_s"):
        selector.check(logic)
