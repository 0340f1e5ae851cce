"""OnlineKP-FL grants whom it should, by the thresholds that were worked out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import (
    PRESETS,
    run_round,
)
from layers.logic.algorithms.knapsack import OnlineKP, threshold
from tests.logic.algorithms.knapsack_cases import cases, peers_of, played
from tests.logic.memory_carrier import a_state
from tests.logic.vector_files import vectors


@pytest.mark.parametrize(("name", "value"), [("recommended", "raw"), ("normalized", "normalised")])
def test_online_kp_grants_whom_and_takes_the_time_that_was_worked_out(name, value) -> None:
    for case, expected, tolerance in cases("online_kp"):
        selector = OnlineKP(L0=case["L0"], U=case["U"], value=value)
        state, report = played(selector, case, case["prev_max"])
        granted = {line["client"] for line in expected[name]["trace"] if line["selected"]}
        assert granted == set(expected[name]["S"])
        assert set(report.of("accepted")) == granted
        assert report.took_s == pytest.approx(expected[name]["T_cost"], abs=tolerance)
        offered = [c.client for c in report.clients if c.client not in granted]
        assert set(report.of("declined")) == set(offered)
        assert state.memory["selector"]["largest"] == max(case["norms"])


HAND = {
    "t_uc": [5.0, 10.0, 30.0, 40.0, 41.0],
    "t_ul": [15.0, 20.0, 10.0, 10.0, 9.0],
    "norms": [1.0, 0.4, 2.4, 1.0, 0.6],
    "T_round": 100.0,
}


@pytest.mark.parametrize(
    ("largest", "granted", "took_s"),
    [
        # M = 2, so values 0.5, 0.2, 1.2, 0.5, 0.3 and weights 20, 25, 30, 20, 10. psi is L0 = 0.01
        # at z = 0 and 0.2, and exp(0.4 (1 + ln 50) - 1) L0 = 0.02624 at z = 0.4. By client:
        # 0.025 and 0.008 and 0.04 against 0.01; 0.025 and 0.03 against 0.02624.
        (2.0, (0, 2, 4), 50.0),
        # No M: values are the norms. z = 0, 0.2, 0.4, 0.5, 0.6; psi = 0.01, 0.01, 0.02624,
        # 0.04289, 0.07009, against 0.05, 0.016, 0.08, 0.05, 0.06.
        (0.0, (0, 1, 2, 3), 60.0),
    ],
)
def test_normalised_values_are_judged_as_worked_out_by_hand_with_m_and_without(
    largest, granted, took_s
) -> None:
    selector = PRESETS["online-kp"](L0=0.01, U=0.5, value="normalised").selector
    assert selector == OnlineKP(L0=0.01, U=0.5, value="normalised")
    state, report = played(selector, HAND, largest)
    assert report.of("accepted") == granted
    assert report.took_s == took_s
    assert state.memory["selector"]["largest"] == 2.4
    _, raw = played(replace(selector, value="raw"), HAND, 2.0)
    assert 1 in raw.of("accepted"), "L of client 1 is 0.002 with raw values"


def test_the_threshold_is_the_one_that_was_worked_out() -> None:
    file = vectors("online_kp")
    given, expected = file["inputs"]["psi"], file["expected"]["psi"]
    for z, psi in zip(given["z"], expected, strict=True):
        assert threshold(z, given["L"], given["U"]) == pytest.approx(psi, abs=file["tolerance"])


def test_the_threshold_alone_is_the_known_online_knapsack() -> None:
    file = vectors("online_kp")
    given, psi = file["inputs"]["classic_items"], file["inputs"]["psi"]
    taken, used = [], 0.0
    for place, (weight, density) in enumerate(given["weight_density"]):
        fits = used + weight <= given["capacity"]
        if fits and density >= threshold(used / given["capacity"], psi["L"], psi["U"]):
            taken.append(place)
            used += weight
    assert taken == file["expected"]["classic_selected"]


@given(
    z=st.floats(0, 2),
    lowest=st.floats(1e-300, 1e300),
    highest=st.floats(1e-300, 1e300),
)
def test_the_threshold_rises_from_the_lowest_to_the_highest(z, lowest, highest) -> None:
    lowest = min(lowest, highest)
    now, later = threshold(z, lowest, highest), threshold(z + 0.01, lowest, highest)
    assert lowest <= now * (1 + 1e-9)
    assert now <= later * (1 + 1e-9)
    assert later <= highest * (1 + 1e-9)
    assert threshold(1.0, lowest, highest) == highest


def test_online_kp_leaves_out_who_will_not_have_trained_in_time() -> None:
    case = {"t_uc": [1.0, 200.0, 3.0], "t_ul": [1.0] * 3, "T_round": 100.0}
    _, report = played(OnlineKP(), case)
    assert [client.client for client in report.clients] == [0, 2]
    _, report = played(OnlineKP(ask_times=False), case)
    assert report.of("lost") == (1,)
    assert report.took_s == 100.0


@pytest.mark.parametrize(("value", "unit"), [("raw", 1.0), ("normalised", 6.0)])
def test_online_kp_takes_whoever_fits_first_and_its_thresholds_from_all_offers(value, unit) -> None:
    case = {"t_uc": [1.0, 2.0, 3.0], "t_ul": [4.0, 2.0, 400.0], "norms": [3.0, 0.5, 6.0]}
    peers = peers_of(OnlineKP(value=value), {**case, "T_round": 100.0})
    state, report = run_round(a_state(peers.logic), peers, peers.logic)
    assert report.of("accepted") == (0, 1)
    kept = state.memory["selector"]
    assert kept["U"] == pytest.approx(3.0 / 4.0 / unit)
    assert kept["L0"] == pytest.approx(6.0 / 400.0 / unit), "of one that was declined"
    after, report = run_round(state, peers, peers.logic)
    assert (after.memory["selector"]["L0"], after.memory["selector"]["U"]) == (
        kept["L0"],
        kept["U"],
    )


def test_online_kp_takes_its_thresholds_from_uploads_where_nobody_knew_how_long_they_take() -> None:
    case = {"t_uc": [1.0, 2.0, 3.0], "t_ul": [4.0, 2.0, 5.0], "norms": [3.0, 0.5, 0.0]}
    peers = peers_of(OnlineKP(), {**case, "T_round": 100.0})
    peers.unknown_uploads = True
    state, _ = run_round(a_state(peers.logic), peers, peers.logic)
    kept = state.memory["selector"]
    assert (kept["L0"], kept["U"]) == (pytest.approx(0.25), pytest.approx(0.75))


def test_online_kp_remembers_the_largest_norm_of_those_that_were_declined_too() -> None:
    case = {"t_uc": [1.0, 2.0], "t_ul": [1.0, 500.0], "norms": [1.0, 7.0], "T_round": 100.0}
    state, report = played(OnlineKP(), case)
    assert report.of("declined") == (1,)
    assert state.memory["selector"]["largest"] == 7.0
