"""Draws from populations that no round can walk, and equal draws from those of today's runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from layers.logic import SELECTORS, LogicError, OpenRound
from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.astraea import Astraea
from layers.logic.algorithms.fedaim import FedAimSplit
from layers.logic.algorithms.fedsso import STEPS_BYTES, FedSSO
from layers.logic.client_sizes import ClientSizes
from layers.logic.seeds import generator
from layers.logic.selectors.clustered import Clustered
from layers.logic.selectors.draws import SMALL, draw_by_size, draw_uniform
from layers.logic.selectors.power_of_choice import PowerOfChoice
from layers.logic.selectors.uniform import BySize, RoundRobin, Uniform
from tests.logic.memory_carrier import a_logic
from tests.logic.toys import planned

MANY = 10**12  # a selector that walks them does not end
COUNT = 100
SOME = SMALL + 1


class Unwalked(ClientSizes):
    """Sizes that raise when they are walked as a mapping."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("every client of the population was looked at")


@pytest.mark.parametrize("selector", [Uniform(count=COUNT), RoundRobin(count=COUNT)])
def test_a_cohort_of_a_population_beyond_memory(selector) -> None:
    rounds = [OpenRound(Unwalked(range(MANY), 20), number=number) for number in (1, 2)]
    cohorts = [planned(selector, round) for round in rounds]
    assert [len(set(cohort)) for cohort in cohorts] == [COUNT, COUNT]
    assert not set(cohorts[0]) & set(cohorts[1])
    assert all(rounds[0].has(client) for cohort in cohorts for client in cohort)


@pytest.mark.parametrize(
    "selector",
    [BySize(count=COUNT), Clustered(count=COUNT), PowerOfChoice(count=COUNT, loss="reported")],
    ids=lambda one: type(one).__name__,
)
def test_a_draw_by_size_derives_from_all_sizes_once(selector, monkeypatch) -> None:
    sizes = np.random.default_rng(1).integers(1, 100, 3 * SMALL)
    samples = Unwalked(range(len(sizes)), sizes)

    def select(number: int) -> set[int]:
        return set(planned(selector, OpenRound(samples, number=number)))

    first = select(1)
    monkeypatch.setattr(np, "cumsum", lambda values: _short(values).cumsum())
    monkeypatch.setattr(np, "lexsort", lambda keys: pytest.fail("the clients were sorted again"))
    second = select(2)
    assert len(first) == len(second) == COUNT or isinstance(selector, Clustered)
    assert first != second


def _short(values: np.ndarray) -> np.ndarray:
    assert len(values) <= 2 * COUNT, "the sizes of all clients were added up again"
    return values


@pytest.mark.parametrize("clients", [1, 100, SMALL])
def test_a_uniform_draw_from_few_is_the_head_of_a_permutation(clients) -> None:
    number = min(clients, 7)
    drawn = draw_uniform(generator(3, "x"), clients, number)
    assert drawn.tolist() == generator(3, "x").permutation(clients)[:number].tolist()


def test_a_uniform_draw_from_many_draws_all_with_the_same_probability() -> None:
    times = np.zeros(SOME)
    for round in range(2000):
        drawn = draw_uniform(generator(0, "x", round), SOME, 100)
        assert len(set(drawn.tolist())) == 100
        times[drawn] += 1
    halves = times[: SOME // 2].sum() / times.sum()
    assert abs(halves - 0.5) < 0.005  # five standard deviations
    assert abs(times.var() / times.mean() - 1) < 0.1


@pytest.mark.parametrize("number", [1, 100, 2000, SOME - 1, SOME])
def test_a_draw_by_size_is_numpys_draw(number) -> None:
    sizes = np.random.default_rng(2).integers(1, 1000, SOME)
    sizes[:3] = 10**6  # drawn early, and often
    drawn = draw_by_size(generator(5, "x"), ClientSizes(range(SOME), sizes), number)
    shares = sizes / sizes.sum()
    expected = generator(5, "x").choice(SOME, number, replace=False, p=shares)
    assert drawn.tolist() == expected.tolist()


def test_a_draw_by_size_leaves_out_clients_without_samples() -> None:
    sizes = np.zeros(2 * SOME, np.int64)
    sizes[::2] = 1
    drawn = planned(BySize(count=50), OpenRound(ClientSizes(range(len(sizes)), sizes)))
    assert {client % 2 for client in drawn} == {0}


@pytest.mark.parametrize(
    ("selector", "most"),
    [
        (FedSSO(), 15_000),
        (FedAimSplit(), 10_000),
        (Astraea(), 10_000),
        (SELECTORS["offline-kp"](), 10_000),
        (SELECTORS["online-kp"](), 10_000),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_selector_that_needs_all_clients_refuses_more_than_it_can_work_with(
    selector, most
) -> None:
    logic = a_logic(selector, clients=most, deadline_s=10.0)
    with pytest.raises(LogicError) as caught:
        replace(logic, clients=most + 1)
    text = str(caught.value)
    assert "\n" not in text
    assert f"at most {most:,} clients, and there are {most + 1:,}" in text
    assert selector.why_limited in text
    assert "use fewer clients" in text


def test_selectors_that_follow_the_cohort_have_no_limit() -> None:
    for name in ("uniform", "round-robin", "by-size", "clustered", "power-of-choice"):
        assert SELECTORS[name].most_clients is None
    a_logic(BySize(), clients=MANY, aggregator=Mean(weights="uniform"))


def test_fedsso_refuses_steps_that_no_memory_holds_and_takes_their_sketches() -> None:
    clients = 10_000
    size = STEPS_BYTES // (4 * clients)
    a_logic(FedSSO(), size=size, clients=clients)
    with pytest.raises(LogicError, match="set sketch, as in sketch: 1000"):
        a_logic(FedSSO(), size=size + 1, clients=clients)
    a_logic(FedSSO(sketch=1000), size=size + 1, clients=clients)
