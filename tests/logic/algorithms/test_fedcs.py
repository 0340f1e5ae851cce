"""FedCS selects, and takes the time, that was worked out for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import LogicError, OpenRound, Selector, run_round
from layers.logic.algorithms.fedcs import FedCS
from tests.logic.algorithms.test_knapsack import KNAPSACKS, cases, peers_of, played
from tests.logic.memory_carrier import a_state
from tests.logic.toys import planned


def test_fedcs_takes_clients_in_the_order_and_the_time_that_were_worked_out() -> None:
    for case, expected, tolerance in cases("fedcs_greedy"):
        _, report = played(FedCS(), case)
        assert [client.client for client in report.clients] == expected["selected_in_order"]
        assert report.of("accepted") == tuple(expected["selected_in_order"])
        assert report.took_s == pytest.approx(expected["T_cost"], abs=tolerance)


def algorithm_3(
    train: list[int], upload: list[int], deadline: int, fixed: int, multicast: bool
) -> list[int]:
    """The rule as it is printed, with T_d(S) as section IV has it."""

    def distribution(clients: list[int]) -> int:
        return max((upload[k] for k in clients), default=0) if multicast else 0

    left, taken, elapsed = list(range(len(train))), [], 0
    while left:
        _, best = min(
            (
                distribution([*taken, k])
                - distribution(taken)
                + upload[k]
                + max(0, train[k] - elapsed),
                k,
            )
            for k in left
        )
        left.remove(best)
        after = elapsed + upload[best] + max(0, train[best] - elapsed)
        if fixed + distribution([*taken, best]) + after < deadline:
            elapsed = after
            taken.append(best)
    return taken


@given(
    times=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12),
    deadline=st.integers(7, 60),
    own=st.sampled_from([0.0, 1.0]),
    multicast=st.booleans(),
)
def test_fedcs_is_algorithm_3_as_printed(times, deadline, own, multicast) -> None:
    train, upload = [t for t, _ in times], [u for _, u in times]
    answers = {k: {"train_s": float(t), "upload_s": float(u)} for k, (t, u) in enumerate(times)}
    round = OpenRound(dict.fromkeys(range(len(times)), 5), deadline_s=float(deadline))
    selector = FedCS(
        select_s=own, distribute_s=2.0 * own, multicast=multicast, aggregate_s=3.0 * own
    )
    expected = algorithm_3(train, upload, deadline, int(6 * own), multicast)
    assert planned(selector, round, {"times": answers}) == expected
    assert round.in_turn


SERVER_TIMES = {"t_uc": [10.0, 20.0, 5.0], "t_ul": [8.0, 30.0, 12.0], "T_round": 100.0}


@pytest.mark.parametrize(
    ("settings", "taken", "asked_s", "took_s"),
    [
        # Client 2 adds 5 + 12, then 0 8, then 1 30: 55 s in all.
        ({}, (2, 0, 1), 0.0, 55.0),
        ({"select_s": 4.0, "aggregate_s": 6.0}, (2, 0, 1), 4.0, 65.0),
        ({"distribute_s": 7.0}, (2, 0, 1), 7.0, 62.0),
        # 0 adds 8 + 10 + 8 = 26, and 2 12 + 5 + 12 = 29; then 2 (12 - 8) + 12 = 16, to 30 s;
        # then 1 (30 - 12) + 30 = 48, to 60 s, with T_d = 30.
        ({"multicast": True}, (0, 2, 1), 30.0, 90.0),
        # With 10 s less, client 1 does not fit: 30 + 60 + 10 is not below 100.
        ({"multicast": True, "aggregate_s": 10.0}, (0, 2), 12.0, 52.0),
    ],
)
def test_the_server_s_own_times_pass_before_the_tasks_and_after_the_last_update(
    settings, taken, asked_s, took_s
) -> None:
    _, report = played(FedCS(**settings), SERVER_TIMES)
    assert report.of("accepted") == taken
    assert {client.times.asked_s for client in report.clients} == {asked_s}
    assert report.took_s == took_s


def test_a_round_in_which_nobody_fits_lasts_until_its_deadline_with_the_server_s_own_times() -> (
    None
):
    case = {"t_uc": [10.0] * 3, "t_ul": [95.0] * 3, "T_round": 100.0}
    _, report = played(FedCS(select_s=3.0, multicast=True, aggregate_s=2.0), case)
    assert report.of("accepted") == ()
    assert report.took_s == 100.0


def test_an_update_has_to_arrive_before_the_aggregation() -> None:
    case = {"t_uc": [10.0, 10.0], "t_ul": [20.0, 20.0], "T_round": 60.0}
    peers = peers_of(FedCS(aggregate_s=5.0), case)
    peers.told_train_s = {0: 1.0, 1: 10.0}
    peers.train_s[0] = 16.0
    _, report = run_round(a_state(peers.logic), peers, peers.logic)
    assert (report.of("accepted"), report.of("lost")) == ((0,), (1,)), "56 s and 5 s are too much"
    assert report.took_s == 60.0


def test_fedcs_asks_a_share_of_the_clients_and_takes_none_but_these() -> None:
    case = {"t_uc": [1.0] * 10, "t_ul": [1.0] * 10, "T_round": 100.0}
    peers = peers_of(FedCS(candidates=0.3), case)
    asked = set()
    state = a_state(peers.logic)
    for _ in range(3):
        state, report = run_round(state, peers, peers.logic)
        question, candidates = peers.asked[-1]
        assert question == "times"
        assert set(report.of("accepted")) == set(candidates)
        assert len(candidates) == 3
        asked.add(candidates)
    assert len(asked) > 1, "each round draws its own"


def test_fedcs_leaves_out_who_does_not_say_how_long_it_takes() -> None:
    case = {"t_uc": [1.0] * 4, "t_ul": [1.0] * 4, "T_round": 100.0}
    peers = peers_of(FedCS(), case)
    peers.mute = [2]
    _, report = run_round(a_state(peers.logic), peers, peers.logic)
    assert report.of("accepted") == (0, 1, 3)


@pytest.mark.parametrize("selector", KNAPSACKS)
def test_a_client_that_will_have_trained_only_at_the_deadline_is_left_out(
    selector: Selector,
) -> None:
    times = {0: 49.9, 1: 50.0, 2: 50.1, 3: 0.0}
    answers = {"times": {k: {"train_s": t, "upload_s": 0.0} for k, t in times.items()}}
    samples = dict.fromkeys(times, 5)
    assert set(planned(selector, OpenRound(samples, deadline_s=50.0), answers)) == {0, 3}
    with pytest.raises(LogicError, match="deadline_s"):
        planned(selector, OpenRound(samples), answers)


@pytest.mark.parametrize(
    "lie",
    [
        {},
        {"train_s": 1.0},
        {"train_s": -1.0, "upload_s": 1.0},
        {"train_s": 1.0, "upload_s": float("nan")},
        {"train_s": True, "upload_s": "1"},
    ],
)
@pytest.mark.parametrize("selector", KNAPSACKS)
def test_times_that_cannot_be_are_as_good_as_none(selector, lie) -> None:
    good = {"train_s": 1.0, "upload_s": 1.0}
    answers = {"times": {0: good, 1: lie, 2: good}}
    round = OpenRound(dict.fromkeys(range(3), 5), deadline_s=50.0)
    assert planned(selector, round, answers) == [0, 2]
