"""Shares of noise: their probabilities, what a sum of them is as private as, and their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from layers.logic.errors import LogicError
from layers.logic.privacy.secure_sum import MaskedSum
from layers.logic.secrets import Secret
from layers.logic.secure_sum.graph import COMPLETE_UP_TO, Trust
from layers.logic.secure_sum.noise import (
    LEAST_DEVIATION,
    SMOOTH,
    STEPS,
    TAIL,
    SharedNoise,
    in_steps,
    out_of_steps,
)
from layers.logic.secure_sum.peer import Peer
from layers.logic.secure_sum.roster import SumRefused
from layers.logic.secure_sum.whole_numbers import VALUE_BITS
from tests.logic.secure_sum.protocol import Sum, peers


def pmf(deviation: float, most: int) -> np.ndarray:
    """The probabilities of a discrete Gaussian at -most, ..., most."""
    found = np.exp(-(np.arange(-most, most + 1.0) ** 2) / (2 * deviation**2))
    return np.asarray(found / found.sum())


def shares(noise: SharedNoise, clients: int, number: int, size: int) -> np.ndarray:
    """The noise of so many clients, (number, size), with the same secrets in each run."""
    draws = [Secret.of_seed(7, "client", one).draws("noise") for one in range(number)]
    hidden = [noise.hidden(np.zeros(size), 1.0, clients, one) for one in draws]
    return np.array(hidden).astype(np.int32)


@pytest.mark.parametrize(
    ("clients", "min_clients", "corrupt"),
    [(3, 3, 1), (19, 10, 1), (40, 30, 2), (100, 60, 5), (1000, 700, 50), (1000, 51, 50)],
)
def test_the_honest_clients_of_the_smallest_sum_have_the_noise_together(
    clients, min_clients, corrupt
) -> None:
    noise = SharedNoise(1.5, min_clients)
    variance = noise.deviation(clients) ** 2 * (min_clients - corrupt)
    assert variance == pytest.approx((1.5 * STEPS) ** 2, rel=1e-12)


@pytest.mark.parametrize(("clients", "min_clients"), [(60, 3), (1000, 50)])
def test_a_sum_in_which_all_clients_may_be_corrupt_is_refused(clients, min_clients) -> None:
    with pytest.raises(SumRefused, match=f"{clients} clients .* {min_clients} does not"):
        SharedNoise(1.0, min_clients).deviation(clients)


def test_a_share_has_the_probabilities_of_a_discrete_gaussian() -> None:
    noise = SharedNoise(0.01, 6000)
    deviation = noise.deviation(6000)
    assert LEAST_DEVIATION < deviation < 5
    (found,) = shares(noise, 6000, 1, 400_000)
    most = 13
    expected = pmf(deviation, 60)[60 - most : 60 + most + 1]
    seen = np.array([np.sum(found == k) for k in range(-most, most + 1)])
    expected = np.append(expected, 1 - expected.sum()) * found.size
    seen = np.append(seen, found.size - seen.sum())
    distance = float(np.sum((seen - expected) ** 2 / expected))
    assert distance < chi2.ppf(0.999, seen.size - 1)


def test_shares_are_independent_and_their_sum_has_the_variance_of_all_that_came() -> None:
    noise, size = SharedNoise(1.0, 10), 40_000
    found = shares(noise, 12, 12, size).astype(np.int64)
    off = np.corrcoef(found) - np.eye(12)
    assert np.abs(off).max() < 5 / math.sqrt(size)
    total = found.sum(axis=0) / STEPS
    assert total.std() == pytest.approx(math.sqrt(12 / 9), rel=4 / math.sqrt(2 * size))
    assert total.mean() == pytest.approx(0, abs=5 / math.sqrt(size))
    # What is lost with a client that adds none is its share: the claim counts on one.
    alone = found[:9].sum(axis=0) / STEPS
    assert alone.std() == pytest.approx(1.0, rel=4 / math.sqrt(2 * size))


def hockey_stick(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


@pytest.mark.parametrize("clients", [1, 2, 5])
@pytest.mark.parametrize("moved", [1, 4, 17])
def test_a_sum_of_discrete_gaussians_is_as_private_as_a_continuous_one_that_is_narrower(
    clients, moved
) -> None:
    """Probabilities of the sum, worked out one by one, against the formula of the Gaussian."""
    one = total = pmf(LEAST_DEVIATION, 200)
    for _ in range(clients - 1):
        total = np.convolve(total, one)
    padded = np.concatenate([total, np.zeros(moved)])
    shifted = np.concatenate([np.zeros(moved), total])
    sigma = math.sqrt(clients * LEAST_DEVIATION**2 - SMOOTH**2) / moved
    for epsilon in (0.01, 0.1, 0.5, 1, 2, 4):
        delta = norm.cdf(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * norm.cdf(
            -0.5 / sigma - epsilon * sigma
        )
        assert hockey_stick(padded, shifted, epsilon) <= delta + 1e-14
        assert hockey_stick(shifted, padded, epsilon) <= delta + 1e-14


@pytest.mark.parametrize("clients", [2, 100, 10**6])
def test_the_least_deviation_makes_tau_of_the_paper_nothing(clients) -> None:
    k = np.arange(1, clients)
    logs = -2 * (math.pi * LEAST_DEVIATION) ** 2 * k / (k + 1)
    tau = 10 * np.exp(logs).sum()
    assert tau < 1e-67
    # With probabilities of the sum beside those of one discrete Gaussian, where both can be seen.
    one = pmf(1.0, 40)
    both, single = np.convolve(one, one), pmf(math.sqrt(2), 80)
    near = slice(70, 91)
    seen = np.abs(np.log(both[near] / single[near])).max()
    assert 1e-5 < seen < 10 * math.exp(-(math.pi**2))


@pytest.mark.parametrize(("multiple", "clients"), [(0.01, 6800), (0.1, 700_000)])
def test_a_share_of_too_few_steps_is_refused(multiple, clients) -> None:
    with pytest.raises(LogicError, match=f"noise {multiple:g} among {clients} clients"):
        SharedNoise(multiple, clients)
    SharedNoise(multiple, clients // 2)


@pytest.mark.parametrize("clients", [3, 50, 1000])
@pytest.mark.parametrize("multiple", [0.1, 1.0, 8.0])
def test_a_word_has_room_for_the_values_of_all_and_twelve_deviations_of_noise(
    clients, multiple
) -> None:
    noise = SharedNoise(multiple, max(3, clients // 2))
    bits = noise.word_bits(clients)
    most = clients * STEPS + TAIL * noise.deviation(clients) * math.sqrt(clients)
    for value in (math.floor(most), -math.floor(most)):
        total = np.array([value % 2**32 % 2**bits], np.int64)
        assert out_of_steps(total, bits, float(STEPS)) == [value]
    assert clients * (2**16 - 1) < 2**bits, "the number of samples has room, too"
    assert most > 2 ** (bits - 2), "and a bit less would be too few"


def test_a_sum_without_room_in_a_word_is_refused() -> None:
    with pytest.raises(SumRefused, match=r"1000 clients .* 33 bits"):
        SharedNoise(4000.0, 500).word_bits(1000)


VECTORS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40).map(np.array)


@settings(max_examples=200, deadline=None)
@drawn(VECTORS, st.floats(1e-3, 1e3), st.booleans())
def test_whatever_a_client_has_its_whole_numbers_are_no_longer_than_the_clip(
    values, clip, stochastic
) -> None:
    uniforms = np.random.default_rng(0).random(values.size) if stochastic else None
    whole = in_steps(values, clip, uniforms)
    assert sum(int(one) ** 2 for one in whole) <= STEPS**2
    length = float(np.linalg.norm(values))
    exact = values * (STEPS / max(length, clip))
    # A step, and what the scaling of a vector that rounding has lengthened takes.
    most = 1 + np.abs(exact) * (math.sqrt(values.size) + 1) / STEPS
    assert (np.abs(whole - exact) <= most).all()


def test_stochastic_rounding_within_the_norm_keeps_the_expectation() -> None:
    values = np.full(2000, 1 / math.sqrt(2000)) * 0.9
    found = [
        in_steps(values, 1.0, np.random.default_rng(seed).random(2000)).mean() for seed in range(50)
    ]
    exact = values[0] * STEPS
    assert exact % 1 == pytest.approx(0.46, abs=0.05), "the nearest is always below"
    assert np.mean(found) == pytest.approx(exact, abs=5 * 0.5 / math.sqrt(50 * 2000))


def test_a_server_that_claims_more_survivors_than_there_are_reads_nothing() -> None:
    """It opens the masks of five, and has the words of four: their sum keeps a mask of the pair."""
    clients = peers(range(5))
    protocol = Sum(clients)
    protocol.share()
    protocol.forward()
    noise = SharedNoise(1.0, 5)
    hidden = {
        one: noise.hidden(np.ones(500), 1.0, 5, peer.noise.draws("noise"))
        for one, peer in clients.items()
    }
    words = {one: peer.masked(hidden[one]) for one, peer in clients.items()}
    told = protocol.told([*clients])
    opened = protocol.opened(words, told).astype(np.int32)
    assert np.abs(opened).max() < 12 * STEPS
    fewer = np.sum([words[one] for one in range(4)], axis=0, dtype=np.uint32)
    opening = protocol.opening([*clients])
    seen = opening.unmasked(fewer, opening.secrets(told)).astype(np.int32)
    assert np.abs(seen.astype(np.int64)).mean() == pytest.approx(2**30, rel=0.2)


def test_a_server_that_withholds_shares_opens_no_sum_of_fewer_clients() -> None:
    """Clients without a mask in common are not in the sum, whatever the server says of them."""
    clients, least = 20, 15
    one = Sum({client: Peer(client, 1, "malicious", None, least) for client in range(clients)})
    one.share()
    there = range(12)  # more than the threshold, and fewer than the least
    for client, boxes in one.boxes.items():
        one.boxes[client] = {to: boxes[to] for to in boxes if {client, to} <= {*there}}
    one.forward_to(there)
    for client in there:
        with pytest.raises(SumRefused, match="a sum of 12 clients, and 15"):
            one.peers[client].confirm(list(range(least)))


@pytest.mark.parametrize("trust", ["malicious", "honest"])
def test_noise_against_a_malicious_server_is_for_clients_that_see_all_others(trust: Trust) -> None:
    hook = MaskedSum(1.0, "nearest", trust, False, 60, noise=SharedNoise(4.0, 60))
    assert hook.word_bits(COMPLETE_UP_TO) > VALUE_BITS
    more = COMPLETE_UP_TO + 1
    if trust == "honest":
        assert hook.word_bits(more) > VALUE_BITS
    else:
        with pytest.raises(SumRefused, match=f"{more} clients"):
            hook.word_bits(more)
