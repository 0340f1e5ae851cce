"""In a lane of several clients each starts from what the one before it returned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layers.logic import LogicError, run_round
from layers.logic.aggregators.mean import Mean
from tests.logic.memory_carrier import (
    InLanes,
    MemoryCarrier,
    a_logic,
    a_state,
    lying,
    same_bits,
)
from tests.logic.quadratic import bowls

CLIENTS = bowls(6)
NAN = np.full(3, np.nan, np.float32)


def started_from(peers: MemoryCarrier) -> dict[int, np.ndarray]:
    return {task.client: task.weights for task in peers.tasks}


def returned(peers: MemoryCarrier, client: int) -> np.ndarray:
    """Return what plain steps of the quadratic make of the weights that the client was given."""
    data = CLIENTS[client]
    weights = started_from(peers)[client]
    return weights - np.float32(0.1) * (weights - data.b).astype(np.float32)


def test_a_lane_trains_in_sequence() -> None:
    logic = a_logic(InLanes(((2, 0, 1),)))
    start = a_state(logic, [1, 2, 3])
    peers = MemoryCarrier(logic, CLIENTS)
    state, report = run_round(start, peers, logic)
    assert [task.client for task in peers.tasks] == [2, 0, 1]
    first, second, third = (started_from(peers)[client] for client in (2, 0, 1))
    assert same_bits(first, start.weights)
    np.testing.assert_allclose(second, returned(peers, 2), rtol=1e-6)
    np.testing.assert_allclose(third, returned(peers, 0), rtol=1e-6)
    np.testing.assert_allclose(state.weights, returned(peers, 1), rtol=1e-6)
    assert report.of("accepted") == (2, 0, 1)
    assert state.buffers.tolist() == [3]  # one step each, passed on


def test_a_client_that_falls_out_of_the_middle_is_passed_over() -> None:
    logic = a_logic(InLanes(((2, 0, 1),)))
    peers = MemoryCarrier(logic, CLIENTS, forge=lying(0, delta=NAN))
    state, report = run_round(a_state(logic), peers, logic)
    assert report.of("accepted") == (2, 1)
    assert report.of("rejected") == (0,)
    assert same_bits(started_from(peers)[1], started_from(peers)[0])
    short = a_logic(InLanes(((2, 1),)))
    expected, _ = run_round(a_state(logic), MemoryCarrier(short, CLIENTS), short)
    assert same_bits(state.weights, expected.weights)
    assert same_bits(state.buffers, expected.buffers)


def test_folding_waits_for_the_order_of_the_plan() -> None:
    events: list[str] = []

    class Noting(Mean):
        def add(self, total, contribution):
            events.append(f"fold {contribution.lane}")
            return super().add(total, contribution)

    def arrive(update):
        events.append(f"client {update.client}")
        return [update]

    logic = a_logic(InLanes(((0, 1), (2,), (3, 4))), aggregator=Noting())
    peers = MemoryCarrier(logic, CLIENTS, order=(3, 4, 2, 0, 1), forge=arrive)
    run_round(a_state(logic), peers, logic)
    assert events == [
        *("client 3", "client 4", "client 2", "client 0", "client 1"),
        *("fold 0", "fold 1", "fold 2"),
    ]


def test_a_lane_that_is_cut_off_keeps_what_its_first_clients_did() -> None:
    logic = a_logic(InLanes(((0, 1, 2), (3,))))
    peers = MemoryCarrier(logic, CLIENTS, silent=[1])
    state, report = run_round(a_state(logic), peers, logic)
    assert [(c.client, c.status) for c in report.clients] == [
        (0, "accepted"),
        (1, "lost"),
        (2, "lost"),
        (3, "accepted"),
    ]
    assert "not reached" in report.clients[2].reason
    assert report.selected == 4
    assert [task.client for task in peers.tasks] == [0, 3, 1]
    other = a_logic(InLanes(((0,), (3,))))
    expected, _ = run_round(a_state(logic), MemoryCarrier(other, CLIENTS), other)
    assert same_bits(state.weights, expected.weights)


@pytest.mark.parametrize("stranger", [77, 9])
def test_a_selector_that_names_a_client_that_cannot_be_asked_is_told_so(stranger) -> None:
    logic = a_logic(InLanes(((0, stranger),)))
    clients = {**CLIENTS, 9: replace(CLIENTS[0], n=0)}
    with pytest.raises(LogicError, match=rf"InLanes.run trains clients \[{stranger}\]"):
        run_round(a_state(logic), MemoryCarrier(logic, clients), logic)
