"""Replying with the sum of the gradients makes the model that replying with the model makes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import ClientSide, Hook, LogicError, Training, run_round
from layers.logic.catalogue import PRESETS
from layers.logic.core.trainer import Trainer
from layers.logic.hooks.local_gradients import Clip, GradientReply
from tests.logic.memory_carrier import (
    MemoryCarrier,
    a_logic,
    a_state,
    alone,
    of_client,
    run_rounds,
    same_bits,
)
from tests.logic.quadratic import bowls

CLIENTS = bowls(4)


@given(steps=st.integers(0, 8), learning_rate=st.floats(1e-3, 0.5), clip=st.booleans())
def test_both_replies_make_the_same_model(steps, learning_rate, clip) -> None:
    training = Training(steps=steps, learning_rate=learning_rate)
    before = [Clip(0.5)] if clip else []
    model = a_logic(alone(0, 1, 2, 3), hooks=before, training=training)
    gradient = a_logic(alone(0, 1, 2, 3), hooks=[*before, GradientReply()], training=training)
    one, _ = run_rounds(3, a_state(model), MemoryCarrier(model, CLIENTS))
    other, _ = run_rounds(3, a_state(gradient), MemoryCarrier(gradient, CLIENTS))
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-5, atol=1e-6)


def test_the_servers_step_follows_the_schedule() -> None:
    training = Training(steps=2)
    settings = {"training": training, "learning_rate": lambda round: 0.4 / round}
    model = a_logic(alone(0), **settings)
    gradient = a_logic(alone(0), hooks=[GradientReply()], **settings)
    one, reports = run_rounds(4, a_state(model), MemoryCarrier(model, CLIENTS))
    other, _ = run_rounds(4, a_state(gradient), MemoryCarrier(gradient, CLIENTS))
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-5, atol=1e-6)
    assert [report.learning_rate for report in reports] == [0.4, 0.2, 0.4 / 3, 0.1]


@pytest.mark.parametrize("settings", [{"momentum": 0.9}, {"weight_decay": 1e-4}])
def test_what_makes_another_model_is_refused(settings) -> None:
    ((name, value),) = settings.items()
    with pytest.raises(LogicError, match=f"{name} is {value}"):
        a_logic(alone(0), hooks=[GradientReply()], training=Training(**settings))


class _Noisy(ClientSide):
    def send(self, update, context):
        return replace(update, delta=update.delta + np.float32(1))


@dataclass(frozen=True)
class Noise(Hook):
    def client(self) -> ClientSide:
        return _Noisy()


class Own(Trainer):
    def train(self, task, engine, data, correct, context):
        return engine.train(data, task.training, task.seed)


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
    peers = MemoryCarrier(logic, CLIENTS, foreign=True, forge=of_client(1, forge))
    state, report = run_round(a_state(logic), peers, logic)
    assert report.of("rejected") == (1,)
    assert reason in report.clients[1].reason
    only = a_logic(alone(0), hooks=[GradientReply()])
    expected, _ = run_round(a_state(logic), MemoryCarrier(only, CLIENTS), only)
    assert same_bits(state.weights, expected.weights)


def test_fedsgd_is_one_client_at_a_time_in_either_order() -> None:
    for order in ("uniform", "round-robin"):
        preset = PRESETS["fedsgd"](order=order)
        logic = a_logic(preset.selector, aggregator=preset.aggregator, hooks=preset.hooks)
        _, reports = run_rounds(12, a_state(logic), MemoryCarrier(logic, CLIENTS))
        assert all(len(report.of("accepted")) == 1 for report in reports)
        visited = [report.of("accepted")[0] for report in reports]
        assert set(visited) == set(CLIENTS)
        assert (visited == [0, 1, 2, 3] * 3) == (order == "round-robin")
