"""Clustered sampling: one client of each distribution, weighed by how often it was drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import OpenRound, run_round
from layers.logic.aggregators.mean import Mean
from layers.logic.selectors.clustered import Clustered
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state
from tests.logic.quadratic import bowl, bowls
from tests.logic.toys import planned
from tests.logic.vector_files import CLOSE, vectors


class Dealt(OpenRound):
    """A round whose draws are dealt out."""

    draw = 0

    @property
    def rng(self):
        return self

    def integers(self, high: int, size: int) -> np.ndarray:
        return np.full(size, self.draw)


def weights_of(m: int, round: OpenRound) -> dict[int, float | None]:
    """Return the weight of each client that is drawn from m distributions."""
    planned(Clustered(count=m), round)
    return {client: lane.weight for lane in round.planned for client in lane.clients}


def dealt(samples: dict[int, int], m: int, draw: int) -> dict[int, float | None]:
    round = Dealt(samples)
    round.draw = draw
    return weights_of(m, round)


def distributions(samples: list[int], m: int) -> np.ndarray:
    """Find r (m, n) by drawing every possible draw of each distribution once."""
    total = sum(samples)
    r = np.zeros((m, len(samples)))
    for draw in range(total):
        weights = dealt(dict(enumerate(samples)), m, draw)
        # Of one draw, the distributions' clients are in order of size: repeat each as often.
        by_size = sorted(weights, key=lambda client: (-samples[client], -client))
        clients = [client for client in by_size for _ in range(round(weights[client] * m))]
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
    drawn = [dealt({0: 1, 1: 3, 2: 3, 3: 1}, 2, draw) for draw in range(8)]
    assert [tuple(one) for one in drawn] == [*[(1, 2)] * 4, *[(2, 3)] * 2, *[(0, 1)] * 2]
    assert {weight for one in drawn for weight in one.values()} == {0.5}


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
    weights = weights_of(3, OpenRound(samples))
    assert len(report.clients) == len(weights) == 2
    assert weights[0] == 2 / 3
    mean = sum(weight * 0.1 * clients[client].b for client, weight in weights.items())
    np.testing.assert_allclose(state.weights, mean, **CLOSE)


def test_asked_in_reserve_the_first_to_come_back_end_the_round() -> None:
    weights = weights_of(10, OpenRound(dict.fromkeys(range(100), 5), over_select=1.5))
    assert list(weights.values()) == [1 / 15] * 15
    logic = a_logic(Clustered(count=10), over_select=1.5, aggregator=Mean("plan"))
    _, report = run_round(a_state(logic), MemoryCarrier(logic, bowls(100)), logic)
    assert (report.selected, len(report.of("accepted"))) == (15, 10)
    assert not weights_of(3, OpenRound({0: 0})), "of nobody, nobody is drawn"


def test_a_client_that_says_it_has_all_the_samples_there_can_be_ends_no_draw() -> None:
    samples = dict.fromkeys(range(4000), 10) | {5: 2**53}
    for draws in (100, 2000):
        weights = weights_of(draws, OpenRound(samples))
        assert weights.keys() <= samples.keys()
        assert sum(weights.values()) == pytest.approx(1)
        assert weights[5] > 0.9


def test_clients_that_all_say_they_have_all_the_samples_there_can_be_are_drawn_alike() -> None:
    weights = weights_of(2000, OpenRound(dict.fromkeys(range(4000), 2**53)))
    assert list(weights.values()) == [1 / 2000] * 2000, "one of each two neighbours"
    assert {client // 2 for client in weights} == set(range(2000))
