"""Projected STC: each step of its algorithm, in its order, through the code that a round runs."""

from __future__ import annotations

import numpy as np

from layers.logic import Training, run_round
from layers.logic.aggregators.fedfv import FedFV, unpack
from layers.logic.core.aggregator import AGGREGATE
from layers.logic.hooks.compressors import Stc
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone
from tests.logic.quadratic import Quadratic
from tests.logic.vector_files import CLOSE, vectors

KEY = "0:Stc"


def test_four_rounds_give_the_numbers_worked_out() -> None:
    file = vectors("projected_stc_alg4")
    inputs, rounds = file["inputs"], file["expected"]["configs"]["alpha=0.5,tau=1"]
    clients = {
        k: Quadratic(np.array(A), np.array(b), n=10)
        for k, (A, b) in enumerate(zip(inputs["A"], inputs["b"], strict=True))
    }
    state, ledgers, losses = None, {}, {}

    def watch(update):
        losses[update.client] = update.metrics["loss"]
        return [update]

    for selected, expected in zip(inputs["selected"], rounds, strict=True):
        logic = a_logic(
            alone(*selected),
            size=inputs["dim"],
            aggregator=FedFV(alpha=0.5, tau=1),
            hooks=[Stc(inputs["p_up"], inputs["p_down"])],
            training=Training(steps=inputs["local_steps"], learning_rate=inputs["local_lr"]),
        )
        start = a_state(logic, inputs["w0"]) if state is None else state
        np.testing.assert_allclose(start.weights, expected["w_start"], **CLOSE)
        peers = MemoryCarrier(logic, clients, forge=watch, ledgers=ledgers)
        # In the order of the plan, which the trace keeps, too.
        state, report = run_round(start, peers, logic)
        assert len(report.of("accepted")) == len(selected)
        for client in expected["clients"]:
            number = client["id"]
            np.testing.assert_allclose(losses[number], client["loss"], **CLOSE)
            sent = -unpack(state.memory[AGGREGATE]["history"][number])
            assert (np.flatnonzero(sent) == np.flatnonzero(client["compressed"])).all()
            np.testing.assert_allclose(sent, client["compressed"], **CLOSE)
            residual = peers.memory(number, state).memory[KEY]["residual"]
            np.testing.assert_allclose(-residual, client["error"], **CLOSE)
        moved = start.weights - state.weights
        assert (np.flatnonzero(moved) == np.flatnonzero(expected["gbar"])).all()
        np.testing.assert_allclose(moved, expected["gbar"], **CLOSE)
        np.testing.assert_allclose(
            -state.memory[KEY]["residual"], expected["server_error"], **CLOSE
        )
        np.testing.assert_allclose(state.weights, expected["w_end"], **CLOSE)
