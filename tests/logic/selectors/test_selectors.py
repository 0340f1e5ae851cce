"""Selectors: pure functions that draw as many clients as asked, of those that have samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import SELECTORS, OpenRound, run_round
from layers.logic.aggregators.mean import Mean
from layers.logic.selectors.uniform import BySize, RoundRobin, Uniform
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, run_rounds
from tests.logic.quadratic import bowl, bowls
from tests.logic.toys import planned

EVERY = [SELECTORS[name] for name in ("by-size", "round-robin", "uniform")]
sizes = st.dictionaries(st.integers(0, 10**6), st.integers(0, 10**6), max_size=40)


def drawn(selector, samples: dict[int, int], round: int = 1) -> list[int]:
    return planned(selector, OpenRound(samples, number=round))


@pytest.mark.parametrize(
    ("fraction", "clients", "cohort"),
    [
        (0.29, 100, 29),  # int(0.29 * 100) is 28
        (0.1, 100, 10),
        (0.57, 100, 57),
        (1.0, 7, 7),
        (0.0, 100, 1),
        (0.001, 100, 1),
        (0.1, 3, 1),
        (0.5, 5, 3),
    ],
)
@pytest.mark.parametrize("selector", EVERY)
def test_a_cohort_is_the_rounded_share_but_at_least_one(
    selector, fraction, clients, cohort
) -> None:
    population = dict.fromkeys(range(clients), 5)
    assert len(drawn(selector(fraction=fraction), population)) == cohort


@pytest.mark.parametrize(
    ("clients", "cohort"), [(1, 1), (3, 3), (10, 10), (11, 1), (24, 2), (100, 10)]
)
def test_few_clients_all_take_part_if_no_fraction_is_given(clients: int, cohort: int) -> None:
    population = dict.fromkeys(range(clients), 5)
    assert len(drawn(Uniform(), population)) == cohort
    assert len(drawn(BySize(), population)) == max(round(0.1 * clients), 1)


@pytest.mark.parametrize("selector", EVERY)
@given(
    population=sizes,
    fraction=st.floats(0, 1),
    count=st.none() | st.integers(1, 50),
    round=st.integers(1, 9),
)
def test_only_clients_with_samples_are_selected_each_once_and_as_many_as_there_are(
    selector, population, fraction, count, round
) -> None:
    able = [client for client, n in population.items() if n > 0]
    clients = drawn(selector(fraction=fraction, count=count), population, round)
    assert len(set(clients)) == len(clients)
    assert set(clients) <= set(able)
    if count is not None:
        assert len(clients) == min(count, len(able))
    else:
        assert abs(len(clients) - max(1, fraction * len(able))) <= 0.5 or not able
    assert clients == sorted(clients)


def shares(selector, population: dict[int, int], rounds: int) -> np.ndarray:
    taken = [client for round in range(rounds) for client in drawn(selector, population, round)]
    return np.bincount(taken, minlength=len(population)) / rounds


def test_uniform_selection_favours_nobody() -> None:
    population = {client: 1 + 100 * client for client in range(10)}
    rounds = 4000
    np.testing.assert_allclose(
        shares(Uniform(count=3), population, rounds),
        0.3,
        atol=5 * np.sqrt(0.3 * 0.7 / rounds),  # five standard deviations
    )


def test_selection_by_size_is_in_proportion_to_the_samples() -> None:
    population = {0: 10, 1: 20, 2: 30, 3: 40, 4: 0, 5: 100}
    rounds = 4000
    expected = np.array(list(population.values())) / 200
    np.testing.assert_allclose(
        shares(BySize(count=1), population, rounds),
        expected,
        atol=5 * np.sqrt(0.25 / rounds),
    )


@given(clients=st.integers(1, 20), count=st.integers(1, 25))
def test_round_robin_visits_everyone_before_anyone_twice_more(clients, count) -> None:
    population = {3 * client: 1 for client in range(clients)}
    visits = dict.fromkeys(population, 0)
    for round in range(1, 3 * clients + 1):
        for client in drawn(RoundRobin(count=count), population, round):
            visits[client] += 1
        assert max(visits.values()) - min(visits.values()) <= 1
    assert min(visits.values()) >= 1


def test_round_robin_goes_in_ascending_order() -> None:
    population = {5: 1, 2: 1, 9: 0, 7: 1}
    visited = [drawn(RoundRobin(), population, round) for round in range(1, 5)]
    assert visited == [[2], [5], [7], [2]]
    pairs = [drawn(RoundRobin(count=2), {**population, 8: 1, 1: 1}, round) for round in (1, 2, 3)]
    assert pairs == [[1, 2], [5, 7], [1, 8]]


@pytest.mark.parametrize(("count", "asked"), [(1, 2), (3, 5)])
@pytest.mark.parametrize("selector", EVERY)
def test_more_are_asked_than_are_enough(selector, count, asked) -> None:
    logic = a_logic(selector(count=count), over_select=1.5, aggregator=Mean("uniform"))
    _, report = run_round(a_state(logic), MemoryCarrier(logic, bowls(20)), logic)
    assert (report.selected, len(report.of("accepted"))) == (asked, count)


@pytest.mark.parametrize("selector", EVERY)
def test_an_empty_population_is_an_empty_round(selector) -> None:
    logic = a_logic(selector(count=3), min_updates=0, aggregator=Mean("uniform"))
    state, report = run_round(a_state(logic), MemoryCarrier(logic, {}), logic)
    assert report.clients == ()
    assert state.round == 1


def test_what_a_selector_learns_it_is_given_in_the_next_round() -> None:
    given: list[dict] = []

    class Learning(Uniform):
        def draw(self, round, number):
            given.append(dict(round.memory))
            return super().draw(round, number)

        def on_round_end(self, memory, report):
            return {"rounds": memory.get("rounds", 0) + 1, "last": report.round}

    logic = a_logic(Learning(), size=1)
    run_rounds(3, a_state(logic), MemoryCarrier(logic, {0: bowl(1.0)}))
    assert given == [{}, {"rounds": 1, "last": 1}, {"rounds": 2, "last": 2}]
