"""CSFedAvg: the clients with the smallest divergence become candidates, and then the cohort."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layers.logic import Facilities, LogicError, OpenRound, Training, run_round
from layers.logic.algorithms.csfedavg import CsFedAvg, Divergence
from layers.logic.core.state import ServerState
from layers.logic.hooks.stragglers import Stragglers
from tests.logic.memory_carrier import (
    MemoryCarrier,
    a_logic,
    a_state,
    alone,
    lying,
    run_rounds,
    same_bits,
)
from tests.logic.quadratic import QuadraticEngine, bowl, bowls
from tests.logic.toys import InLanes, planned
from tests.logic.vector_files import CLOSE, vectors

TRAINING = Training(steps=2, learning_rate=0.1)
CLIENTS = bowls(10)


@dataclass
class Auxiliary:
    """A server's own samples; says how often it trained, and from what."""

    data: object
    calls: list = field(default_factory=list)
    steps: list = field(default_factory=list)

    def __call__(self, weights, buffers, training, seed) -> np.ndarray:
        self.calls.append((weights.copy(), seed))
        self.steps.append(training.steps)
        engine = QuadraticEngine(weights.size)
        engine.load(weights, buffers)
        engine.train(self.data, training, seed)
        return engine.weights


def a_csfedavg(auxiliary=None, clients=CLIENTS, hooks=(), training=TRAINING, **selection):
    auxiliary = auxiliary or Auxiliary(bowl(np.zeros(3), noise=0.1))
    selector = CsFedAvg(**{"count": 4, "candidates": 0.4, "entering": 0.5, **selection})
    hooks = [*hooks, Divergence()]
    return a_logic(
        selector, hooks=hooks, training=training, facilities=Facilities(auxiliary), seed=11
    )


def omega(state: ServerState) -> list[int]:
    return state.memory.get("selector", {}).get("omega", np.zeros(0)).tolist()


def test_the_divergence_and_who_enters_are_as_worked_out() -> None:
    told = vectors("csfedavg_divergence")
    models = np.array(told["inputs"]["client_models"], np.float32)
    w_aux = np.array(told["inputs"]["auxiliary_model"], np.float32)
    clients = {k: bowl(model) for k, model in enumerate(models)}  # one step of rate 1 goes there
    take = told["inputs"]["take"]
    logic = a_logic(
        CsFedAvg(1.0, candidates=1.0, entering=take / len(models)),
        len(w_aux),
        hooks=[Divergence()],
        training=Training(steps=1, learning_rate=1.0),
        facilities=Facilities(lambda weights, buffers, training, seed: w_aux),
    )
    start = a_state(logic, np.full(len(w_aux), 0.5))
    state, report = run_round(start, MemoryCarrier(logic, clients), logic)
    found = [client.metrics["divergence"] for client in report.clients]
    np.testing.assert_allclose(found, told["expected"]["divergence"], **CLOSE)
    assert np.argsort(found).tolist() == told["expected"]["lowest_first"]
    assert omega(state) == told["expected"]["candidates_added"]


def test_the_model_of_a_client_that_began_at_another_than_the_global_one_is_compared() -> None:
    """The second client of a lane begins where the first one ended."""
    w_aux = np.array([1.0, -2.0, 0.5], np.float32)
    logic = a_logic(
        InLanes(((0, 1), (2,))),
        hooks=[Divergence()],
        training=Training(steps=1, learning_rate=0.5),
        facilities=Facilities(lambda weights, buffers, training, seed: w_aux),
    )
    start = np.array([3.0, 1.0, -1.0])
    _, report = run_round(a_state(logic, start), MemoryCarrier(logic, CLIENTS), logic)
    models = {client: (start + CLIENTS[client].b) / 2 for client in (0, 2)}
    models[1] = (models[0] + CLIENTS[1].b) / 2
    away = {k: np.linalg.norm(model - w_aux) / np.linalg.norm(w_aux) for k, model in models.items()}
    found = {told.client: told.metrics["divergence"] for told in report.clients}
    assert found == pytest.approx(away, rel=1e-5)


def test_everybody_takes_part_until_there_are_candidates_enough_and_then_they_alone() -> None:
    logic = a_csfedavg()
    state, peers = a_state(logic), MemoryCarrier(logic, CLIENTS)
    full, cohorts = [], []
    for _ in range(8):
        full.append(len(omega(state)) >= 4)
        state, report = run_round(state, peers, logic)
        cohorts.append(report.of("accepted"))
    assert full == [False] * 2 + [True] * 6, "2 of the 4 that took part enter each round"
    assert len({*cohorts[0], *cohorts[1]} - set(omega(state)[:4])) > 0
    assert set(cohorts[2:]) == {tuple(sorted(omega(state)[:4]))}


