"""FedProx holds clients near the received model, and is FedAvg without its term."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import HOOKS, PRESETS, LogicError, Training, run_round
from layers.logic.aggregators.mean import Mean
from layers.logic.hooks.local_gradients import FedProx
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds, same_bits
from tests.logic.quadratic import bowls
from tests.logic.vector_files import CLOSE, quadratics, vectors

CLIENTS = bowls(4, noise=0.3)


@pytest.mark.parametrize("case", range(4))
@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_a_round_gives_the_numbers_worked_out(case, weights) -> None:
    file = vectors("fedprox")
    expected, clients = file["expected"]["cases"][case], quadratics(file["inputs"])
    logic = a_logic(
        alone(0, 1, 2),
        aggregator=Mean(weights),
        hooks=[FedProx(file["inputs"]["mu"][case])],
        training=Training(learning_rate=file["inputs"]["lr"]),
    )
    start, local = a_state(logic, file["inputs"]["w0"]), {}

    def watch(update):
        local[update.client] = start.weights + update.delta
        return [update]

    state, _ = run_round(start, MemoryCarrier(logic, clients, forge=watch), logic)
    for client, model in enumerate(expected["local"]):
        np.testing.assert_allclose(local[client], model, **CLOSE)
    name = {"samples": "w_weighted", "uniform": "w_uniform"}[weights]
    np.testing.assert_allclose(state.weights, expected[name], **CLOSE)


@given(momentum=st.sampled_from([0.0, 0.9]), decay=st.sampled_from([0.0, 0.01]))
def test_without_mu_it_is_fedavg_bit_for_bit(momentum, decay) -> None:
    training = Training(epochs=3, momentum=momentum, weight_decay=decay)
    with_hook = a_logic(alone(0, 1, 2, 3), hooks=[FedProx(0.0)], training=training)
    without = a_logic(alone(0, 1, 2, 3), training=training)
    one, _ = run_rounds(3, a_state(with_hook), MemoryCarrier(with_hook, CLIENTS))
    other, _ = run_rounds(3, a_state(without), MemoryCarrier(without, CLIENTS))
    assert same_bits(one.weights, other.weights)


@given(low=st.floats(0.01, 4), high=st.floats(0.01, 4))
def test_a_larger_mu_keeps_clients_nearer_to_the_received_model(low, high) -> None:
    def moved(mu):
        logic = a_logic(
            alone(0), hooks=[FedProx(mu)], training=Training(steps=20, learning_rate=0.1)
        )
        state, _ = run_round(a_state(logic), MemoryCarrier(logic, bowls(1)), logic)
        return float(np.linalg.norm(state.weights))

    low, high = sorted((low, high))
    assert moved(high) <= moved(low) * (1 + 1e-6)


def test_the_preset_is_fedavg_with_the_hook() -> None:
    preset = PRESETS["fedprox"](fraction=0.5, mu=0.2)
    assert preset.hooks == (HOOKS["fedprox"](mu=0.2),)
    assert preset.aggregator == Mean()


def test_a_mu_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(LogicError, match="0 or more"):
        FedProx(-1.0)
    with pytest.raises(LogicError, match="overshoot"):
        a_logic(alone(0), hooks=[FedProx(10.0)], training=Training(learning_rate=0.1))
