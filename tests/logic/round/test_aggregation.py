"""Updates become the next model in the order of the plan, exactly, and one at a time."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from layers.logic import Contribution, Training, Update, run_round
from layers.logic.aggregators.fednova import FedNova
from layers.logic.aggregators.krum import NormClip
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.q_fedavg import QFedAvg
from layers.logic.core.messages import EMPTY
from layers.logic.round.exchange import Costs, ReportCosts
from tests.logic.memory_carrier import (
    InLanes,
    MemoryCarrier,
    a_logic,
    a_state,
    alone,
    same_bits,
)
from tests.logic.quadratic import bowl, bowls

CLIENTS = bowls(6, noise=0.3)
floats = st.floats(-(2.0**100), 2.0**100, width=32)


@given(order=st.permutations(range(6)))
def test_any_order_of_arrival_gives_the_same_bits(order) -> None:
    lanes = ((3,), (0, 5), (1, 2), (4,))
    logic = a_logic(InLanes(lanes), training=Training(epochs=3), seed=7)
    state, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS, order=order), logic)
    again, same = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    assert same_bits(state.weights, again.weights)
    assert same_bits(state.buffers, again.buffers)
    assert report.clients == same.clients


@given(
    deltas=arrays(np.float32, (4, 5), elements=st.floats(-100, 100, width=32)),
    samples=st.lists(st.integers(1, 10**6), min_size=4, max_size=4),
)
def test_the_mean_weighs_by_samples_or_alike(deltas, samples) -> None:
    clients = {client: bowl([0.0] * 5, n) for client, n in enumerate(samples)}
    for weights, shares in (("samples", np.array(samples)), ("uniform", np.ones(4))):
        logic = a_logic(alone(0, 1, 2, 3), size=5, aggregator=Mean(weights))
        peers = MemoryCarrier(
            logic, clients, forge=lambda update: [replace(update, delta=deltas[update.client])]
        )
        state, _ = run_round(a_state(logic), peers, logic)
        expected = shares @ deltas.astype(np.float64) / shares.sum()
        np.testing.assert_allclose(state.weights, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_buffers_are_averaged_by_samples_whatever_the_weights_of_the_updates(weights) -> None:
    clients = {0: bowl(1.0, 30, steps_per_epoch=2), 1: bowl(1.0, 10, steps_per_epoch=6)}
    logic = a_logic(alone(0, 1), size=1, aggregator=Mean(weights))
    state, _ = run_round(a_state(logic), MemoryCarrier(logic, clients), logic)
    assert state.buffers.tolist() == [(30 * 2 + 10 * 6) / 40]


class Stream:
    """Updates that come to exist only when they are waited for."""

    untrusted = False

    def __init__(self, clients: int, size: int) -> None:
        self.clients, self.size = clients, size

        self._next = 0

    def open_round(self, state):
        return state, dict.fromkeys(range(self.clients), 1)

    def exchange(self, commands):
        if ReportCosts() in commands:
            return Costs(0.0), 0.0
        client, self._next = self._next, self._next + 1
        delta = np.full(self.size, client, np.float32)
        return Update(1, client, 1, 1, delta, EMPTY, {"loss": 1.0}), 0.0


@pytest.mark.parametrize(
    "aggregator", [Mean(), FedNova(), QFedAvg(1.0), NormClip(1e3)], ids=lambda a: type(a).__name__
)
def test_a_fold_holds_one_update_and_the_sum_not_all_updates(aggregator) -> None:
    clients, size = 50, 500_000
    logic = a_logic(alone(*range(clients)), size, aggregator=aggregator)
    state = replace(a_state(logic), buffers=EMPTY)
    tracemalloc.start()
    try:
        after, report = run_round(state, Stream(clients, size), logic)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(report.of("accepted")) == clients
    if aggregator == Mean():
        assert after.weights[0] == np.mean(range(clients))
    update_bytes = 4 * size
    # The sum, in float64, and an update or the new model: three; the rest is blocks.
    assert peak_bytes < 3.5 * update_bytes


@settings(max_examples=30)
@given(
    weights=arrays(
        np.float32, 3, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)
    ),
    deltas=arrays(
        np.float32, (3, 3), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)
    ),
)
def test_no_finite_updates_make_a_model_that_is_not(weights, deltas) -> None:
    logic = a_logic(alone(0, 1, 2), min_updates=0)
    peers = MemoryCarrier(
        logic,
        {client: bowl(weights, 1 << 40) for client in range(3)},
        forge=lambda update: [replace(update, delta=deltas[update.client])],
    )
    state, report = run_round(a_state(logic, weights), peers, logic)
    assert np.isfinite(state.weights).all()
    with np.errstate(over="ignore"):
        makes_sense = [k for k in range(3) if np.isfinite(weights + deltas[k]).all()]
    assert list(report.of("accepted")) == makes_sense


def test_a_contribution_of_a_lane_is_what_all_its_clients_did() -> None:
    seen: list[Contribution] = []

    class Watch(Mean):
        def add(self, total, contribution):
            seen.append(contribution)
            return super().add(total, contribution)

    logic = a_logic(InLanes(((2, 0), (1,))), aggregator=Watch())
    peers = MemoryCarrier(logic, CLIENTS, order=(1, 2, 0))
    start = a_state(logic)
    run_round(start, peers, logic)
    assert [(c.lane, c.samples, [u.client for u in c.updates]) for c in seen] == [
        (0, 40, [2, 0]),
        (1, 20, [1]),
    ]
    task = next(task for task in peers.tasks if task.client == 0)
    assert np.any(task.weights != start.weights)
    assert seen[0].delta.shape == start.weights.shape
