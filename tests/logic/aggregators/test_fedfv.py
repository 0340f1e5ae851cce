"""FedFV takes conflicts out of the mean, within a round and with the rounds before it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from layers.logic import ServerState, run_round
from layers.logic.aggregators.fedfv import (
    FedFV,
    combine,
    inner_product,
    inner_products,
    pack,
    project,
    projection_order,
    unpack,
)
from layers.logic.core.aggregator import AGGREGATE
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone
from tests.logic.quadratic import bowl
from tests.logic.vector_files import CLOSE, vectors

floats = st.floats(-100, 100, width=32)


def a_round(state, selected, gradients, losses, aggregator) -> ServerState:
    """Run a round in which clients send these gradients, g = w_start - w_end, and losses."""
    gradients = np.asarray(gradients, np.float32)
    size = gradients.shape[1]
    logic = a_logic(alone(*selected), size=size, aggregator=aggregator)
    given_ = dict(zip(selected, zip(gradients, losses, strict=True), strict=True))

    def forge(update):
        gradient, loss = given_[update.client]
        return [replace(update, delta=-gradient, metrics={"loss": float(loss)})]

    clients = {client: bowl(np.zeros(size)) for client in selected}
    state = a_state(logic) if state is None else state
    after, report = run_round(state, MemoryCarrier(logic, clients, forge=forge), logic)
    assert len(report.of("accepted")) == len(selected)
    return after


@pytest.mark.parametrize("case", range(16))
def test_internal_conflicts_give_the_numbers_worked_out(case) -> None:
    file = vectors("fedfv_internal")
    given_, expected = file["inputs"]["cases"][case], file["expected"]["cases"][case]
    gradients = [np.array(g, np.float32) for g in given_["gradients"]]
    order, kept = projection_order(given_["losses"], given_["alpha"])
    assert order == expected["order"]
    assert kept == set(expected["kept"])
    coefficients = project(inner_products(gradients), order, kept)
    np.testing.assert_allclose(combine(gradients, coefficients), expected["projected"], **CLOSE)
    state = a_round(
        None, range(len(gradients)), gradients, given_["losses"], FedFV(given_["alpha"], 0)
    )
    np.testing.assert_allclose(-state.weights, expected["g_rescaled"], **CLOSE)


@pytest.mark.parametrize("config", ["alpha=0.0,tau=1", "alpha=0.34,tau=3"])
def test_external_conflicts_give_the_numbers_worked_out(config) -> None:
    file = vectors("fedfv_external_rounds")
    alpha, tau = (part.split("=")[1] for part in config.split(","))
    state, before = None, 0
    for given_, expected in zip(
        file["inputs"]["rounds"], file["expected"]["configs"][config], strict=True
    ):
        state = a_round(
            state,
            given_["selected"],
            given_["gradients"],
            given_["losses"],
            FedFV(float(alpha), int(tau)),
        )
        np.testing.assert_allclose(-(state.weights - before), expected["g_final"], **CLOSE)
        before = state.weights


# Two projections turn the first vector by more than a right angle, away from itself.
TURNED = np.array([[1, 0], [-7, 4], [-7, -4], [0, 0], [0, 0]], np.float32)


@example(gradients=TURNED, losses=[0.5, 0.1, 0.2, 0.3, 0.4], alpha=0.0)
@given(
    gradients=arrays(np.float32, (5, 4), elements=floats),
    losses=st.lists(st.floats(0, 10), min_size=5, max_size=5),
    alpha=st.sampled_from([0.0, 0.1, 0.5]),
)
def test_a_projected_gradient_is_not_in_conflict_with_the_last_it_was_projected_against(
    gradients, losses, alpha
) -> None:
    order, kept = projection_order(losses, alpha)
    projected = combine(gradients, project(inner_products(gradients), order, kept))
    for i, p in enumerate(projected):
        if i in kept:
            assert (p == gradients[i]).all()
            continue
        g = gradients[i].astype(np.float64)
        for j in order:  # the definition, one vector at a time
            other = gradients[j].astype(np.float64)
            if j != i and g @ other < 0:
                g = g - (g @ other) / (other @ other) * other
        last = order[-1] if order[-1] != i else order[-2]
        length = np.linalg.norm(gradients.astype(np.float64), axis=1)
        assert p @ gradients[last] >= -1e-9 * length[i] * length[last] - 1e-9
        np.testing.assert_allclose(p, g, rtol=1e-6, atol=1e-6 * (1 + length.max()))


@given(gradients=arrays(np.float32, (4, 5), elements=floats), alpha=st.floats(0, 1))
def test_the_step_is_as_long_as_the_mean_of_what_was_received(gradients, alpha) -> None:
    state = a_round(None, range(4), gradients, [0.4, 0.1, 0.3, 0.2], FedFV(alpha, 0))
    mean = np.linalg.norm(gradients.astype(np.float64).mean(axis=0))
    length = np.linalg.norm(state.weights.astype(np.float64))
    assert length == 0 or length == pytest.approx(mean, rel=1e-5, abs=1e-6)


@given(delta=arrays(np.float32, 5, elements=floats), number=st.integers(1, 7))
def test_equal_updates_aggregate_to_that_update(delta, number) -> None:
    state = a_round(None, range(number), [delta] * number, range(number), FedFV())
    np.testing.assert_allclose(-state.weights, delta, rtol=1e-6)


@given(
    gradient=arrays(np.float32, 6, elements=st.integers(-50, 50)),
    factor=st.integers(1, 9),
    scale=st.sampled_from([2.0**-40, 1.0, 2.0**40]),
)
def test_opposite_updates_leave_no_rounding_noise_that_is_blown_up(gradient, factor, scale) -> None:
    gradient = gradient * np.float32(scale)
    both = [gradient, np.float32(-factor) * gradient]
    state = a_round(None, range(2), both, [0.1, 0.2], FedFV(0.0, 0))
    assert not state.weights.any()


def test_numbering_the_clients_otherwise_makes_the_same_model() -> None:
    rng = np.random.default_rng(3)
    gradients = rng.normal(size=(6, 9)).astype(np.float32)
    losses = np.arange(6) / 10
    turned = rng.permutation(6)
    one = a_round(None, range(6), gradients, losses, FedFV(0.3, 1))
    other = a_round(None, range(6), gradients[turned], losses[turned], FedFV(0.3, 1))
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-5)


def test_history_is_kept_for_as_long_as_it_is_needed_and_ternary_as_bits() -> None:
    rng, state = np.random.default_rng(0), None
    size = 4000
    for round in range(1, 6):
        sent = np.zeros((2, size), np.float32)
        places = rng.permutation(size)[:400]
        sent[:, places] = np.where(rng.random(400) < 0.5, -0.25, 0.25)
        sent[:, : size // 2] *= 3  # another tensor, another magnitude
        state = a_round(state, [2 * (round % 3), 2 * (round % 3) + 1], sent, [1, 2], FedFV(tau=2))
        history = state.memory[AGGREGATE]["history"]
        assert {past["round"] for past in history.values()} == {max(1, round - 1), round}
        np.testing.assert_array_equal(unpack(history[2 * (round % 3)]), -sent[0])
        stored = sum(
            part.nbytes for part in history[2 * (round % 3)].values() if hasattr(part, "nbytes")
        )
        assert stored < 4 * size / 16
    again = ServerState.of_tree(state.tree())
    assert again.memory[AGGREGATE]["history"].keys() == history.keys()


def test_the_history_is_kept_by_client_number() -> None:
    gradients = np.random.default_rng(2).normal(size=(3, 4)).astype(np.float32)
    state = a_round(None, [5, 0, 3], gradients, [0.3, 0.2, 0.1], FedFV(tau=2))
    assert list(state.memory[AGGREGATE]["history"]) == [0, 3, 5]
    state = a_round(state, [4, 1, 3], gradients, [0.3, 0.2, 0.1], FedFV(tau=2))
    assert list(state.memory[AGGREGATE]["history"]) == [0, 1, 3, 4, 5]


@given(
    vector=st.one_of(
        arrays(np.float32, st.integers(1, 70), elements=st.sampled_from([0.0, 1.5, -1.5, 2.0])),
        arrays(np.float32, st.integers(1, 70), elements=floats),
    )
)
def test_packing_loses_nothing(vector) -> None:
    packed = pack(vector)
    np.testing.assert_array_equal(unpack(packed), vector)
    size = sum(part.nbytes for part in packed.values() if isinstance(part, np.ndarray))
    assert size <= vector.nbytes


@pytest.mark.parametrize("size", [1, 4095, 4097, 9001, 40_000])
def test_long_vectors_have_the_products_and_sums_of_the_definition(size) -> None:
    rng = np.random.default_rng(size)
    vectors, coefficients = rng.normal(size=(3, size)).astype(np.float32), rng.normal(size=(2, 3))
    wide = vectors.astype(np.float64)
    products = wide @ wide.T
    np.testing.assert_allclose(inner_products(vectors), products, rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(combine(vectors, coefficients), coefficients @ wide, atol=1e-12)
    assert inner_product(vectors[0], vectors[1]) == pytest.approx(products[0, 1], abs=1e-10)


def test_an_update_without_a_loss_is_refused_and_the_round_goes_on() -> None:
    logic = a_logic(alone(0, 1), size=1, aggregator=FedFV())
    peers = MemoryCarrier(
        logic,
        {0: bowl(1.0), 1: bowl(1.0)},
        forge=lambda u: [replace(u, metrics={} if u.client else u.metrics)],
    )
    _, report = run_round(a_state(logic), peers, logic)
    assert report.of("accepted") == (0,)
    assert "without the received model's loss" in report.clients[1].reason


PROGRAM = """
import hashlib, numpy as np
from layers.logic.aggregators.fedfv import combine, inner_products
digest = hashlib.sha256()
for m in (1, 2, 3, 7, 8, 20, 33):
    vectors = np.random.default_rng(m).normal(size=(m, 9001)).astype(np.float32)
    digest.update(inner_products(vectors).tobytes())
    digest.update(combine(vectors, np.random.default_rng(0).normal(size=(2, m))).tobytes())
print(digest.hexdigest())
"""


def test_the_number_of_threads_changes_no_bit() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2", "4")
    }
    assert len(digests) == 1
