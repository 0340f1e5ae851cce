"""Server optimisers take their step from what aggregation would do, with any aggregator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import HOOKS, PRESETS, ServerState, Training, run_round
from layers.logic.aggregators.median import Median
from layers.logic.hooks.server_optimisers import FedAdagrad, FedAdam, FedAvgM, FedYogi
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds, same_bits
from tests.logic.quadratic import bowl, bowls

DELTAS = [[0.5, -2.0, 0.0], [0.25, 1.0, 0.0], [-1.0, 1.0, 4.0], [0.0, 0.5, -1.0]]


def after_rounds(hook, deltas=DELTAS) -> list[ServerState]:
    """Return the states after rounds whose updates are these."""
    logic = a_logic(alone(0), hooks=[hook])
    peers = MemoryCarrier(
        logic,
        {0: bowl([0.0] * 3)},
        forge=lambda u: [replace(u, delta=np.array(deltas[u.round - 1], np.float32))],
    )
    states = [a_state(logic)]
    for _ in deltas:
        states.append(run_round(states[-1], peers, logic)[0])
    return states[1:]


def test_momentum_follows_its_equation() -> None:
    v, w = np.zeros(3), np.zeros(3)
    for delta, state in zip(
        DELTAS, after_rounds(FedAvgM(server_learning_rate=0.5, momentum=0.75)), strict=True
    ):
        v = 0.75 * v + np.array(delta)
        w = w + 0.5 * v
        np.testing.assert_allclose(state.weights, w, rtol=1e-6)


@pytest.mark.parametrize("rule", [FedAdagrad, FedAdam, FedYogi])
def test_adaptive_steps_follow_their_equations(rule) -> None:
    hook = rule(server_learning_rate=0.3, beta1=0.6, tau=0.01)
    m, v, w = np.zeros(3), np.full(3, 0.01**2), np.zeros(3)
    for given_, state in zip(DELTAS, after_rounds(hook), strict=True):
        delta = np.array(given_)
        m = 0.6 * m + 0.4 * delta
        if rule is FedAdagrad:
            v = v + delta**2
        elif rule is FedAdam:
            v = 0.99 * v + 0.01 * delta**2
        else:
            v = v - 0.01 * delta**2 * np.sign(v - delta**2)
        w = w + 0.3 * m / (np.sqrt(v) + 0.01)
        np.testing.assert_allclose(state.weights, w, rtol=1e-5)


@given(rate=st.floats(0.1, 2))
def test_without_momentum_it_is_aggregation_with_a_learning_rate(rate) -> None:
    clients = bowls(4)
    plain = a_logic(alone(*clients))
    with_rate = a_logic(alone(*clients), hooks=[FedAvgM(rate, 0.0)])
    one, _ = run_round(a_state(plain), MemoryCarrier(plain, clients), plain)
    other, _ = run_round(a_state(with_rate), MemoryCarrier(with_rate, clients), with_rate)
    np.testing.assert_allclose(other.weights, rate * one.weights, rtol=1e-5)


@pytest.mark.parametrize("name", ["fedavgm", "fedadagrad", "fedadam", "fedyogi"])
def test_every_optimiser_comes_near_the_optimum_and_resumes_from_its_state(name) -> None:
    clients = bowls(3)
    preset = PRESETS[name](fraction=1.0, server_learning_rate=0.3)
    logic = a_logic(
        preset.selector,
        aggregator=preset.aggregator,
        hooks=preset.hooks,
        training=Training(steps=2, learning_rate=0.1),
    )
    peers = MemoryCarrier(logic, clients)
    middle, _ = run_rounds(20, a_state(logic), peers)
    again = ServerState.of_tree(middle.tree())
    one, _ = run_rounds(60, middle, peers)
    other, _ = run_rounds(60, again, MemoryCarrier(logic, clients))
    assert same_bits(one.weights, other.weights)
    shares = [data.n if name == "fedavgm" else 1 for data in clients.values()]
    optimum = np.average([data.b for data in clients.values()], axis=0, weights=shares)
    assert np.linalg.norm(one.weights - optimum) < 0.3 * np.linalg.norm(optimum)


@pytest.mark.parametrize("name", ["fedavgm", "fedadagrad", "fedadam", "fedyogi"])
def test_a_round_to_which_nobody_returned_moves_nothing(name) -> None:
    logic = a_logic(alone(0, 1), hooks=[HOOKS[name]()], min_updates=0)
    state, _ = run_rounds(2, a_state(logic), MemoryCarrier(logic, bowls(2)))
    lost = MemoryCarrier(logic, bowls(2), lost=[0, 1])
    after, _ = run_round(state, lost, logic)
    assert same_bits(after.weights, state.weights)
    assert after.memory.keys() == state.memory.keys()


@pytest.mark.parametrize("rule", [FedAdagrad(), FedAdam(), FedYogi(), FedAvgM()])
def test_a_huge_update_does_not_stop_a_coordinate_for_ever(rule) -> None:
    states = after_rounds(rule, [[1e25, 0, 0], [-1e25, 0, 0], [1, 1, 1]])
    assert all(np.isfinite(state.weights).all() for state in states)
    for kept in states[-1].memory["0:" + type(rule).__name__].values():
        assert np.isfinite(kept).all()


def test_it_goes_with_any_aggregator() -> None:
    deltas = np.array([[1.0], [2.0], [1e6]], np.float32)
    logic = a_logic(alone(0, 1, 2), size=1, aggregator=Median(), hooks=[FedAvgM(0.5)])
    peers = MemoryCarrier(logic, bowls(3, 1), forge=lambda u: [replace(u, delta=deltas[u.client])])
    state, _ = run_round(a_state(logic), peers, logic)
    assert state.weights[0] == 1.0
