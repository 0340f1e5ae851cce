"""Selection by loss, time and size is a function of memory, population and seed alone."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layers.logic import Plan, Population, Selector, SelectorContext
from layers.logic.algorithms.fedcs import FedCS
from layers.logic.algorithms.knapsack import OfflineKP, OnlineKP
from layers.logic.algorithms.oort import Oort
from layers.logic.core.selector import with_numbers
from layers.logic.seeds import generator
from layers.logic.selectors.clustered import Clustered
from layers.logic.selectors.power_of_choice import PowerOfChoice
from layers.logic.selectors.uniform import BySize, RoundRobin, Uniform

SIZED = (
    PowerOfChoice(fraction=0.3, loss="reported"),
    PowerOfChoice(fraction=0.3),
    Oort(fraction=0.3, most_rounds=2, pacer_step=2),
)
DRAWN = (Uniform(fraction=0.3), BySize(fraction=0.3), Clustered(fraction=0.3))
EVERY = (*SIZED, *DRAWN, RoundRobin(fraction=0.3), FedCS(candidates=0.5), OfflineKP(), OnlineKP())


def a_population(sizes: list[int], seed: int) -> Population:
    """Clients of these sizes that would answer any question."""
    rng = np.random.default_rng(seed)
    times, losses = rng.uniform(0.1, 30.0, (2, len(sizes))), rng.uniform(0, 3, len(sizes))
    answers: dict[str, dict[int, dict[str, Any]]] = {
        "times": {
            client: {"train_s": float(times[0, client]), "upload_s": float(times[1, client])}
            for client in range(len(sizes))
        },
        "loss": {client: {"loss": float(loss)} for client, loss in enumerate(losses)},
    }
    return Population(dict(enumerate(sizes)), answers, deadline_s=60.0)


def a_memory(known: dict[int, float]) -> Mapping[str, Any]:
    memory: Mapping[str, Any] = {"largest": 2.0, "percentile": 40.0, "gained": np.ones(3)}
    for name, factor in (("loss", 1.0), ("reward", 9.0), ("took_s", 4.0)):
        memory = with_numbers(memory, name, {k: factor * x for k, x in known.items()})
    memory = with_numbers(memory, "count", dict.fromkeys(known, 2.0))
    return with_numbers(memory, "round", dict.fromkeys(known, 3.0))


def drawn(
    selector: Selector, population: Population, memory: Mapping[str, Any], round: int, seed: int
) -> tuple[list[tuple[str, tuple[int, ...]]], Plan]:
    """Return what a round asks, and its plan when the asked have answered."""
    inquiries = selector.inquire(
        SelectorContext(population, memory, round, generator(seed, "inquire", round))
    )
    answers = {
        question.name: {client: population.answers[question.name][client] for client in clients}
        for question, clients in inquiries
    }
    answered = Population(population.samples, answers, deadline_s=population.deadline_s)
    plan = selector.select(
        SelectorContext(answered, memory, round, generator(seed, "select", round))
    )
    return [(question.name, tuple(clients)) for question, clients in inquiries], plan


populations = st.builds(
    a_population, st.lists(st.integers(0, 500), min_size=1, max_size=30), st.integers(0, 99)
).filter(lambda population: population.clients)
memories = st.builds(a_memory, st.dictionaries(st.integers(0, 30), st.floats(0, 9)))


@pytest.mark.parametrize("selector", EVERY)
@settings(max_examples=40)
@given(population=populations, memory=memories, round=st.integers(4, 99), seed=st.integers(0, 99))
def test_the_same_arguments_give_the_same_plan_and_change_nothing(
    selector, population, memory, round, seed
) -> None:
    before = copy.deepcopy(dict(memory))
    once = drawn(selector, population, memory, round, seed)
    again = drawn(selector, population, copy.deepcopy(dict(memory)), round, seed)
    assert once == again
    for key, kept in before.items():
        np.testing.assert_equal(memory[key], kept)
    plan = once[1]
    assert set(plan.clients) <= set(population.clients)


@pytest.mark.parametrize("selector", SIZED)
@settings(max_examples=40)
@given(population=populations, memory=memories, seed=st.integers(0, 99))
def test_as_many_take_part_as_the_fraction_says(selector, population, memory, seed) -> None:
    _, plan = drawn(selector, population, memory, 5, seed)
    expected = max(int(np.floor(0.3 * len(population.clients) + 0.5)), 1)
    assert len(plan.lanes) == plan.enough == expected
    assert plan.clients == tuple(sorted(plan.clients))


@pytest.mark.parametrize("selector", [*SIZED, *DRAWN, FedCS(candidates=0.3)])
def test_rounds_and_seeds_draw_differently(selector) -> None:
    population = a_population([5] * 60, 0)
    plans = {
        drawn(selector, population, {}, round, seed)[1].clients
        for round in range(1, 4)
        for seed in range(3)
    }
    assert len(plans) == 9
