"""Signs and their majority: every client has one vote a parameter."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import Contribution, ServerState
from layers.logic.aggregators.majority_vote import MajorityVote
from layers.logic.catalogue import PRESETS
from layers.logic.core.messages import EMPTY
from layers.logic.hooks.compressors import SignSgd
from tests.logic.given_updates import kept, peers_of
from tests.logic.memory_carrier import a_state, run_rounds


def voted(deltas, **settings) -> np.ndarray:
    rule = MajorityVote(**settings)
    state = ServerState(0, np.zeros(len(deltas[0]), np.float32), EMPTY)
    total = rule.init(state)
    for lane, delta in enumerate(deltas):
        delta = np.array(delta, np.float32)
        total = rule.add(total, Contribution(lane, 5, delta, EMPTY, ()))
    return rule.finish(total, state).weights


def test_the_majority_moves_each_parameter_and_a_tie_none() -> None:
    deltas = [[1, -1, 0, 2], [1, 1, 0, -2], [-1, -1, 0, 0]]
    assert voted(deltas, step=0.5).tolist() == [0.5, -0.5, 0, 0]


def test_without_a_step_parameters_move_by_the_mean_size() -> None:
    assert voted([[1, -4], [3, 1], [-2, 1]]).tolist() == [2, 2]


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=5), st.integers(1, 9))
def test_equal_updates_give_that_update(delta, clients) -> None:
    wanted = np.array(delta, np.float32) + np.float32(0)
    assert np.array_equal(voted([delta] * clients), wanted)


def test_signs_with_feedback_send_what_was_left_out_later() -> None:
    deltas = {(r, 0): np.array([5, 1, -1, -1], np.float32) for r in (1, 2)}
    peers = peers_of(SignSgd(down=False), deltas, [4])
    state, _ = run_rounds(1, a_state(peers.logic), peers)
    assert state.weights.tolist() == [2, 2, -2, -2]
    assert kept(peers, 0, state, "1:SignSgd")["residual"].tolist() == [3, -1, 1, 1]
    state, _ = run_rounds(1, state, peers)
    assert state.weights.tolist() == [4, 4, 0, 0]


def test_without_feedback_nothing_is_kept() -> None:
    deltas = {(1, 0): np.array([5, 1, -1, -1], np.float32)}
    peers = peers_of(SignSgd(down=False, feedback=False), deltas, [4])
    state, _ = run_rounds(1, a_state(peers.logic), peers)
    assert peers.memory(0, state).memory == {}
    assert state.memory == {}


def test_a_vote_goes_down_as_signs_without_loss_where_there_is_no_tie() -> None:
    deltas = {(1, k): np.array([k - 0.5, 2, -1], np.float32) for k in range(3)}
    preset = PRESETS["signsgd"](step=0.25)
    (hook,) = preset.hooks
    peers = peers_of(hook, deltas, [3], aggregator=preset.aggregator)
    state, _ = run_rounds(1, a_state(peers.logic), peers)
    assert state.weights.tolist() == [0.25, 0.25, -0.25]
    assert not state.memory["1:SignSgd"]["residual"].any()
