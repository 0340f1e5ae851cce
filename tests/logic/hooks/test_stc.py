"""STC in rounds: what was worked out, error feedback at both ends, and FedAvg where it must be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layers.logic import Training, run_round
from layers.logic.aggregators.mean import Mean
from layers.logic.hooks.compressors import Stc, TopK
from tests.logic.compression.compression_ratio import compression_ratio
from tests.logic.given_updates import Given, Identity, Witness, kept, peers_of, tensors
from tests.logic.memory_carrier import (
    Logic,
    MemoryCarrier,
    a_logic,
    a_state,
    alone,
    run_rounds,
    same_bits,
)
from tests.logic.quadratic import Quadratic, bowls
from tests.logic.vector_files import CLOSE, vectors


@pytest.fixture(scope="module")
def feedback() -> dict:
    return vectors("stc_error_feedback")


def test_error_feedback_of_a_client_is_what_was_worked_out(feedback) -> None:
    given_, expected = feedback["inputs"], feedback["expected"]["rounds"]
    gradients = np.array(given_["gradients"], np.float32)
    deltas = {(r + 1, 0): gradient for r, gradient in enumerate(gradients)}
    peers = peers_of(Stc(given_["p"], None), deltas, [gradients.shape[1]])
    state = a_state(peers.logic)
    for wanted in expected:
        before = state.weights
        state, _ = run_rounds(1, state, peers)
        change = state.weights - before
        np.testing.assert_allclose(change, wanted["compressed"], rtol=1e-5, atol=2e-6)
        assert np.array_equal(np.abs(change) > 1e-3, np.array(wanted["compressed"]) != 0)
        residual = kept(peers, 0, state, "1:Stc")["residual"]
        np.testing.assert_allclose(residual, wanted["residual"], **CLOSE)


def test_every_tensor_is_compressed_for_itself_as_worked_out(feedback) -> None:
    given_ = feedback["inputs"]["layerwise"]
    expected = feedback["expected"]["layerwise_rounds"]
    names = list(given_["gradients"][0])

    def flat(tensors_: dict) -> np.ndarray:
        return np.concatenate([np.ravel(tensors_[name]) for name in names]).astype(np.float32)

    deltas = {(r + 1, 0): flat(given_["gradients"][r]) for r in range(len(expected))}
    sizes = [np.size(given_["gradients"][0][name]) for name in names]
    witness = Witness()
    peers = peers_of(Stc(given_["p"], None), deltas, sizes)
    hooks = [Given(deltas), witness, Stc(given_["p"], None)]
    peers = MemoryCarrier(Logic(tensors(*sizes), alone(0), hooks=hooks), peers.clients)
    state = a_state(peers.logic)
    for wanted in expected:
        state, _ = run_rounds(1, state, peers)
        _, decoded = witness.updates[-1]
        np.testing.assert_allclose(decoded, flat(wanted["compressed"]), **CLOSE)
        assert np.array_equal(decoded != 0, flat(wanted["compressed"]) != 0)
        residual = kept(peers, 0, state, "2:Stc")["residual"]
        np.testing.assert_allclose(residual, flat(wanted["residual"]), **CLOSE)


def test_flat_compresses_the_whole_vector_as_one_tensor() -> None:
    delta = np.array([9, 8, 7, 1, 1, 1], np.float32)
    for flat, wanted in ((False, [9, 0, 0, 1, 1, 1]), (True, [8.5, 8.5, 0, 0, 0, 0])):
        peers = peers_of(Stc(0.3, None, flat=flat), {(1, 0): delta}, [3, 3])
        state, _ = run_rounds(1, a_state(peers.logic), peers)
        assert state.weights.tolist() == wanted


@given(
    seed=st.integers(0, 99),
    p=st.floats(0.05, 1),
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    hook=st.sampled_from(["stc", "top-k"]),
)
@settings(max_examples=40)
def test_what_was_sent_and_the_residual_are_together_what_there_was_to_send(
    seed, p, sizes, hook
) -> None:
    rng = np.random.default_rng(seed)
    rounds, clients, size = 5, 2, sum(sizes)
    deltas = {
        (r, k): rng.normal(size=size).astype(np.float32)
        for r in range(1, rounds + 1)
        for k in range(clients)
    }
    codec = Stc(p, p) if hook == "stc" else TopK(p, p)
    witness = Witness()
    hooks = [Given(deltas), witness, codec]
    base = peers_of(codec, deltas, sizes)
    logic = Logic(tensors(*sizes), alone(0, 1), hooks=hooks)
    peers = MemoryCarrier(logic, base.clients)
    start = a_state(logic)
    state, _ = run_rounds(rounds, start, peers)
    key = f"2:{type(codec).__name__}"
    decoded = np.array([pair[1] for pair in witness.updates], np.float64)
    for client in range(clients):
        there_was = sum(deltas[r, client].astype(np.float64) for r in range(1, rounds + 1))
        sent = decoded[client::clients].sum(axis=0)
        residual = kept(peers, client, state, key)["residual"]
        np.testing.assert_allclose(sent + residual, there_was, atol=1e-4)
    mean = decoded.reshape(rounds, clients, size).mean(axis=1)
    moved = state.weights.astype(np.float64) - start.weights
    residual = state.memory[key]["residual"]
    np.testing.assert_allclose(moved + residual, mean.sum(axis=0), atol=1e-4)


def test_a_residual_waits_while_the_client_is_not_selected() -> None:
    deltas = {(1, 0): np.array([4, 1, 0], np.float32), (3, 0): np.array([0, 4, 0], np.float32)}
    peers = peers_of(Stc(0.3, None), deltas, [3], selector=alone(0))
    state, _ = run_rounds(1, a_state(peers.logic), peers)
    assert kept(peers, 0, state, "1:Stc")["residual"].tolist() == [0, 1, 0]
    peers.lost = [0]
    peers.logic = Logic(peers.logic.layout, alone(0), hooks=peers.logic.hooks, min_updates=0)
    state, _ = run_rounds(1, state, peers)
    peers.lost = ()
    state, _ = run_rounds(1, state, peers)
    assert state.weights.tolist() == [4, 5, 0]


CLIENTS = bowls(4, size=50, noise=0.1)


def run(hooks, rounds=6, learning_rate=0.1, **how):
    training = Training(epochs=3, learning_rate=learning_rate)
    logic = a_logic(alone(0, 1, 2, 3), size=50, hooks=hooks, training=training)
    peers = MemoryCarrier(logic, CLIENTS, **how)
    return run_rounds(rounds, a_state(logic), peers)[0]


def test_with_p_of_one_and_without_ternary_values_it_is_fedavg() -> None:
    plain = run([])
    assert same_bits(run([Stc(1.0, None, ternary=False)]).weights, plain.weights)
    both = run([Stc(1.0, 1.0, ternary=False)])
    np.testing.assert_allclose(both.weights, plain.weights, rtol=1e-5, atol=1e-6)
    assert not np.allclose(run([Stc(0.1, 0.1)]).weights, plain.weights, atol=1e-3)


def test_an_update_shrinks_by_as_much_as_the_mathematics_says() -> None:
    size = 200_000
    delta = np.random.default_rng(3).normal(size=size).astype(np.float32)
    witness = []
    peers = peers_of(Stc(0.1, None), {(1, 0): delta}, [size])
    peers.forge = lambda update: [witness.append(update) or update]
    run_rounds(1, a_state(peers.logic), peers)
    (update,) = witness
    assert update.delta.size == 0
    payload = update.slots["1:Stc"]["update"]
    assert 4 * size / payload.nbytes == pytest.approx(compression_ratio(0.1), rel=0.01)


@pytest.mark.parametrize(("p_up", "p_down", "members"), [(0.1, 0.1, 2), (0.1, 0.01, 1)])
def test_the_server_encodes_the_sum_that_was_added_so_that_ties_stay_ties(
    p_up, p_down, members
) -> None:
    """All values at the threshold are kept; the rounded difference of two models has no ties."""
    size, rng = 10_000, np.random.default_rng(3)
    deltas = {}
    for client in range(members):
        delta = np.zeros(size, np.float32)
        support = rng.permutation(size)[: int(p_up * size)]
        delta[support] = np.float32(0.01) * rng.choice([-1, 1], support.size)
        deltas[1, client] = delta
    logic = a_logic(
        alone(*range(members)),
        size=size,
        aggregator=Mean("uniform"),
        hooks=[Given(deltas), Stc(None, p_down)],
        training=Training(steps=0),
    )
    start = rng.normal(size=size).astype(np.float32)
    clients = {one: Quadratic(Identity(), np.zeros(size), 10) for one in range(members)}
    state, _ = run_round(a_state(logic, start), MemoryCarrier(logic, clients), logic)
    change = np.mean([deltas[1, client] for client in range(members)], axis=0)
    sizes = np.sort(np.abs(change))[::-1]
    expected = np.count_nonzero(sizes >= max(sizes[int(p_down * size) - 1], 1e-9))
    assert expected > int(p_down * size), "there are ties at the threshold"
    assert np.count_nonzero(state.weights != start) == expected
