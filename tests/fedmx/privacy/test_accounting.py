"""Epsilon and noise are those of dp-accounting, and both kinds of bound agree with each other."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedmx import FedmxError
from fedmx.privacy import accounting
from fedmx.privacy.account import Account
from fedmx.privacy.accounting import (
    Uncountable,
    epsilon_of,
    noise_for,
    pld_epsilon,
    rdp_epsilon,
)
from layers.extras import install
from layers.logic.core.privacy import Budget, Mechanism
from layers.logic.privacy.tree import TreeMechanism
from layers.logic.secure_sum.noise import STEPS, SharedNoise
from tests.logic.vector_files import vectors

CLOSE = 1e-3


@pytest.fixture(scope="module", autouse=True)
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compute every number here; this machine's cache may have those of other code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMX_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("place", range(12))
def test_epsilon_and_the_least_noise_are_those_that_were_worked_out(place: int) -> None:
    row = vectors("dp")["settings"][place]
    q, rounds, delta, epsilon = row["q"], row["rounds"], row["delta"], row["epsilon"]

    def spent(noise: float) -> list[tuple[Mechanism, int]]:
        return [(Mechanism(noise, q), rounds)]

    by_pld = pld_epsilon(spent(row["sigma"]), delta)
    assert by_pld == pytest.approx(row["epsilon_pld_at"], rel=CLOSE)
    assert by_pld >= row["epsilon_pld_at"] * (1 - 1e-9)  # a bound from above
    assert rdp_epsilon(spent(row["sigma"]), delta) == pytest.approx(
        row["epsilon_rdp_at"], rel=CLOSE
    )
    for bound, noise in ((pld_epsilon, row["sigma_pld"]), (rdp_epsilon, row["sigma_rdp"])):
        assert bound(spent(noise + CLOSE), delta) <= epsilon
        assert bound(spent(noise - CLOSE), delta) > epsilon
    assert epsilon_of(spent(row["sigma"]), delta) == pytest.approx(by_pld, abs=1.0001e-4)


@pytest.mark.parametrize(
    ("epsilon", "delta", "q", "rounds", "noise"),
    [(8, 1e-4, 0.1, 200, 1.040), (4, 1e-4, 0.1, 200, 1.582), (2, 1e-4, 0.1, 200, 2.63)],
)
def test_the_noise_for_a_budget_is_found(
    epsilon: float, delta: float, q: float, rounds: int, noise: float
) -> None:
    found = noise_for(q, rounds, epsilon, delta)
    assert found == pytest.approx(noise, abs=0.002)
    assert found == round(found, 4)
    assert epsilon_of([(Mechanism(found, q), rounds)], delta) <= epsilon + 1e-4


def test_the_noise_is_found_from_a_start_that_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "_start", lambda *given: 0.9)
    found = noise_for(0.1, 201, 8, 1e-4)
    spent = [pld_epsilon([(Mechanism(one, 0.1), 201)], 1e-4) for one in (found, found - CLOSE)]
    assert spent[0] <= 8 < spent[1]


@pytest.mark.parametrize("place", range(4))
def test_a_tree_costs_what_was_worked_out(place: int) -> None:
    row = vectors("dp")["tree_epsilon"][place]
    steps, noise, delta = row["steps"], row["noise_multiplier"], row["delta"]
    # One part of each client in all trees together.
    tree = TreeMechanism(noise, 1.0, sum(steps), steps[0])
    releases = tree.releases(0, sum(steps))
    assert releases / (2 * noise**2) == pytest.approx(row["rho_worst"], abs=1e-9)
    spent = [(Mechanism(noise, 1.0), releases)]
    assert rdp_epsilon(spent, delta) == pytest.approx(row["epsilon_rdp"], rel=CLOSE)
    account = Account(Budget(delta, None), tree)
    assert account.epsilon(sum(steps)) == epsilon_of(spent, delta) <= row["epsilon_rdp"]


@pytest.mark.parametrize("place", range(4))
def test_a_gaussian_costs_what_concentrated_privacy_says(place: int) -> None:
    row = vectors("dp")["zcdp"][place]
    noise, delta, rho = row["sigma"], row["delta"], row["rho"]
    assert rho == pytest.approx(1 / (2 * noise**2), abs=1e-9)
    once = [(Mechanism(noise, 1.0), 1)]
    assert pld_epsilon(once, delta) == pytest.approx(row["eps_exact"], rel=CLOSE)
    assert rdp_epsilon(once, delta) == pytest.approx(row["eps_tight"], rel=CLOSE)
    assert row["eps_exact"] * (1 - 1e-9) <= epsilon_of(once, delta) <= row["eps_simple"]
    # rho adds up: four times with twice the noise, and with other noise besides.
    for parts in ([(2.0, 4)], [(2.0, 3), (4.0, 4)], [(2.0**0.5, 2)]):
        several = [(Mechanism(noise * more, 1.0), times) for more, times in parts]
        assert sum(times / more**2 for more, times in parts) == pytest.approx(1)
        assert pld_epsilon(several, delta) == pytest.approx(row["eps_exact"], rel=CLOSE)
        assert rdp_epsilon(several, delta) == pytest.approx(row["eps_tight"], rel=CLOSE)


def test_a_fork_of_a_tree_counts_nodes_that_also_cover_rounds_before_it() -> None:
    account = Account(Budget(1e-5, None), TreeMechanism(1.5, 1.0, 4))
    fork = account.after(json.loads(json.dumps(account.record(8))), 3)
    # Of a client in rounds 4 and 8: three nodes each, and 2^2 for that of all eight rounds.
    assert fork.epsilon(8) == epsilon_of([(Mechanism(1.5, 1.0), 2 * (3 + 3 + 4))], 1e-5)


def test_what_is_released_once_adds_its_epsilon_from_the_first_round_on() -> None:
    once = Mechanism(None, 1.0, epsilon=0.75)
    account = Account(Budget(1e-5, 12.0), Mechanism(1.5, 1.0), once)
    assert account.epsilon(0) == 0
    rounds = [epsilon_of([(account.mechanism, number)], 1e-5) for number in (1, 2, 5)]
    assert [account.epsilon(number) for number in (1, 2)] == pytest.approx(
        [one + 0.75 for one in rounds[:2]], abs=1.01e-4
    )
    # A fork may ask again.
    fork = account.after(json.loads(json.dumps(account.record(3))), 1)
    assert fork.epsilon(3) == pytest.approx(rounds[2] + 2 * 0.75, abs=1.01e-4)
    assert epsilon_of([(once, 2)], 1e-5) == 1.5


def test_what_was_computed_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "not there" / "yet"
    monkeypatch.setenv("FEDMX_CACHE", str(cache))
    assert accounting._kept(["another"], lambda: 0.5) == 0.5
    (another,) = (cache / "privacy").iterdir()
    first = noise_for(1.0, 3, 2.0, 1e-5)
    monkeypatch.setattr(accounting, "_pld", None)  # no computation goes without it
    assert noise_for(1.0, 3, 2.0, 1e-5) == first
    with pytest.raises(TypeError):
        noise_for(1.0, 3, 2.5, 1e-5)
    (kept,) = set((cache / "privacy").iterdir()) - {another}
    kept.write_text(json.dumps({"of": "something else", "is": 0.1}))
    with pytest.raises(TypeError):
        noise_for(1.0, 3, 2.0, 1e-5)


def test_rounds_with_several_mechanisms_add_up_in_any_order() -> None:
    one, other = Mechanism(1.2, 0.1), Mechanism(2.0, 0.2)
    both = epsilon_of([(one, 10), (other, 5)], 1e-5)
    assert both == epsilon_of([(other, 5), (one, 4), (one, 6)], 1e-5)
    alone = epsilon_of([(one, 10)], 1e-5), epsilon_of([(other, 5)], 1e-5)
    assert max(alone) < both < sum(alone)
    assert epsilon_of([], 1e-5) == 0
    assert epsilon_of([(one, 0)], 1e-5) == 0


def test_an_account_ends_before_the_round_that_would_exceed_its_budget() -> None:
    mechanism = Mechanism(1.0, 1.0)
    account = Account(Budget(1e-5, 12.0), mechanism)
    last = next(round for round in range(1, 99) if account.reason(round))
    assert account.epsilon(last) <= 12.0 < account.epsilon(last + 1)
    assert Account(Budget(1e-5, None), mechanism).reason(10_000) is None


def test_a_fork_counts_all_rounds_of_the_run_that_it_comes_from() -> None:
    account = Account(Budget(1e-5, None), Mechanism(1.5, 0.5))
    kept = json.loads(json.dumps(account.record(8)))
    fork = account.after(kept, 3)
    assert fork.epsilon(4) == epsilon_of([(account.mechanism, 9)], 1e-5)
    again = fork.after(json.loads(json.dumps(fork.record(6))), 5)
    assert again.epsilon(7) == epsilon_of([(account.mechanism, 8 + 3 + 2)], 1e-5)
    assert account.after(None, 0) is account


def test_no_noise_for_an_impossible_budget() -> None:
    with pytest.raises(FedmxError) as caught:
        noise_for(1.0, 1_000_000_000, 1e-6, 1e-12)
    assert str(caught.value) == (
        "privacy: no noise up to 10000 keeps epsilon 1e-06 over 1000000000 releases; "
        "raise epsilon, or lower rounds, or let clients take part less often"
    )


def test_a_bound_above_the_one_that_must_be_larger_is_a_bug_and_no_epsilon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Up to a thousandth, and one for each kind of round, come from the grid."""
    monkeypatch.setenv("FEDMX_CACHE", str(tmp_path))
    by_pld = [10.0119, 10.0121]
    monkeypatch.setattr(accounting, "pld_epsilon", lambda rounds, delta: by_pld.pop(0))
    monkeypatch.setattr(accounting, "rdp_epsilon", lambda rounds, delta: 10.0)
    kinds = [(Mechanism(1.5, 0.5), 3), (Mechanism(1.25, 0.5), 2)]
    assert epsilon_of(kinds, 1e-5) == 10.0
    with pytest.raises(Uncountable) as caught:
        epsilon_of(kinds, 1e-6)
    assert str(caught.value) == (
        "privacy: epsilon is 10.0121 by privacy loss distributions and 10.0000 by Renyi orders, "
        "which must be larger; report this as a bug"
    )


