"""Selective SGD: each client shares a part of its own model, as was worked out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from layers.logic import ClientContext, LogicError, Task, Training, Update, run_round
from layers.logic.compression.codecs import decode_sparse, encode_sparse
from layers.logic.core.messages import EMPTY
from layers.logic.hooks.selective_sgd import SelectiveSgd, laplace, most_updated, numeric_sparse
from layers.logic.seeds import generator
from layers.logic.selectors.uniform import RoundRobin
from tests.logic.given_updates import kept, peers_of
from tests.logic.memory_carrier import a_state, alone, run_rounds
from tests.logic.toys import InLanes
from tests.logic.vector_files import CLOSE, vectors


def test_a_run_in_turns_is_what_was_worked_out() -> None:
    file = vectors("dssgd_selective_sgd")
    given, trace = file["inputs"], file["expected"]["trace"]
    n = given["n"]
    deltas = {
        (r + 1, step["client"]): np.array(given["deltas"][r], np.float32)
        for r, step in enumerate(trace)
    }
    hook = SelectiveSgd(download=given["theta_d"], upload=given["theta_u"], clip=given["gamma"])
    sent = []
    peers = peers_of(hook, deltas, [n], selector=RoundRobin(count=1))
    peers.forge = lambda update: [sent.append(update.slots["1:SelectiveSgd"]["update"]) or update]
    state = a_state(peers.logic)
    for step in trace:
        updated = state.memory.get("1:SelectiveSgd", {}).get("updated", np.zeros(n, np.int32))
        chosen = most_updated(updated, 4)
        assert chosen.tolist() == step["download_idx"]
        np.testing.assert_allclose(state.weights[chosen], step["download_val"], **CLOSE)
        state, report = run_rounds(1, state, peers)
        assert report[0].of("accepted") == (step["client"],)
        if peers.tasks[-1].last_accepted_round:  # the first time a client gets the whole model
            news = peers.tasks[-1].slots["1:SelectiveSgd"]["most updated"]
            positions, values = decode_sparse(news, n)
            assert positions.tolist() == step["download_idx"]
            np.testing.assert_allclose(values, step["download_val"], **CLOSE)
        positions, values = decode_sparse(sent[-1], n)
        assert positions.tolist() == step["upload_idx"]
        np.testing.assert_allclose(values, step["upload_val"], **CLOSE)
        np.testing.assert_allclose(state.weights, step["w"], **CLOSE)
        assert state.memory["1:SelectiveSgd"]["updated"].tolist() == step["stat"]


def test_a_client_keeps_a_model_of_its_own_where_it_downloads_nothing() -> None:
    deltas = {
        (1, 0): np.array([1, 0, 0, 0.5], np.float32),
        (2, 1): np.array([0, 0, 3, 0], np.float32),
        (3, 0): np.array([0, 0, 0, 0.25], np.float32),
    }
    hook = SelectiveSgd(download=0.5, upload=0.25, clip=None)
    peers = peers_of(hook, deltas, [4], selector=RoundRobin(count=1))
    state, _ = run_rounds(3, a_state(peers.logic), peers)
    assert state.weights.tolist() == [1, 0, 3, 0.25]
    # The third value, which client 1 updated, came down; the last is what client 0 has made.
    assert kept(peers, 0, state, "1:SelectiveSgd")["model"].tolist() == [1, 0, 3, 0.75]


def test_changes_can_be_drawn_from_those_above_the_threshold() -> None:
    delta = np.array([9, 0.5, 2, -2, 0.1, 3], np.float32)
    seen = set()
    for seed in range(20):
        hook = SelectiveSgd(upload=0.3, choice="random", threshold=1.0, clip=None)
        peers = peers_of(hook, {(1, 0): delta}, [6], seed=seed)
        state, _ = run_rounds(1, a_state(peers.logic), peers)
        positions = np.flatnonzero(state.weights)
        assert positions.size == 2
        assert set(positions) <= {0, 2, 3, 5}
        seen.add(tuple(positions))
        again, _ = run_round(a_state(peers.logic), peers, peers.logic)
        assert again.weights.tolist() == state.weights.tolist()
    assert len(seen) > 2


NOISY = SelectiveSgd(upload=0.25, choice="random", threshold=0.1, clip=0.5, epsilon=100.0)


def noisy_round(hook, delta, seed: int = 0, rounds: int = 1):
    """Return what went up in each round, and the client's own model."""
    deltas = {(round, 0): delta for round in range(1, rounds + 1)}
    peers = peers_of(hook, deltas, [delta.size], seed=seed, selector=alone(0))
    sent = []
    peers.forge = lambda update: [sent.append(update.slots["1:SelectiveSgd"]["update"]) or update]
    state, _ = run_rounds(rounds, a_state(peers.logic), peers)
    own = kept(peers, 0, state, "1:SelectiveSgd")["model"]
    return [decode_sparse(payload, delta.size) for payload in sent], own


