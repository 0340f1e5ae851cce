"""Clustered sampling: one client of each distribution, weighed by how often it was drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import Population, SelectorContext, run_round
from layers.logic.aggregators.mean import Mean
from layers.logic.seeds import generator
from layers.logic.selectors.clustered import Clustered
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state
from tests.logic.quadratic import bowl
from tests.logic.vector_files import CLOSE, vectors


class Dealt:
    """A generator whose draws are dealt out."""

    def __init__(self, draw: int) -> None:
        self.draw = draw

    def integers(self, high: int, size: int) -> np.ndarray:
        return np.full(size, self.draw)


def distributions(samples: list[int], m: int) -> np.ndarray:
    """Find r (m, n) by drawing every possible draw of each distribution once."""
    population, total = Population(dict(enumerate(samples))), sum(samples)
    r = np.zeros((m, len(samples)))
    for draw in range(total):
        plan = Clustered(count=m).select(SelectorContext(population, {}, 1, Dealt(draw)))
        # Of one draw, the distributions' clients are in order of size: repeat each as often.
        by_size = sorted(
            zip(plan.clients, plan.weights, strict=True),
            key=lambda one: (-samples[one[0]], -one[0]),
        )
        clients = [client for client, weight in by_size for _ in range(round(weight * m))]
        for k, client in enumerate(clients):
            r[k, client] += 1
    return r / total


@pytest.mark.parametrize("case", [0, 1])
def test_the_distributions_are_those_that_were_worked_out(case) -> None:
    file = vectors("clustered_sampling_alg1")
    given, expected = file["inputs"]["cases"][case], file["expected"]["cases"][case]
    r = distributions(given["n_samples"], given["m"])
    np.testing.assert_allclose(r, expected["r"], rtol=0, atol=file["tolerance"])
    np.testing.assert_allclose(r.mean(axis=0), expected["marginal"], rtol=0, atol=file["tolerance"])


def test_the_largest_come_first_and_the_higher_number_between_equal_ones() -> None:
    """Pieces of 2 n_k: client 2 to 6, client 1 to 12, client 3 to 14, client 0 to 16; cut at 8."""
    population = Population({0: 1, 1: 3, 2: 3, 3: 1})
    plans = [
        Clustered(count=2).select(SelectorContext(population, {}, 1, Dealt(draw)))
        for draw in range(8)
    ]
    assert [plan.clients for plan in plans] == [*[(1, 2)] * 4, *[(2, 3)] * 2, *[(0, 1)] * 2]
    assert {plan.weights for plan in plans} == {(0.5, 0.5)}


@given(samples=st.lists(st.integers(1, 12), min_size=1, max_size=8), m=st.integers(1, 8))
def test_every_client_is_drawn_in_proportion_to_its_samples(samples, m) -> None:
    m = min(m, len(samples))
    r = distributions(samples, m)
    np.testing.assert_allclose(r.mean(axis=0), np.array(samples) / sum(samples), atol=1e-12)
    np.testing.assert_allclose(r.sum(axis=1), 1.0, atol=1e-12)


def test_a_client_that_is_drawn_twice_trains_once_and_weighs_two() -> None:
    logic = a_logic(Clustered(count=3), aggregator=Mean("plan"))
    clients = {
        0: bowl([1.0, 0.0, 0.0], 700),
        1: bowl([0.0, 1.0, 0.0], 150),
        2: bowl([0.0] * 3, 150),
    }
    peers = MemoryCarrier(logic, clients)
    state, report = run_round(a_state(logic), peers, logic)
    _, samples = peers.open_round(a_state(logic))
    population = Population(samples)
    plan = Clustered(count=3).select(SelectorContext(population, {}, 1, generator(0, "select", 1)))
    assert len(report.clients) == len(plan.clients) == 2
    assert plan.weights[0] == 2 / 3
    mean = sum(
        weight * 0.1 * clients[client].b
        for client, weight in zip(plan.clients, plan.weights, strict=True)
    )
    np.testing.assert_allclose(state.weights, mean, **CLOSE)


def test_asked_in_reserve_the_first_to_come_back_end_the_round() -> None:
    rng = generator(0, "select", 1)
    population = Population(dict.fromkeys(range(100), 5), over_select=1.5)
    plan = Clustered(count=10).select(SelectorContext(population, {}, 1, rng))
    assert len(plan.lanes) == 15
    assert plan.enough == 10
    assert plan.weights == (1 / 15,) * 15
    nobody = Clustered().select(SelectorContext(Population({0: 0}), {}, 1, rng))
    assert nobody.lanes == (), "of nobody, nobody is drawn"


def test_a_client_that_says_it_has_all_the_samples_there_can_be_ends_no_draw() -> None:
    samples = dict.fromkeys(range(4000), 10) | {5: 2**53}
    for draws in (100, 2000):
        selector = Clustered(count=draws)
        plan = selector.select(
            SelectorContext(Population(samples), {}, 1, np.random.default_rng(0))
        )
        assert set(plan.clients) <= set(samples)
        assert sum(plan.weights) == pytest.approx(1)
        assert plan.weights[plan.clients.index(5)] > 0.9


def test_clients_that_all_say_they_have_all_the_samples_there_can_be_are_drawn_alike() -> None:
    population = Population(dict.fromkeys(range(4000), 2**53))
    plan = Clustered(count=2000).select(
        SelectorContext(population, {}, 1, np.random.default_rng(0))
    )
    assert plan.weights == (1 / 2000,) * 2000, "one of each two neighbours"
    assert {client // 2 for client in plan.clients} == set(range(2000))
