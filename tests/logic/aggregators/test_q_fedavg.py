"""q-FedAvg gives clients with a high loss more say, and is the mean of the models without q."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from layers.logic import Training, run_round
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.q_fedavg import QFedAvg
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds, same_bits
from tests.logic.quadratic import bowl, bowls
from tests.logic.vector_files import CLOSE, quadratics, vectors


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)], ids=["highest loss first", "last"])
@pytest.mark.parametrize("case", range(4))
def test_a_round_gives_the_numbers_worked_out(case, order) -> None:
    file = vectors("qfedavg")
    expected = file["expected"]["cases"][case]
    logic = a_logic(
        alone(*order),
        aggregator=QFedAvg(expected["q"]),
        training=Training(learning_rate=file["inputs"]["lr"]),
    )
    peers = MemoryCarrier(logic, quadratics(file["inputs"]))
    state, report = run_round(a_state(logic, file["inputs"]["w0"]), peers, logic)
    losses = {client.client: client.metrics["loss"] for client in report.clients}
    np.testing.assert_allclose([losses[k] for k in range(3)], expected["F"], **CLOSE)
    np.testing.assert_allclose(state.weights, expected["qfedavg"], **CLOSE)


def test_without_q_it_is_the_mean_of_the_models_bit_for_bit() -> None:
    clients = bowls(5, noise=0.3)
    fair = a_logic(alone(*clients), aggregator=QFedAvg(0.0), training=Training(steps=4))
    mean = a_logic(alone(*clients), aggregator=Mean("uniform"), training=Training(steps=4))
    one, _ = run_rounds(3, a_state(fair), MemoryCarrier(fair, clients))
    other, _ = run_rounds(3, a_state(mean), MemoryCarrier(mean, clients))
    assert same_bits(one.weights, other.weights)


@given(
    q=st.floats(0, 20),
    losses=st.lists(st.floats(0, 1e200), min_size=3, max_size=3),
    deltas=arrays(np.float32, (3, 2), elements=st.floats(-(2.0**100), 2.0**100, width=32)),
)
def test_no_loss_however_large_or_small_breaks_the_model(q, losses, deltas) -> None:
    logic = a_logic(alone(0, 1, 2), size=2, aggregator=QFedAvg(q))

    def forge(update):
        k = update.client
        return [replace(update, delta=deltas[k], metrics={"loss": losses[k]})]

    clients = {k: bowl([0.0, 0.0]) for k in range(3)}
    state, report = run_round(a_state(logic), MemoryCarrier(logic, clients, forge=forge), logic)
    assert len(report.of("accepted")) == 3
    assert np.isfinite(state.weights).all()
    assert (np.abs(state.weights) <= np.abs(deltas).max() * (1 + 1e-6)).all()


@pytest.mark.parametrize("metrics", [{}, {"loss": -0.5}, {"loss": float("nan")}])
def test_an_update_without_a_usable_loss_is_refused_and_the_round_goes_on(metrics) -> None:
    logic = a_logic(alone(0, 1), aggregator=QFedAvg())
    peers = MemoryCarrier(
        logic,
        bowls(2),
        forge=lambda u: [replace(u, metrics=metrics)] if u.client == 1 else [u],
    )
    _, report = run_round(a_state(logic), peers, logic)
    assert report.of("accepted") == (0,)
    assert report.of("rejected") == (1,)
