"""Deep gradient compression in rounds gives the numbers that were worked out for it."""

from __future__ import annotations

import numpy as np
import pytest

from layers.logic.compression.codecs import decode_sparse
from layers.logic.hooks.dgc import Dgc
from tests.logic.given_updates import kept, peers_of
from tests.logic.memory_carrier import a_state, run_rounds
from tests.logic.vector_files import CLOSE, vectors


@pytest.fixture(scope="module")
def worked_out() -> dict:
    return vectors("dgc")


@pytest.mark.parametrize(
    ("variant", "values"),
    [("momentum", {}), ("nesterov", {"nesterov": True}), ("no_masking", {"masking": False})],
)
def test_momentum_and_what_is_sent_are_what_was_worked_out(worked_out, variant, values) -> None:
    given = worked_out["inputs"]
    gradients = np.array(given["gradients"], np.float32)
    deltas = {(r + 1, 0): gradient for r, gradient in enumerate(gradients)}
    hook = Dgc(given["ratio"], momentum=given["momentum"], warmup=0, down=False, **values)
    sent = []
    peers = peers_of(hook, deltas, [gradients.shape[1]])
    peers.forge = lambda update: [sent.append(update.slots["1:Dgc"]["update"]) or update]
    state = a_state(peers.logic)
    for wanted in worked_out["expected"]["variants"][variant]:
        before = state.weights
        state, _ = run_rounds(1, state, peers)
        positions, values_ = decode_sparse(sent[-1], gradients.shape[1])
        assert positions.tolist() == wanted["indices"]
        np.testing.assert_allclose(values_, wanted["values"], **CLOSE)
        np.testing.assert_allclose(
            (state.weights - before)[positions], wanted["values"], rtol=1e-5, atol=2e-6
        )
        memory = kept(peers, 0, state, "1:Dgc")
        np.testing.assert_allclose(memory["u"], wanted["u"], **CLOSE)
        np.testing.assert_allclose(memory["v"], wanted["v"], **CLOSE)


def test_the_warm_up_is_that_of_the_paper_or_evenly_spaced(worked_out) -> None:
    expected = worked_out["expected"]["warmup_density"]
    paper = [Dgc().density(r) for r in range(1, 7)]
    np.testing.assert_allclose(paper, expected["paper_coeff_0_25"])
    even = [Dgc(warmup=5, warmup_factor=None).density(r) for r in range(1, 8)]
    np.testing.assert_allclose(even, expected["code_default_wm5"])
    assert Dgc(0.5, warmup=3).density(3) == 0.5, "never less than after the warm-up"


def test_the_share_that_goes_up_is_that_of_the_round() -> None:
    rng = np.random.default_rng(2)
    deltas = {(r, 0): rng.normal(size=1000).astype(np.float32) for r in range(1, 7)}
    counts = []
    peers = peers_of(Dgc(), deltas, [1000])
    peers.forge = lambda update: [
        counts.append(decode_sparse(update.slots["1:Dgc"]["update"], 1000)[0].size) or update
    ]
    run_rounds(6, a_state(peers.logic), peers)
    assert counts == [250, 63, 16, 4, 1, 1]


def test_values_above_a_threshold_go_up_instead_of_a_share() -> None:
    deltas = {(1, 0): np.array([3, -0.5, -2, 1], np.float32)}
    peers = peers_of(Dgc(threshold=1.5), deltas, [4])
    state, _ = run_rounds(1, a_state(peers.logic), peers)
    assert state.weights.tolist() == [3, 0, -2, 0]


def test_updates_are_clipped_to_the_clients_part_of_the_norm() -> None:
    deltas = {(1, 0): np.array([3, 4], np.float32)}
    peers = peers_of(Dgc(threshold=0.001, clip=2.0, clients=4), deltas, [2])
    state, _ = run_rounds(1, a_state(peers.logic), peers)
    np.testing.assert_allclose(state.weights, [0.6, 0.8], rtol=1e-6)
