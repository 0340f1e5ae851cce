"""No update, and no round, moves the model farther than its size and the setting allow."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from layers.logic import BrokenModel, TooFewUpdates, run_round
from layers.logic.algorithms.scaffold import Scaffold
from layers.logic.errors import LogicError
from layers.logic.hooks.compressors import Quantise, Stc, TopK
from layers.logic.hooks.local_gradients import GradientReply
from layers.logic.hooks.server_optimisers import FedAdagrad, FedAdam, FedAvgM, FedYogi
from layers.logic.numeric.vectors import distance, excess, norm
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, lying, same_bits
from tests.logic.quadratic import bowls

CLIENTS = bowls(3)
WEIGHTS = (0.5, -2.0, 1e-3)
ANY = st.floats(width=32, allow_nan=False, allow_infinity=False)
vectors = st.integers(0, 40).flatmap(lambda size: arrays(np.float32, size, elements=ANY))


@given(vector=vectors, like=vectors, most=st.floats(1e-3, 1e6))
def test_the_bound_holds_exactly_whether_or_not_a_norm_was_computed(vector, like, most) -> None:
    wide = np.linalg.norm(vector.astype(np.float64))
    bound = min(
        most * (np.linalg.norm(like.astype(np.float64)) + 1), float(np.finfo(np.float32).max)
    )
    above = excess(vector, like, most)
    if not math.isclose(wide, bound, rel_tol=1e-9):
        assert (above is not None) == (wide > bound)
    if above is not None:
        np.testing.assert_allclose(above, (wide, bound), rtol=1e-9)
    assert excess(vector, like, None) is None


@given(vector=vectors, data=st.data())
def test_a_distance_is_the_norm_of_the_difference(vector, data) -> None:
    other = data.draw(arrays(np.float32, vector.size, elements=ANY))
    wide = vector.astype(np.float64) - other
    np.testing.assert_allclose(distance(vector, other), np.linalg.norm(wide), rtol=1e-9)
    assert norm(vector) == distance(vector, None)


@given(delta=arrays(np.float32, 3, elements=ANY), most=st.floats(1.0, 1e4))
def test_an_update_above_the_bound_is_refused_and_the_others_count(delta, most) -> None:
    logic = a_logic(alone(0, 1, 2), max_update=most)
    bound = most * (np.linalg.norm(np.array(WEIGHTS)) + 1)
    peers = MemoryCarrier(logic, CLIENTS, forge=lying(1, delta=delta))
    state, report = run_round(a_state(logic, WEIGHTS), peers, logic)
    length = float(np.linalg.norm(delta.astype(np.float64)))
    if math.isclose(length, bound, rel_tol=1e-5):
        return
    assert (1 in report.of("rejected")) == (length > bound)
    if length > bound:
        assert report.clients[1].reason.startswith(f"update of norm {length:.3g}; with logic.max")
        others = a_logic(alone(0, 2), max_update=most)
        expected, _ = run_round(a_state(others, WEIGHTS), MemoryCarrier(others, CLIENTS), others)
        assert same_bits(state.weights, expected.weights)


@pytest.mark.parametrize(
    "hook",
    [Quantise(bits=8), Stc(p_up=0.7), TopK(p=0.7), GradientReply()],
    ids=lambda h: type(h).__name__,
)
def test_the_bound_is_on_the_decoded_update(hook) -> None:
    """An attacker that encodes soundly is refused for what its code stands for."""
    logic = a_logic(alone(0, 1), hooks=[hook], max_update=1000.0)

    far = {**CLIENTS, 1: type(CLIENTS[1])(CLIENTS[1].A, CLIENTS[1].b * np.float32(1e9), 20)}
    _, report = run_round(a_state(logic, WEIGHTS), MemoryCarrier(logic, far), logic)
    assert report.of("accepted") == (0,)
    assert "with logic.max_update 1000 it may be" in report.clients[1].reason


def test_a_round_of_updates_that_are_all_too_large_says_what_makes_them_smaller() -> None:
    logic = a_logic(alone(0, 1), max_update=1e-9)
    with pytest.raises(TooFewUpdates, match=r"0 of the 1 updates .* were accepted") as caught:
        run_round(a_state(logic, WEIGHTS), MemoryCarrier(logic, CLIENTS), logic)
    assert str(caught.value).endswith("lower compute.train.learning_rate, or set compute.normalise")


def test_buffers_may_move_by_the_square_of_the_factor() -> None:
    logic = a_logic(alone(1), min_updates=0, max_update=1000.0)
    for value, status in ((1e6, "accepted"), (3e38, "rejected")):
        forge = lying(1, buffers=np.array([value], np.float32))
        _, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS, forge=forge), logic)
        assert report.clients[0].status == status
    assert report.clients[0].reason.startswith("buffers that moved by 3e+38")


OPTIMISERS = [
    FedAvgM(server_learning_rate=1e4),
    FedAdagrad(server_learning_rate=1e6),
    FedAdam(server_learning_rate=1e6),
    FedYogi(server_learning_rate=1e6),
]


@pytest.mark.parametrize("hook", OPTIMISERS, ids=lambda h: type(h).__name__)
def test_what_a_server_optimiser_makes_of_the_updates_is_bounded_too(hook) -> None:
    logic = a_logic(alone(0, 1), hooks=[hook], max_update=100.0)
    start = a_state(logic, WEIGHTS)
    with pytest.raises(BrokenModel, match=f"Mean, {type(hook).__name__} moved the model by"):
        run_round(start, MemoryCarrier(logic, CLIENTS), logic)
    assert same_bits(start.weights, np.array(WEIGHTS, np.float32))


def test_a_control_variate_is_bounded_as_an_update_is() -> None:
    logic = a_logic(alone(0, 1), hooks=[Scaffold()], max_update=1000.0)
    huge = {"0:Scaffold": {"change": np.full(3, 3e38, np.float32)}}
    _, report = run_round(
        a_state(logic, WEIGHTS), MemoryCarrier(logic, CLIENTS, forge=lying(1, slots=huge)), logic
    )
    assert report.of("accepted") == (0,)
    assert report.clients[1].reason.startswith("a control variate that moved by")


@pytest.mark.parametrize("most", [0, -1.0, math.nan, math.inf])
def test_a_bound_is_above_zero_and_finite_or_none(most) -> None:
    with pytest.raises(LogicError, match="max_update must be above 0"):
        a_logic(alone(0), max_update=most)


def test_buffers_count_by_what_a_client_changes_and_by_the_root_of_it() -> None:
    """Honest buffers of any size, such as variances of thousands, hide no large update."""
    logic = a_logic(alone(0, 1, 2), max_update=1000.0)
    kept = np.full(1, 40_000, np.float32)
    peers = MemoryCarrier(
        logic,
        CLIENTS,
        forge=lambda update: [
            replace(
                update,
                delta=np.full(3, 30 if update.client == 2 else 0.1, np.float32),
                buffers=kept + np.float32(400),
            )
        ],
    )
    state = replace(a_state(logic, WEIGHTS), buffers=kept)
    _, report = run_round(state, peers, logic)
    assert [one.peak for one in report.clients] == pytest.approx([0.1, 0.1, 10], abs=0.1)
