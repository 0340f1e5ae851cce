"""OfflineKP-FL and OnlineKP-FL: the clients that offer, and the offers that are granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import (
    PRESETS,
    Answer,
    ClientLost,
    ClientReport,
    LogicError,
    Offer,
    OpenRound,
    RoundMachine,
    RoundReport,
    Selector,
    ServerState,
    Traffic,
    Verdict,
    run_round,
)
from layers.logic.algorithms.fedcs import FedCS
from layers.logic.algorithms.knapsack import OfflineKP, OnlineKP, threshold
from layers.logic.core.report import Times
from layers.logic.numeric.knapsack import solve_exact
from layers.logic.round.exchange import Answered, Command, SetTimer
from tests.logic.memory_carrier import a_logic, a_state
from tests.logic.quadratic import bowls
from tests.logic.timed_carrier import TimedCarrier
from tests.logic.toys import planned
from tests.logic.vector_files import vectors

KNAPSACKS = (FedCS(), OfflineKP(), OnlineKP())


def peers_of(selector: Selector, case: Mapping[str, Any], **settings) -> TimedCarrier:
    """Return clients 0, 1, ... with the times and norms of a case."""
    logic = a_logic(selector, deadline_s=case["T_round"], min_updates=0, **settings)
    number = len(case["t_uc"])
    return TimedCarrier(
        logic,
        bowls(number),
        train_s=dict(enumerate(case["t_uc"])),
        upload_s=dict(enumerate(case["t_ul"])),
        norms=dict(enumerate(case.get("norms", [1.0] * number))),
    )


def played(
    selector: Selector, case: Mapping[str, Any], largest: float = 0.0
) -> tuple[ServerState, RoundReport]:
    peers = peers_of(selector, case)
    start = a_state(peers.logic)
    if largest:
        start = replace(start, memory={"selector": {"largest": largest}})
    return run_round(start, peers, peers.logic)


def cases(name: str) -> list[tuple[Mapping[str, Any], Mapping[str, Any], float]]:
    file = vectors(name)
    pairs = zip(file["inputs"]["cases"], file["expected"]["cases"], strict=True)
    return [(case, expected, file["tolerance"]) for case, expected in pairs]


@pytest.mark.parametrize("selector", KNAPSACKS)
def test_a_round_into_which_nobody_fits_keeps_the_model_and_lasts_as_long_as_it_may(
    selector,
) -> None:
    case = {"t_uc": [10.0] * 3, "t_ul": [95.0] * 3, "T_round": 100.0}
    state, report = played(selector, case)
    assert report.of("accepted") == ()
    assert state.round == 1
    assert not state.weights.any()
    assert report.took_s == 100.0


def test_the_servers_own_times_must_leave_time_for_clients() -> None:
    own = FedCS(select_s=2.0, distribute_s=3.0, aggregate_s=5.0)
    with pytest.raises(LogicError, match="10 s"):
        a_logic(own, deadline_s=10.0)
    a_logic(own, deadline_s=11.0)


@pytest.mark.filterwarnings("error")
def test_times_beyond_reason_are_taken_for_too_long_without_a_word() -> None:
    answers = {0: {"train_s": 1e308, "upload_s": 1e308}, 1: {"train_s": 1.0, "upload_s": 2.0}}
    for selector in (FedCS(), FedCS(multicast=True)):
        round = OpenRound({0: 10, 1: 10}, deadline_s=10.0)
        assert planned(selector, round, {"times": answers}) == [1]


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


class Offered:
    """A round in which a test says when each client offers, within 100 s.

    Attributes:
        verdicts: who was granted so far.
        until_s: the time at which the round is decided without those that have not offered.
    """

    def __init__(self, selector: OfflineKP, clients: int, untrusted: bool = False) -> None:
        logic = a_logic(selector, deadline_s=100.0)
        self._round = RoundMachine(a_state(logic), logic, untrusted=untrusted)
        self.verdicts: dict[int, bool] = {}
        self.until_s: float | None = None
        self._take(self._round.start(dict.fromkeys(range(clients), 5)))
        for client in range(clients) if selector.ask_times else ():
            answer = Answer(client, "times", {"train_s": 1.0, "upload_s": 1.0})
            self._take(self._round.handle(Answered(answer), 0.0))

    def offer(self, client: int, norm: float, upload_s: float, at_s: float) -> None:
        offer = Offer(1, client, 5, norm, upload_s, at_s=at_s)
        self._take(self._round.handle(offer, at_s))

    def lose(self, client: int, at_s: float) -> None:
        self._take(self._round.handle(ClientLost(1, client, "cable cut"), at_s))

    def _take(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Verdict():
                    self.verdicts[command.client] = command.granted
                case SetTimer("offers", at_s):
                    self.until_s = at_s


def test_offline_kp_decides_without_a_client_that_is_lost_after_its_offer() -> None:
    round = Offered(OfflineKP(), 3)
    round.offer(0, 9.0, 50.0, 1.0)
    round.offer(1, 1.0, 45.0, 2.0)
    round.lose(0, 2.5)
    assert round.verdicts == {}
    round.offer(2, 2.0, 50.0, 3.0)
    assert round.verdicts == {1: True, 2: True}


def test_offers_that_are_left_are_decided_again_one_after_the_other() -> None:
    """Without client 4, nothing fits at 30 s, so that V falls to 0; the offer of 31 s is late."""
    round = Offered(OfflineKP(), 5)
    round.offer(0, 2.0, 80.0, 10.0)
    round.offer(4, 5.0, 60.0, 11.0)
    round.offer(1, 1.0, 80.0, 30.0)
    round.lose(4, 30.5)
    assert round.verdicts == {}
    round.offer(2, 9.0, 5.0, 31.0)
    assert round.verdicts == {0: True, 1: False, 2: False, 3: False}


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
    untrusted=st.booleans(),
)
def test_where_no_upload_can_begin_in_the_past_every_grant_arrives_and_there_is_one_if_any_can(
    clients, deadline, selector, untrusted
) -> None:
    case = never_finishing(clients, deadline)
    if not untrusted:
        selector = replace(selector, output="last", ask_times=False)
    peers = peers_of(selector, case)
    peers.untrusted, peers.told_train_s = untrusted, {len(clients): 1.0}  # it says that it is quick
    _, report = run_round(a_state(peers.logic), peers, peers.logic)
    granted = {verdict.client for verdict in peers.verdicts if verdict.granted}
    assert set(report.of("accepted")) == granted
    fit = [norm > 0 and train + upload <= deadline for train, upload, norm in clients]
    assert bool(granted) == any(fit)
    assert len(clients) not in granted


@pytest.mark.parametrize("solver", ["exact", "dp"])
@pytest.mark.parametrize(
    ("settings", "simulated", "until_s"),
    [
        # Until the deadline of 100 s; or, from 20 s on, 0.9 of the time until the deadline that the
        # uploads of 30 s and 20 s do not need.
        ({"ask_times": False}, True, 100.0),
        ({"ask_times": False}, False, 47.0),
        ({"output": "last", "ask_times": False}, True, 47.0),
        ({"output": "last", "ask_times": False}, False, 47.0),
        ({"output": "last"}, True, None),
        ({"output": "last"}, False, 47.0),
    ],
)
def test_a_set_waits_for_other_offers_as_long_as_its_uploads_leave_time(
    settings: dict[str, Any], simulated: bool, until_s: float | None, solver: str
) -> None:
    round = Offered(OfflineKP(solver=solver, **settings), 3, untrusted=not simulated)
    round.offer(0, 2.0, 30.0, 10.0)
    round.offer(1, 1.0, 20.0, 20.0)
    assert (round.verdicts, round.until_s) == ({}, until_s)


@pytest.mark.parametrize("solver", ["exact", "dp"])
def test_a_set_without_time_to_spare_does_not_wait_and_an_empty_one_waits_for_all(
    solver: str,
) -> None:
    for upload_s, until_s in ((80.0, 20.0), (81.0, None)):
        round = Offered(OfflineKP(solver=solver), 2, untrusted=True)
        round.offer(0, 2.0, upload_s, 20.0)
        assert (round.verdicts, round.until_s) == ({}, until_s)


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
        # M = 0.8, so values 1.25, 0.5, 3, 1.25, 0.75 and weights 20, 25, 30, 20, 10. z as with no
        # M; psi against 0.0625, 0.02, 0.1, 0.0625, 0.075.
        (0.8, (0, 1, 2, 3, 4), 69.0),
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


def test_online_kp_takes_its_thresholds_from_what_is_known_of_each_upload() -> None:
    """The worths are 0.5 / 0.25 s, 9 / 3 s by the upload, 3 / 4 s; the others have none."""
    clients = (
        an_offer(0, 0.5, 0.25, Times(0.0, sending_s=1.0, ended_s=9.0)),
        an_offer(1, 9.0, 0.0, Times(0.0, sending_s=4.0, ended_s=7.0)),
        an_offer(2, 3.0, 4.0, None, "declined"),
        an_offer(3, 5.0, 0.0, Times(0.0, sending_s=4.0, ended_s=4.0)),
        an_offer(4, 5.0, 0.0, None, "declined"),
        an_offer(5, 0.0, 7.0, None, "declined"),
        an_offer(6, 11.0, 900.0, None, "rejected"),
    )
    report = RoundReport(1, 0.1, len(clients), clients, Traffic())
    assert OnlineKP().on_round_end({}, report) == {"largest": 9.0, "L0": 0.75, "U": 3.0}


def an_offer(
    client: int, norm: float, upload_s: float, times: Times | None, status: str = "accepted"
) -> ClientReport:
    """Return the report of a client that offered this norm."""
    return ClientReport(client, status, times=times, offer=Offer(1, client, 5, norm, upload_s))


def test_a_lowest_value_of_0_lets_everybody_in_until_the_time_is_taken() -> None:
    for lowest, highest in ((0.0, 5.0), (3.0, 0.0)):
        assert [threshold(z, lowest, highest) for z in (0.0, 0.5, 0.999)] == [0.0, 0.0, 0.0]
        assert [threshold(z, lowest, highest) for z in (1.0, 2.0)] == [highest, highest]
