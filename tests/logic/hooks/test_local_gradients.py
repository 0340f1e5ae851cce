"""Hooks on local gradients: clipping, the proximal term, and replies with gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from layers.logic import PRESETS, ClientSide, Hook, LogicError, Training, run_round
from layers.logic.aggregators.mean import Mean
from layers.logic.core.trainer import Trainer
from layers.logic.hooks.local_gradients import Clip, FedProx, GradientReply
from tests.logic.memory_carrier import (
    MemoryCarrier,
    a_logic,
    a_state,
    alone,
    of_client,
    run_rounds,
    same_bits,
)
from tests.logic.quadratic import bowl, bowls
from tests.logic.vector_files import CLOSE, quadratics, vectors

gradients = arrays(
    np.float32,
    st.integers(1, 50),
    elements=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False),
)


def clipped(gradient: np.ndarray, norm: float) -> np.ndarray:
    result = gradient.copy()
    Clip(norm).client().gradient(result, np.zeros_like(gradient), None)
    return result


@given(gradient=gradients, limit=st.floats(1e-3, 1e6))
def test_the_norm_is_bounded_and_the_direction_kept(gradient, limit) -> None:
    result = clipped(gradient, limit)
    before = np.linalg.norm(gradient.astype(np.float64))
    after = np.linalg.norm(result.astype(np.float64))
    assert after <= limit * (1 + 1e-5)
    if before <= limit:
        assert same_bits(result, gradient)
    else:
        assert after >= limit * (1 - 1e-5)
        assume(before < 2.0**60 * limit)  # beyond, small parts vanish in float32
        np.testing.assert_allclose(
            result, gradient.astype(np.float64) * (limit / before), rtol=1e-5, atol=1e-30
        )


def test_every_step_is_clipped() -> None:
    far = bowl([300.0, -400.0], n=10)
    logic = a_logic(
        alone(0), size=2, hooks=[Clip(2.0)], training=Training(steps=5, learning_rate=0.1)
    )
    state, _ = run_round(a_state(logic), MemoryCarrier(logic, {0: far}), logic)
    np.testing.assert_allclose(state.weights, [5 * 0.1 * 1.2, -5 * 0.1 * 1.6], rtol=1e-5)


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


BOWLS = bowls(4)


@given(steps=st.integers(0, 8), learning_rate=st.floats(1e-3, 0.5), clip=st.booleans())
def test_both_replies_make_the_same_model(steps, learning_rate, clip) -> None:
    training = Training(steps=steps, learning_rate=learning_rate)
    before = [Clip(0.5)] if clip else []
    model = a_logic(alone(0, 1, 2, 3), hooks=before, training=training)
    gradient = a_logic(alone(0, 1, 2, 3), hooks=[*before, GradientReply()], training=training)
    one, _ = run_rounds(3, a_state(model), MemoryCarrier(model, BOWLS))
    other, _ = run_rounds(3, a_state(gradient), MemoryCarrier(gradient, BOWLS))
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-5, atol=1e-6)


def test_the_servers_step_follows_the_schedule() -> None:
    training = Training(steps=2)
    settings = {"training": training, "learning_rate": lambda round: 0.4 / round}
    model = a_logic(alone(0), **settings)
    gradient = a_logic(alone(0), hooks=[GradientReply()], **settings)
    one, reports = run_rounds(4, a_state(model), MemoryCarrier(model, BOWLS))
    other, _ = run_rounds(4, a_state(gradient), MemoryCarrier(gradient, BOWLS))
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-5, atol=1e-6)
    assert [report.learning_rate for report in reports] == [0.4, 0.2, 0.4 / 3, 0.1]


@dataclass(frozen=True)
class Noise(Hook):
    class Client(ClientSide):
        def send(self, update, context):
            return replace(update, delta=update.delta + np.float32(1))


class Own(Trainer):
    def train(self, job):
        return job.engine.train(job.data, job.task.training, job.task.seed)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"hooks": [Noise(), GradientReply()]}, "Noise .* GradientReply"),
        ({"hooks": [GradientReply()], "trainer": Own()}, "LocalSgd .* Own"),
    ],
)
def test_what_would_not_be_sent_is_refused(parts, reason) -> None:
    with pytest.raises(LogicError, match=reason):
        a_logic(alone(0), **parts)


@pytest.mark.parametrize(
    ("slot", "reason"),
    [
        ({}, "without the float32 gradient"),
        ({"gradient": 3.0}, "without the float32 gradient"),
        ({"gradient": np.ones(3)}, "without the float32 gradient"),
        ({"gradient": np.ones(2, np.float32)}, "shape (2,)"),
        ({"gradient": np.full(3, np.nan, np.float32)}, "not finite"),
    ],
)
def test_a_reply_without_a_sound_gradient_is_refused(slot, reason) -> None:
    def forge(update):
        update.slots["0:GradientReply"] = slot
        return [update]

    logic = a_logic(alone(0, 1), hooks=[GradientReply()])
    peers = MemoryCarrier(logic, BOWLS, untrusted=True, forge=of_client(1, forge))
    state, report = run_round(a_state(logic), peers, logic)
    assert report.of("rejected") == (1,)
    assert reason in report.clients[1].reason
    only = a_logic(alone(0), hooks=[GradientReply()])
    expected, _ = run_round(a_state(logic), MemoryCarrier(only, BOWLS), only)
    assert same_bits(state.weights, expected.weights)


def test_fedsgd_is_one_client_at_a_time_in_either_order() -> None:
    for order in ("uniform", "round-robin"):
        preset = PRESETS["fedsgd"](order=order)
        logic = a_logic(preset.selector, aggregator=preset.aggregator, hooks=preset.hooks)
        _, reports = run_rounds(12, a_state(logic), MemoryCarrier(logic, BOWLS))
        assert all(len(report.of("accepted")) == 1 for report in reports)
        visited = [report.of("accepted")[0] for report in reports]
        assert set(visited) == set(BOWLS)
        assert (visited == [0, 1, 2, 3] * 3) == (order == "round-robin")
