"""FedAvg and FedSGD equal independently computed numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layers.logic import LogicError, Training, run_round
from layers.logic.aggregators.mean import Mean
from layers.logic.catalogue.presets import fedsgd
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds
from tests.logic.quadratic import Quadratic
from tests.logic.vector_files import CLOSE, quadratics
from tests.logic.vector_files import vectors as vectors_of


@pytest.fixture(scope="module")
def vectors() -> dict:
    return vectors_of("fedavg_fedsgd")


@pytest.fixture(scope="module")
def clients(vectors: dict) -> dict[int, Quadratic]:
    return quadratics(vectors["inputs"])


@pytest.mark.parametrize(("momentum", "expected"), [(0.0, "fedavg"), (0.9, "fedavg_momentum0_9")])
def test_fedavg_trains_and_averages_as_worked_out(vectors, clients, momentum, expected) -> None:
    training = Training(learning_rate=vectors["inputs"]["lr"], momentum=momentum)
    logic = a_logic(alone(0, 1, 2), training=training)
    locals_ = {}

    def watch(update):
        locals_[update.client] = update.delta + start.weights
        return [update]

    start = a_state(logic, vectors["inputs"]["w0"])
    state, report = run_round(start, MemoryCarrier(logic, clients, forge=watch), logic)
    assert report.of("accepted") == (0, 1, 2)
    for client, local in enumerate(vectors["expected"][expected]["local"]):
        np.testing.assert_allclose(locals_[client], local, **CLOSE)
    np.testing.assert_allclose(state.weights, vectors["expected"][expected]["w"], **CLOSE)
    assert state.weights.dtype == np.float32


@pytest.mark.parametrize("gone", ["not selected", "lost"])
def test_fedavg_normalises_over_the_clients_that_returned(vectors, clients, gone) -> None:
    selector = alone(0, 2) if gone == "not selected" else alone(0, 1, 2)
    logic = a_logic(selector, training=Training(learning_rate=vectors["inputs"]["lr"]))
    peers = MemoryCarrier(logic, clients, lost=[1])
    state, _ = run_round(a_state(logic, vectors["inputs"]["w0"]), peers, logic)
    expected = vectors["expected"]["fedavg_partial_S_0_2"]
    np.testing.assert_allclose(state.weights, expected["normalised_over_S"], **CLOSE)
    assert not np.allclose(state.weights, expected["printed_formula_over_all_n"], **CLOSE)


@pytest.mark.parametrize("reply", ["model", "gradient"])
def test_fedsgd_visits_one_client_after_the_other(vectors, clients, reply) -> None:
    preset = fedsgd(reply=reply, order="round-robin")
    training = Training(learning_rate=vectors["inputs"]["lr"])
    logic = a_logic(preset.selector, hooks=preset.hooks, training=training)
    sums = []

    def watch(update):
        if reply == "gradient":
            (slot,) = update.slots.values()
            sums.append(slot["gradient"])
            assert update.delta.size == 0
        return [update]

    peers = MemoryCarrier(logic, clients, forge=watch)
    state = a_state(logic, vectors["inputs"]["w0"])
    expected = vectors["expected"]["fedsgd_sequential"]
    for visit, after in enumerate(expected):
        state, reports = run_rounds(1, state, peers)
        assert reports[0].of("accepted") == (visit,)
        np.testing.assert_allclose(state.weights, after["w"], **CLOSE)
    if reply == "gradient":
        np.testing.assert_allclose(sums, [after["grad_sum"] for after in expected], **CLOSE)


def test_local_steps_are_those_of_the_formula(vectors, clients) -> None:
    formula = vectors["expected"]["u_local_updates"]
    per_epoch = formula["n"] // formula["K"] // formula["B"]
    client = replace(clients[0], steps_per_epoch=per_epoch)
    training = Training(epochs=formula["E"], batch_size=formula["B"], learning_rate=1e-3)
    logic = a_logic(alone(0), training=training)
    _, report = run_round(a_state(logic), MemoryCarrier(logic, {0: client}), logic)
    assert report.clients[0].steps == formula["u"]


def test_a_mean_by_the_plans_weights_is_refused_where_the_plan_has_none(clients) -> None:
    logic = a_logic(alone(0, 1, 2), aggregator=Mean("plan"))
    with pytest.raises(LogicError, match="weights: plan"):
        run_round(a_state(logic), MemoryCarrier(logic, clients), logic)