def test_a_budget_is_for_one_pass_and_a_second_one_is_refused_before_it_spends_it_again() -> None:
    sent = []
    for hook in (NOISY, replace(NOISY, epsilon=None)):
        peers = peers_of(hook, {(1, 0): np.ones(4, np.float32)}, [4], selector=InLanes(passes=2))
        peers.forge = lambda update: [sent.append(update.pass_number) or update]
        if hook is NOISY:
            with pytest.raises(LogicError, match="each time would spend epsilon"):
                run_rounds(1, a_state(peers.logic), peers)
            assert sent == [1]
        else:
            run_rounds(1, a_state(peers.logic), peers)
    assert sent == [1, 1, 2]


def test_with_a_budget_what_goes_up_is_the_papers_selection_with_its_noise() -> None:
    """The seed gives the draws; the mechanism itself is tested step by step where it is defined."""
    delta = np.random.default_rng(3).normal(0, 0.3, 200).astype(np.float32)
    seen = []
    for seed in range(20):
        [(positions, values)], own = noisy_round(NOISY, delta, seed)
        assert positions.size <= 50
        assert np.abs(values).max() <= 0.5
        assert (values != delta[positions]).all(), "each value has noise, or is clipped"
        np.testing.assert_array_equal(own, delta)
        [(again, same)], _ = noisy_round(NOISY, delta, seed)
        assert (again.tolist(), same.tolist()) == (positions.tolist(), values.tolist())
        seen.append(tuple(positions.tolist()))
    assert len(set(seen)) == 20


def test_with_a_huge_budget_the_noise_is_gone_and_the_clip_and_threshold_hold() -> None:
    delta = np.array([9, 0.05, 0.2, -2, 0.1, 0.3, 0.0, -0.4], np.float32)
    hook = SelectiveSgd(upload=1.0, choice="random", threshold=0.15, clip=0.5, epsilon=1e15)
    [(positions, values)], _ = noisy_round(hook, delta)
    assert positions.tolist() == [0, 2, 3, 5, 7]
    np.testing.assert_allclose(values, [0.5, 0.2, -0.5, 0.3, -0.4], rtol=1e-6)


def test_the_noise_of_what_goes_up_is_for_changes_that_differ_by_twice_the_clip() -> None:
    delta = np.full(2000, 0.2, np.float32)
    hook = replace(NOISY, upload=1.0, epsilon=2e6)
    [(positions, values)], _ = noisy_round(hook, delta)
    assert positions.size == 2000
    scale = 2 * 2000 * (2 * 0.5) / (2 / 9 * 2e6)
    noise = np.abs(values - delta)
    assert noise.mean() == pytest.approx(scale, rel=0.1)
    assert noise.max() < 0.3, "nothing is at the clip"


def test_a_budget_is_above_0() -> None:
    with pytest.raises(LogicError, match="epsilon must be greater than 0"):
        SelectiveSgd(epsilon=0.0, choice="random")


