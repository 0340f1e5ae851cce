"""FedNova weighs each client's mean step, whatever the number of its steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import Training, run_round
from layers.logic.aggregators.fednova import FedNova
from layers.logic.hooks.local_gradients import FedProx
from layers.logic.numeric.vectors import accumulation
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds, same_bits
from tests.logic.quadratic import bowl, bowls
from tests.logic.vector_files import CLOSE, quadratics, vectors


@pytest.mark.parametrize("case", range(4))
def test_two_rounds_give_the_numbers_worked_out(case) -> None:
    file = vectors("fednova")
    expected, rate = file["expected"]["cases"][case], file["inputs"]["lr"]
    mu, momentum = expected["mu"], expected["momentum"]
    logic = a_logic(
        alone(0, 1, 2),
        aggregator=FedNova(mu),
        hooks=[FedProx(mu)],
        training=Training(learning_rate=rate, momentum=momentum),
    )
    directions = {}

    def watch(update):
        a = accumulation(update.steps, rate, momentum, mu)
        assert a == pytest.approx(expected["a_norm"][update.client])
        directions.setdefault(update.client, update.delta / (-rate * a))
        return [update]

    peers = MemoryCarrier(logic, quadratics(file["inputs"]), forge=watch)
    state, _ = run_rounds(1, a_state(logic, file["inputs"]["w0"]), peers)
    np.testing.assert_allclose([directions[k] for k in range(3)], expected["d"], **CLOSE)
    np.testing.assert_allclose(state.weights, expected["w_after_1"], **CLOSE)
    state, _ = run_rounds(1, state, peers)
    np.testing.assert_allclose(state.weights, expected["w_after_2"], **CLOSE)


@given(steps=st.integers(1, 9), momentum=st.sampled_from([0.0, 0.5, 0.9]))
def test_equal_steps_give_fedavgs_model_bit_for_bit(steps, momentum) -> None:
    training = Training(steps=steps, momentum=momentum)
    clients = bowls(5, noise=0.3)
    nova = a_logic(alone(*clients), aggregator=FedNova(), training=training)
    mean = a_logic(alone(*clients), training=training)
    one, _ = run_rounds(3, a_state(nova), MemoryCarrier(nova, clients))
    other, _ = run_rounds(3, a_state(mean), MemoryCarrier(mean, clients))
    assert same_bits(one.weights, other.weights)
    assert same_bits(one.buffers, other.buffers)


def test_a_client_that_took_no_step_has_no_direction() -> None:
    logic = a_logic(alone(0, 1), size=1, aggregator=FedNova())

    def forge(update):
        return [replace(update, steps=2 * update.client, delta=np.full(1, 4, np.float32))]

    clients = {0: bowl(1.0, 10), 1: bowl(1.0, 30)}
    state, _ = run_round(a_state(logic), MemoryCarrier(logic, clients, forge=forge), logic)
    tau_eff, direction = 0.75 * 2, 0.75 * 4 / 2
    assert state.weights[0] == tau_eff * direction
    nobody = a_logic(alone(0), size=1, aggregator=FedNova())
    start = a_state(nobody, [3.0])
    state, _ = run_round(start, MemoryCarrier(nobody, clients, forge=forge), nobody)
    assert state.weights[0] == 3.0


@given(
    steps=st.integers(0, 60),
    momentum=st.floats(0, 0.99),
    mu=st.floats(0, 5),
    proximal=st.booleans(),
)
def test_accumulation_is_the_sum_of_the_weights_of_the_gradients(
    steps, momentum, mu, proximal
) -> None:
    """The weight of a gradient is how far a unit gradient in that step alone moves the model."""
    rate = 0.1
    momentum, mu = (0.0, mu) if proximal else (momentum, 0.0)
    total = 0.0
    for pulse in range(steps):
        moved = velocity = 0.0
        for step in range(steps):
            gradient = float(step == pulse) + mu * moved
            velocity = momentum * velocity + gradient
            moved -= rate * velocity
        total += -moved / rate
    assert accumulation(steps, rate, momentum, mu) == pytest.approx(total, rel=1e-6, abs=1e-6)
