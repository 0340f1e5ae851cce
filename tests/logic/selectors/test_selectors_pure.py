"""Selection by loss, time and size is a function of memory, clients, answers and seed alone."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layers.logic import OpenRound, Selector
from layers.logic.algorithms.fedcs import FedCS
from layers.logic.algorithms.knapsack import OfflineKP, OnlineKP
from layers.logic.algorithms.oort import Oort
from layers.logic.core.selector import with_numbers
from layers.logic.selectors.clustered import Clustered
from layers.logic.selectors.power_of_choice import PowerOfChoice
from layers.logic.selectors.uniform import BySize, RoundRobin, Uniform
from tests.logic.toys import planned

SIZED = (
    PowerOfChoice(fraction=0.3, loss="reported"),
    PowerOfChoice(fraction=0.3),
    Oort(fraction=0.3, most_rounds=2, pacer_step=2),
)
DRAWN = (Uniform(fraction=0.3), BySize(fraction=0.3), Clustered(fraction=0.3))
EVERY = (*SIZED, *DRAWN, RoundRobin(fraction=0.3), FedCS(candidates=0.5), OfflineKP(), OnlineKP())


class Asking(OpenRound):
    """A round that keeps what it asks."""

    def __init__(self, samples: Mapping[int, int], **settings: Any) -> None:
        super().__init__(samples, deadline_s=60.0, **settings)
        self.questions: list[tuple[str, tuple[int, ...] | None]] = []

    def ask(self, question, clients=None, *, once=False):
        self.questions.append((question.name, None if clients is None else tuple(clients)))
        return super().ask(question, clients, once=once)


def answers_of(clients: int, seed: int) -> dict[str, dict[int, dict[str, Any]]]:
    """Return what so many clients answer, whatever they are asked."""
    rng = np.random.default_rng(seed)
    times, losses = rng.uniform(0.1, 30.0, (clients, 2)), rng.uniform(0, 3, clients)
    return {
        "times": {k: {"train_s": a, "upload_s": b} for k, (a, b) in enumerate(times.tolist())},
        "loss": {k: {"loss": loss} for k, loss in enumerate(losses.tolist())},
    }


def a_memory(known: dict[int, float]) -> Mapping[str, Any]:
    memory: Mapping[str, Any] = {"largest": 2.0, "percentile": 40.0, "gained": np.ones(3)}
    for name, factor in (("loss", 1.0), ("reward", 9.0), ("took_s", 4.0)):
        memory = with_numbers(memory, name, {k: factor * x for k, x in known.items()})
    memory = with_numbers(memory, "count", dict.fromkeys(known, 2.0))
    return with_numbers(memory, "round", dict.fromkeys(known, 3.0))


def drawn(
    selector: Selector, sizes: list[int], memory: Mapping[str, Any], number: int, seed: int
) -> tuple[list[int], Asking]:
    """Return the clients that a selector lets train, and the round in which it does."""
    round = Asking(dict(enumerate(sizes)), number=number, memory=memory, seed=seed)
    return planned(selector, round, answers_of(len(sizes), seed)), round


clients = st.lists(st.integers(0, 500), min_size=1, max_size=30).filter(any)
memories = st.builds(a_memory, st.dictionaries(st.integers(0, 30), st.floats(0, 9)))


@pytest.mark.parametrize("selector", EVERY)
@settings(max_examples=40)
@given(sizes=clients, memory=memories, number=st.integers(4, 99), seed=st.integers(0, 99))
def test_the_same_arguments_give_the_same_lanes_and_change_nothing(
    selector, sizes, memory, number, seed
) -> None:
    before = copy.deepcopy(dict(memory))
    cohort, once = drawn(selector, sizes, memory, number, seed)
    _, again = drawn(selector, sizes, copy.deepcopy(dict(memory)), number, seed)
    assert (once.questions, once.planned) == (again.questions, again.planned)
    for key, kept in before.items():
        np.testing.assert_equal(memory[key], kept)
    assert set(cohort) <= set(once.clients)


@pytest.mark.parametrize("selector", SIZED)
@settings(max_examples=40)
@given(sizes=clients, memory=memories, seed=st.integers(0, 99))
def test_as_many_take_part_as_the_fraction_says(selector, sizes, memory, seed) -> None:
    cohort, round = drawn(selector, sizes, memory, 5, seed)
    assert len(cohort) == max(int(np.floor(0.3 * len(round.clients) + 0.5)), 1)
    assert cohort == sorted(cohort)


@pytest.mark.parametrize("selector", [*SIZED, *DRAWN, FedCS(candidates=0.3)])
def test_rounds_and_seeds_draw_differently(selector) -> None:
    cohorts = {
        tuple(drawn(selector, [5] * 60, {}, number, seed)[0])
        for number in range(1, 4)
        for seed in range(3)
    }
    assert len(cohorts) == 9