def test_dp_accounting_logs_nothing_of_its_own(caplog: Any) -> None:
    with caplog.at_level(logging.DEBUG):
        rdp_epsilon([(Mechanism(1.041, 0.1), 200)], 1e-4)
    assert not caplog.records


def test_without_dp_accounting_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FEDMX_CACHE", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "dp_accounting", None)
    with pytest.raises(FedmxError, match=re.escape(install("privacy"))):
        epsilon_of([(Mechanism(1.0, 0.5), 3)], 1e-5)


@pytest.mark.parametrize(("noise", "rounds"), [(0.5, 1), (1.0, 3), (2.0, 30), (6.0, 200)])
@pytest.mark.parametrize(("clients", "min_clients"), [(3, 3), (100, 60), (1000, 700)])
def test_epsilon_of_a_noised_sum_lies_between_the_exact_one_and_the_papers(
    noise: float, rounds: int, clients: int, min_clients: int
) -> None:
    """Proposition 14 of Kairouz et al. 2021, with tau, for 2^20 values; written out here."""
    shared, delta, values = SharedNoise(noise, min_clients), 1e-5, 2**20
    honest = min_clients - max(clients // 20, 1)
    deviation = shared.deviation(clients)
    tau = 10 * sum(
        math.exp(-2 * (math.pi * deviation) ** 2 * k / (k + 1)) for k in range(1, honest)
    )
    apart = STEPS / (deviation * math.sqrt(honest))

    def bound(order: int) -> float:
        renyi = rounds * min(
            order / 2 * apart**2 + tau * values, order / 2 * (apart + tau * math.sqrt(values)) ** 2
        )
        return renyi + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)

    papers = min(bound(order) for order in range(2, 2000))
    counted = epsilon_of([(Mechanism(shared.accounted, 1.0), rounds)], delta)
    # Exact for one continuous Gaussian with the same sum of squares (Balle and Wang 2018).
    exact = epsilon_of([(Mechanism(noise / math.sqrt(rounds), 1.0), 1)], delta)
    assert exact <= counted <= exact * 1.001 + 2e-4
    assert counted <= papers + 1e-4
    assert papers <= counted * 1.2