def test_those_with_the_smallest_divergence_enter() -> None:
    logic = a_csfedavg(fraction=1.0, count=None, entering=0.3)
    state, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    away = {told.client: told.metrics["divergence"] for told in report.clients}
    assert omega(state) == sorted(away, key=away.__getitem__)[:3]
    state, report = run_round(state, MemoryCarrier(logic, CLIENTS), logic)
    away = {told.client: told.metrics["divergence"] for told in report.clients}
    for client in omega(state)[:3]:
        del away[client]
    assert omega(state)[3:] == sorted(away, key=away.__getitem__)[:3]


def test_the_auxiliary_model_is_trained_once_a_round_from_the_global_model() -> None:
    auxiliary = Auxiliary(bowl(np.zeros(3)))
    logic = a_csfedavg(auxiliary)
    state, peers = a_state(logic, np.ones(3)), MemoryCarrier(logic, CLIENTS)
    for round in range(1, 4):
        before = state.weights
        state, _ = run_round(state, peers, logic)
        assert len(auxiliary.calls) == round
        assert same_bits(auxiliary.calls[-1][0], before)
    assert len({seed for _, seed in auxiliary.calls}) == 3


@settings(max_examples=10)
@given(order=st.permutations(range(10)))
def test_the_server_trains_as_long_as_the_round_says_whoever_of_its_stragglers_answers_first(
    order,
) -> None:
    auxiliary = Auxiliary(bowl(np.zeros(3), noise=0.1))
    training = Training(steps=9, learning_rate=0.1)
    logic = a_csfedavg(auxiliary, hooks=[Stragglers(0.8)], training=training)
    _, reports = run_rounds(2, a_state(logic), MemoryCarrier(logic, CLIENTS, order=order))
    assert min(client.steps for report in reports for client in report.clients) < 9
    assert auxiliary.steps == [9, 9]


def select(clients, omega, total: int | None = None, **settings) -> set[int]:
    memory = {"omega": np.array(omega, np.int64)}
    round = OpenRound(dict.fromkeys(clients, 10), number=5, memory=memory, total=total)
    return set(planned(CsFedAvg(**settings), round))


def test_candidates_that_are_not_there_are_not_asked() -> None:
    assert select(range(5, 15), [1, 2, 7, 8], count=4, candidates=0.4) == {7, 8}
    gone = select(range(5, 15), [1, 2, 3, 4], count=4, candidates=0.4)
    assert len(gone) == 4, "a random round, since none is there"


def test_a_part_of_the_cohort_goes_on_exploring_if_so_wished() -> None:
    cohort = select(range(10), [1, 2, 7, 8], count=4, candidates=0.4, exploring=0.5)
    assert len(cohort) == 4
    assert len(cohort & {1, 2, 7, 8}) == 2
    logic = a_csfedavg(exploring=0.5)
    _, reports = run_rounds(4, a_state(logic), MemoryCarrier(logic, CLIENTS))
    assert [len(report.of("accepted")) for report in reports] == [4] * 4


def test_a_server_without_samples_of_its_own_is_told_before_anything_is_sent() -> None:
    logic = a_logic(alone(0), hooks=[Divergence()])
    peers = MemoryCarrier(logic, CLIENTS)
    with pytest.raises(LogicError, match="auxiliary"):
        run_round(a_state(logic), peers, logic)
    assert not peers.tasks


def test_how_many_candidates_there_may_be_goes_by_all_clients_of_the_experiment() -> None:
    """With P = 0.4 and N = 10 it takes four candidates, also while only five clients are there."""
    half = {"clients": range(5), "total": 10, "count": 3, "candidates": 0.4}
    assert select(omega=[0, 1], **half) - {0, 1}, "two are not enough yet"
    assert select(omega=[0, 1, 2, 3], **half) <= {0, 1, 2, 3}


def test_a_lie_of_another_length_is_refused_and_the_others_count() -> None:
    logic = a_csfedavg()
    forge = lying(3, delta=np.zeros(7, np.float32))
    state, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS, forge=forge), logic)
    statuses = {told.client: told.status for told in report.clients}
    assert statuses.pop(3, "rejected") == "rejected"
    assert set(statuses.values()) == {"accepted"}
    assert 3 not in omega(state)