def test_a_model_without_weights_has_nothing_to_send() -> None:
    for hook in (SelectiveSgd(), NOISY):
        context = ClientContext(1, 0, 0, Training(), [], {}, start=EMPTY)
        sent = hook.client().send(Update(1, 0, 3, 1, EMPTY, EMPTY), context)
        positions, values = decode_sparse(context.slot["update"], 0)
        assert (positions.size, values.size, sent.delta.size) == (0, 0, 0)


def test_a_client_that_lost_its_memory_gets_the_model() -> None:
    deltas = {(r, 0): np.ones(4, np.float32) for r in range(1, 4)}
    peers = peers_of(SelectiveSgd(download=0.5, clip=None), deltas, [4], selector=alone(0))
    state, _ = run_rounds(2, a_state(peers.logic), peers)
    del peers.ledgers[0]
    run_rounds(1, state, peers)
    assert [task.weights.size for task in peers.tasks] == [4, 0, 4]


def test_a_part_of_the_model_for_a_client_without_a_model_is_refused() -> None:
    news = encode_sparse(np.array([1]), np.ones(1, np.float32), 4)
    context = ClientContext(3, 0, 0, Training(), [], {}, slot={"most updated": news})
    task = Task(3, 0, 7, Training(), EMPTY, EMPTY)
    with pytest.raises(LogicError, match=r"round 3: .*keeps no model"):
        SelectiveSgd().client().receive(task, context)


# --- the sparse vector technique -------------------------------------------------------------


def streams(seed: int):
    return lambda purpose: generator(seed, purpose)


def test_laplace_noise_has_the_distribution_of_its_scale() -> None:
    draws = laplace(np.random.default_rng(1), 3.0, 200_000)
    assert np.mean(draws) == pytest.approx(0, abs=0.03)
    assert np.mean(np.abs(draws)) == pytest.approx(3.0, rel=0.01)
    for at in (1.0, 3.0, 9.0):
        assert np.mean(draws > at) == pytest.approx(0.5 * math.exp(-at / 3), rel=0.05)


def as_printed(values, threshold, count, sensitivity, epsilon, rng):
    """The steps of the paper, one by one, with the draws of each purpose in order."""
    order = rng("order").permutation(len(values))
    epsilon_1, epsilon_2 = 8 / 9 * epsilon, 2 / 9 * epsilon

    def sigma(x):
        return 2 * count * sensitivity / x

    thresholds = iter(laplace(rng("threshold"), sigma(epsilon_1), count))
    queries = iter(laplace(rng("query"), 2 * sigma(epsilon_1), len(values)))
    noise = iter(laplace(rng("value"), sigma(epsilon_2), count))
    uploaded = {}
    rho = next(thresholds)
    for position in order:
        if abs(values[position]) + next(queries) >= threshold + rho:
            uploaded[int(position)] = values[position] + next(noise)
            if len(uploaded) == count:
                break
            rho = next(thresholds)
    return uploaded


@pytest.mark.parametrize("epsilon", [0.5, 50.0, 5000.0])
@pytest.mark.parametrize("count", [1, 7, 40])
def test_numeric_sparse_equals_the_papers_loop(epsilon, count) -> None:
    for seed in range(10):
        values = np.random.default_rng(seed).uniform(-0.01, 0.01, 40)
        rng = streams(seed)
        positions, noisy = numeric_sparse(values, 0.004, count, 0.02, epsilon, rng)
        expected = as_printed(values, 0.004, count, 0.02, epsilon, rng)
        assert positions.tolist() == sorted(expected)
        assert noisy.tolist() == pytest.approx([expected[place] for place in sorted(expected)])


def test_fewer_changes_go_up_where_fewer_are_above_the_threshold() -> None:
    hook = SelectiveSgd(upload=1.0, choice="random", threshold=1.0, clip=None)
    peers = peers_of(hook, {(1, 0): np.array([1, -5, 0.5], np.float32)}, [3])
    state, _ = run_rounds(1, a_state(peers.logic), peers)
    assert state.weights.tolist() == [0, -5, 0]
