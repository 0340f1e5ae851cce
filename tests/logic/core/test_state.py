"""A server's state is a value: it goes into a tree, comes back, and does not change."""

from __future__ import annotations

import numpy as np
import pytest

from layers.logic import Hook, ServerSide, ServerState, Training, run_round
from layers.logic.core.state import reopened
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds, same_bits
from tests.logic.quadratic import bowls

CLIENTS = bowls(3, noise=0.1)


class Average(Hook):
    class Server(ServerSide):
        def on_accepted(self, update, context):
            context.keep(seen=context.memory.get("seen", 0) + 1)

        def conclude(self, state, context):
            mean = 0.5 * context.memory.get("mean", state.weights) + np.float32(0.5) * state.weights
            context.keep(mean=mean, by_round={str(context.round): mean})
            return state


def test_a_state_goes_into_a_tree_and_comes_back() -> None:
    logic = a_logic(alone(0, 1, 2), hooks=[Average()], training=Training(epochs=2))
    early, _ = run_rounds(2, a_state(logic), MemoryCarrier(logic, CLIENTS))
    back = ServerState.of_tree(early.tree())
    assert back.round == 2
    assert back.last_accepted == {0: 2, 1: 2, 2: 2}
    straight, _ = run_rounds(2, early, MemoryCarrier(logic, CLIENTS))
    resumed, _ = run_rounds(2, back, MemoryCarrier(logic, CLIENTS))
    assert same_bits(resumed.weights, straight.weights)
    assert same_bits(resumed.buffers, straight.buffers)
    one, other = resumed.memory["0:Average"], straight.memory["0:Average"]
    assert one["seen"] == other["seen"] == 12
    assert same_bits(one["mean"], other["mean"])
    assert not back.weights.flags.writeable


def test_a_round_does_not_change_the_state_that_it_started_from() -> None:
    logic = a_logic(alone(0, 1, 2), hooks=[Average()])
    state, _ = run_rounds(1, a_state(logic), MemoryCarrier(logic, CLIENTS))
    before = {
        "weights": state.weights.copy(),
        "mean": state.memory["0:Average"]["mean"].copy(),
        "seen": state.memory["0:Average"]["seen"],
    }
    run_round(state, MemoryCarrier(logic, CLIENTS), logic)
    assert state.round == 1
    assert same_bits(state.weights, before["weights"])
    assert same_bits(state.memory["0:Average"]["mean"], before["mean"])
    assert state.memory["0:Average"]["seen"] == before["seen"]
    with pytest.raises(ValueError, match="read-only"):
        state.weights[0] = 1


def test_reopened_memory_can_be_added_to_without_touching_the_old() -> None:
    old = {"a": np.ones(2), "b": {"c": np.ones(2)}, "n": 1}
    new = reopened(old)
    new["b"]["d"] = 2
    new["n"] = 2
    assert sorted(old["b"]) == ["c"]
    assert old["n"] == 1
    for array in (new["a"], new["b"]["c"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    old["a"][0] = 5  # its owner still may


def test_who_was_accepted_last_is_remembered_over_rounds() -> None:
    logic = a_logic(alone(0, 1))
    peers = MemoryCarrier(logic, CLIENTS)
    state, _ = run_rounds(1, a_state(logic), peers)
    peers.lost = [1]
    state, _ = run_rounds(2, state, peers)
    assert state.last_accepted == {0: 3, 1: 1}
    last = {task.client: task.last_accepted_round for task in peers.tasks}
    assert last == {0: 2, 1: 1}
