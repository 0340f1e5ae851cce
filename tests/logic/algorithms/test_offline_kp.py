"""OfflineKP-FL grants the set, and takes the time, that was worked out for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import (
    Offer,
    PendingOffers,
    Population,
    run_round,
)
from layers.logic.algorithms.knapsack import OfflineKP
from layers.logic.numeric.knapsack import solve_exact
from tests.logic.algorithms.knapsack_cases import cases, peers_of, played
from tests.logic.memory_carrier import a_state


@pytest.mark.parametrize(
    ("name", "selector"),
    [
        ("recommended", OfflineKP()),
        ("printed_non_increase", OfflineKP(stop="non_increase", output="last")),
        ("causal_last_solve", OfflineKP(output="last")),
    ],
)
def test_offline_kp_grants_the_set_and_takes_the_time_that_were_worked_out(name, selector) -> None:
    for case, expected, tolerance in cases("offline_kp"):
        _, report = played(selector, case)
        assert list(report.of("accepted")) == expected[name]["S"]
        assert report.took_s == pytest.approx(expected[name]["T_cost"], abs=tolerance)
        others = set(range(len(case["t_uc"]))) - set(expected[name]["S"])
        assert set(report.of("declined")) == others


def test_offline_kp_by_table_is_never_worth_more_and_always_in_time() -> None:
    for case, expected, _ in cases("offline_kp"):
        for resolution_s in (0.02, 1.0, 10.0):
            _, report = played(OfflineKP(solver="dp", resolution_s=resolution_s), case)
            worth = sum(case["norms"][client] for client in report.of("accepted"))
            assert worth <= expected["recommended"]["V"] + 1e-9
            assert report.took_s <= case["T_round"]
            if resolution_s == 1.0 and case["name"] in ("hand5", "plateau_then_gain"):
                assert list(report.of("accepted")) == expected["recommended"]["S"]


seconds = st.integers(1, 60)
offers = st.lists(st.tuples(seconds, seconds, st.integers(0, 4)), min_size=1, max_size=7)


def as_printed(case: Mapping[str, Any]) -> tuple[list[int], float]:
    """Algorithm 1 with the exact solver: the best set, and T_cost by equation 6."""
    order = sorted(range(len(case["t_uc"])), key=lambda k: (case["t_uc"][k], k))
    best: tuple[float, list[int], float] = (0.0, [], case["T_round"])
    previous = 0.0
    for n in range(1, len(order) + 1):
        finished = sorted(order[:n])
        latest = case["t_uc"][order[n - 1]]
        if case["T_round"] - latest <= 0:
            break
        norms, uploads = (np.array([case[key][k] for k in finished]) for key in ("norms", "t_ul"))
        choice = solve_exact(norms, uploads, case["T_round"] - latest)
        if choice.value > best[0]:
            best = (choice.value, [finished[k] for k in choice.items], latest + choice.weight)
        if choice.value < previous:
            break
        previous = choice.value
    return best[1], best[2]


@given(clients=offers, deadline=st.integers(20, 150))
def test_offline_kp_is_algorithm_1_in_any_case(clients, deadline) -> None:
    train, upload, norms = ([float(x) for x in column] for column in zip(*clients, strict=True))
    case = {"t_uc": train, "t_ul": upload, "norms": norms, "T_round": float(deadline)}
    expected, cost = as_printed(case)
    _, report = played(OfflineKP(), case)
    assert list(report.of("accepted")) == expected
    assert report.took_s == cost


def test_offline_kp_decides_without_a_client_that_is_lost_after_its_offer() -> None:
    case = {"t_uc": [1.0, 2.0, 3.0], "t_ul": [50.0, 50.0, 50.0], "norms": [9.0, 1.0, 2.0]}
    peers = peers_of(OfflineKP(), {**case, "T_round": 104.0})
    selector = OfflineKP()
    _, report = run_round(a_state(peers.logic), peers, peers.logic)
    assert report.of("accepted") == (0, 2)
    population = Population(dict.fromkeys(range(3), 5), deadline_s=104.0)
    given = [Offer(1, k, 5, case["norms"][k], 50.0, at_s=k + 1.0) for k in range(3)]
    so_far = None
    for known in (1, 2):
        verdicts, so_far = selector.on_offers(
            PendingOffers(given[:known], {1, 2} if known == 1 else {2}, population=population),
            so_far,
        )
        assert verdicts == []
    verdicts, _ = selector.on_offers(PendingOffers(given[1:], (), population=population), so_far)
    assert {v.client: v.granted for v in verdicts} == {1: True, 2: True}


def test_offline_kp_declines_those_that_still_train_when_the_value_falls() -> None:
    case = {
        "t_uc": [10.0, 20.0, 90.0, 95.0],
        "t_ul": [40.0, 40.0, 40.0, 1.0],
        "norms": [1.0, 1.0, 1.0, 9.0],
        "T_round": 100.0,
    }
    _, report = played(OfflineKP(), case)
    assert report.of("accepted") == (0, 1)
    reasons = {client.client: client.reason for client in report.clients}
    assert report.of("declined") == (2, 3)
    assert reasons[3] == "declined before it offered"
    assert report.took_s == 100.0


NEVER_S = 1e9


def never_finishing(clients, deadline: int) -> dict[str, Any]:
    """Return a case with one client more, whose training never ends."""
    train, upload, norms = ([float(x) for x in column] for column in zip(*clients, strict=True))
    return {
        "t_uc": [*train, NEVER_S],
        "t_ul": [*upload, 1.0],
        "norms": [*norms, 9.0],
        "T_round": float(deadline),
    }


@given(clients=offers, deadline=st.integers(20, 150), solver=st.sampled_from(["exact", "dp"]))
def test_a_client_that_never_offers_changes_nothing_of_a_simulated_round(
    clients, deadline, solver
) -> None:
    case = never_finishing(clients, deadline)
    selector = OfflineKP(ask_times=False, solver=solver)
    _, report = played(selector, case)
    _, expected = played(selector, {**case, **{key: case[key][:-1] for key in ("t_uc", "t_ul")}})
    assert report.of("accepted") == expected.of("accepted")
    assert report.took_s == expected.took_s


@given(
    clients=offers,
    deadline=st.integers(20, 150),
    selector=st.builds(
        OfflineKP, output=st.sampled_from(["best", "last"]), solver=st.sampled_from(["exact", "dp"])
    ),
    foreign=st.booleans(),
)
def test_where_no_upload_can_begin_in_the_past_every_grant_arrives_and_there_is_one_if_any_can(
    clients, deadline, selector, foreign
) -> None:
    case = never_finishing(clients, deadline)
    if not foreign:
        selector = replace(selector, output="last", ask_times=False)
    peers = peers_of(selector, case)
    peers.foreign, peers.told_train_s = foreign, {len(clients): 1.0}  # it says that it is quick
    _, report = run_round(a_state(peers.logic), peers, peers.logic)
    granted = {verdict.client for verdict in peers.verdicts if verdict.granted}
    assert set(report.of("accepted")) == granted
    fit = [norm > 0 and train + upload <= deadline for train, upload, norm in clients]
    assert bool(granted) == any(fit)
    assert len(clients) not in granted


def test_when_the_last_client_is_lost_late_only_what_still_fits_is_granted() -> None:
    case = {
        "t_uc": [10.0, 20.0, 65.0],
        "t_ul": [60.0, 30.0, 5.0],
        "norms": [2.0, 1.9, 1.0],
        "T_round": 100.0,
    }
    for selector, granted in ((OfflineKP(output="last"), (1,)), (OfflineKP(), (0,))):
        peers = peers_of(selector, case)
        peers.lost = [2]
        _, report = run_round(a_state(peers.logic), peers, peers.logic)
        assert report.of("accepted") == granted
        assert report.of("lost") == (2,)
