"""Simulated time: who counts, what a round takes, and what the run's clock says."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fedmx import Experiment, ExperimentError, Round, simulate
from layers.logic.clock import Devices, Fleet
from layers.logic.core.messages import Training
from tests.fedmx.algorithms import experiment
from tests.logic.toys import FirstBack, InLanes

DEVICES = {"name": "range", "samples_per_s": [20, 200], "up_bytes_per_s": [1e5, 1e6]}
CLIENTS = 12


@dataclass(frozen=True)
class Told(Devices, Fleet):
    """Client k trains for (k + 1) s, uploads for 1 s, and downloads at once."""

    def draw(self, clients: int, seed: int) -> Fleet:
        return self

    def train_s(self, client: int, samples: int, training: Training) -> float:
        return client + 1.0

    def upload_s(self, client: int, bytes: int, round: int) -> float:
        return 1.0


def timed(logic: dict[str, Any], clock: dict[str, Any], **changed: Any) -> Experiment:
    return experiment(logic, **{"clients": CLIENTS, "rounds": 2, "clock": clock, **changed})


def run(experiment: Experiment) -> list[Round]:
    simulation = simulate(experiment)
    with simulation:
        return list(simulation)


@pytest.mark.parametrize("uploads", ["parallel", "serial"])
def test_of_those_asked_in_reserve_the_first_count_and_nobody_waits_for_the_others(uploads) -> None:
    logic = {"selector": {"name": "uniform", "count": 5}, "over_select": 1.6}
    for round in run(timed(logic, {"devices": DEVICES, "uploads": uploads})):
        report = round.report
        assert report.selected == 8
        assert (len(report.of("accepted")), len(report.of("declined"))) == (5, 3)
        ended = {client.client: client.times.ended_s for client in report.clients}
        last_s = max(ended[client] for client in report.of("accepted"))
        assert report.took_s == last_s
        for client in report.clients:
            if client.status == "declined":
                assert client.reason == "enough others came back first"
                assert client.traffic.up_bytes == 0
                assert ended[client.client] == last_s


def test_of_those_asked_in_reserve_more_come_in_for_those_who_drop_out() -> None:
    logic = {"selector": {"name": "uniform", "count": 6}, "over_select": 2, "min_updates": 0}
    for round in run(timed(logic, {"devices": DEVICES, "dropout": 0.4}, rounds=5)):
        report = round.report
        lost = len(report.of("lost"))
        assert report.selected == 12
        assert len(report.of("accepted")) == min(6, 12 - lost)


@pytest.mark.parametrize("how", ["reserve", "all"])
def test_every_stratum_fills_its_own_quota_however_slow_its_clients_are(how: str) -> None:
    preset = {"name": "fedsso", "beta": 0.5, "ask": "all" if how == "all" else "drawn"}
    logic = {"preset": preset, "over_select": 1 if how == "all" else 2}
    given = timed(logic, {"devices": Told()}, clients=20)
    one_class = ["compute.partition={name: label-quantity, per_client: 1}"]
    for round in run(given.with_overrides(one_class)):  # client k holds class k % 10
        assert set(round.report.of("accepted")) == set(range(10)), "the faster one of each class"
        assert set(round.report.of("declined")) == set(range(10, 20))


def test_a_lane_takes_the_time_of_its_clients_one_after_the_other() -> None:
    lanes = InLanes(((3, 0), (1,), (2, 5, 4)))
    (round,) = run(timed({"selector": lanes}, {"devices": Told()}, rounds=1))
    times = {client.client: client.times for client in round.report.clients}
    assert {client: (t.asked_s, t.trained_s, t.ended_s) for client, t in times.items()} == {
        3: (0, 4, 5),
        0: (5, 6, 7),
        1: (0, 2, 3),
        2: (0, 3, 4),
        5: (4, 10, 11),
        4: (11, 16, 17),
    }
    assert round.report.took_s == 17


@pytest.mark.parametrize("uploads", ["parallel", {"name": "parallel", "bytes_per_s": 1e12}])
def test_each_pass_of_a_lane_takes_the_time_of_its_clients_again(uploads) -> None:
    lanes = InLanes(((3, 0), (1,)), 2)
    (round,) = run(timed({"selector": lanes}, {"devices": Told(), "uploads": uploads}, rounds=1))
    times = {client.client: client.times for client in round.report.clients}
    assert {
        client: tuple(pytest.approx(at) for at in (t.asked_s, t.trained_s, t.ended_s))
        for client, t in times.items()
    } == {3: (0, 11, 12), 0: (5, 13, 14), 1: (0, 5, 6)}
    assert round.report.took_s == pytest.approx(14)
    assert round.report.of("accepted") == (3, 0, 1)


def test_a_serial_channel_is_shared_by_the_passes_of_all_lanes() -> None:
    lanes = InLanes(((1,), (2,)), 2)
    (round,) = run(timed({"selector": lanes}, {"devices": Told(), "uploads": "serial"}, rounds=1))
    # 1 trains until 2 and 5 and sends until 3 and 6; 2 until 3 and 7, and sends until 4 and 8.
    assert {c.client: c.times.ended_s for c in round.report.clients} == {1: 6, 2: 8}


def test_what_the_deadline_cuts_off_in_a_later_pass_leaves_what_the_earlier_ones_did() -> None:
    lanes = InLanes(((3, 0),), 2)
    clock = {"devices": Told(), "deadline_s": 8}
    (round,) = run(timed({"selector": lanes, "min_updates": 0}, clock, rounds=1))
    assert round.report.of("lost") == (3, 0)
    assert all(client.counted_before for client in round.report.clients)
    assert round.report.took_s == 8


def test_of_a_lane_what_the_deadline_cuts_off_is_lost() -> None:
    lanes = InLanes(((3, 0), (2, 5, 4)))
    (round,) = run(timed({"selector": lanes}, {"devices": Told(), "deadline_s": 8}, rounds=1))
    assert round.report.of("accepted") == (3, 0, 2)
    reasons = {client.client: client.reason for client in round.report.clients}
    assert reasons[5] == "no answer before the round ended"
    assert "not reached" in reasons[4]
    assert round.report.took_s == 8


def test_who_is_left_out_by_the_deadline_did_not_train_in_vain() -> None:
    """A client that would train beyond the deadline costs the simulation no work."""
    clock = {"devices": Told(), "deadline_s": 4.5}
    (round,) = run(timed({"selector": {"name": "uniform", "fraction": 1.0}}, clock, rounds=1))
    assert round.report.of("accepted") == (0, 1, 2)
    trained = [c.client for c in round.report.clients if c.times.trained_s is not None]
    assert trained == [0, 1, 2, 3]


def test_an_offline_round_takes_the_last_training_and_all_uploads_in_turn() -> None:
    """Eq. (6) of the knapsack paper, at most T_round."""
    clock = {"devices": "knapsack", "uploads": "serial", "deadline_s": 900}
    for round in run(timed({"preset": "offline-kp"}, clock, rounds=3)):
        counted = [c.times for c in round.report.clients if c.status == "accepted"]
        assert len(counted) >= 2
        began = {times.decided_s for times in counted}
        assert len(began) == 1, "all verdicts count from one moment"
        finished = [
            c.times.trained_s
            for c in round.report.clients
            if c.times.trained_s is not None and c.times.trained_s <= min(began)
        ]
        assert began == {max(finished)}
        uploads_s = sum(times.ended_s - times.sending_s for times in counted)
        assert round.report.took_s == pytest.approx(max(finished) + uploads_s)
        assert round.report.took_s <= 900


def test_a_clients_own_reckoning_is_its_devices_true_time() -> None:
    clock = {"devices": "knapsack", "uploads": "serial", "deadline_s": 1500}
    for round in run(timed({"preset": "fedcs"}, clock)):
        assert round.report.of("lost") == (), "who was chosen by its times came in time"
        counted = [c.times for c in round.report.clients if c.status == "accepted"]
        assert len(counted) >= 2
        ends_s = [times.ended_s for times in sorted(counted, key=lambda t: t.sending_s)]
        assert ends_s == sorted(ends_s)
        assert round.report.took_s < 1500


@pytest.mark.parametrize("preset", ["fedcs", "offline-kp", "online-kp"])
def test_a_selector_that_reckons_with_serial_uploads_has_them_without_asking(preset) -> None:
    clock = {"devices": "knapsack", "deadline_s": 900}
    logic = {"preset": preset, "min_updates": 0}
    (unsaid,), (said,) = (
        run(timed(logic, {**clock, **uploads}, rounds=1)) for uploads in ({}, {"uploads": "serial"})
    )
    assert len(unsaid.participants) >= 2
    assert unsaid.report.took_s == said.report.took_s
    times = [client.times for client in unsaid.report.clients if client.status == "accepted"]
    in_turn = sorted((one.sending_s, one.ended_s) for one in times)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(in_turn))


@pytest.mark.parametrize("uploads", ["parallel", {"name": "parallel", "bytes_per_s": 1e6}])
@pytest.mark.parametrize(
    "logic", [{"preset": "fedcs"}, {"preset": "offline-kp"}, {"selector": "online-kp"}]
)
def test_a_selector_that_reckons_with_serial_uploads_refuses_parallel_ones(logic, uploads) -> None:
    clock = {"devices": "knapsack", "deadline_s": 900, "uploads": uploads}
    with pytest.raises(ExperimentError, match="one upload at a time") as caught:
        simulate(timed(logic, clock))
    assert "\n" not in str(caught.value)
    assert "clock: {uploads: serial}" in str(caught.value)


def test_the_runs_clock_counts_rounds_and_the_time_in_which_nobody_was_there(tmp_path) -> None:
    trace = tmp_path / "trace.csv"
    lines = [
        f"{client},{at},{state}" for client in range(4) for at, state in ((9, "off"), (50, "on"))
    ]
    trace.write_text("client,time,state\n" + "\n".join(lines) + "\n")
    clock = {"devices": Told(), "availability": {"name": "trace", "path": str(trace)}}
    logic = {"selector": {"name": "uniform", "fraction": 1.0}}
    rounds = run(timed(logic, clock, clients=4, rounds=4))
    assert [round.report.took_s for round in rounds] == [5, 4, 5, 5]
    assert rounds[1].report.of("lost") == (3,), "it goes while it trains"
    assert [round.clock_elapsed_s for round in rounds] == [5, 9, 55, 60]
    assert all(round.virtual for round in rounds)


def test_a_run_ends_when_its_clock_says_so() -> None:
    logic = {"selector": {"name": "uniform", "fraction": 1.0}}
    simulation = simulate(
        timed(logic, {"devices": Told()}, clients=4, rounds=50, stop={"clock_s": 12})
    )
    with simulation:
        rounds = list(simulation)
    assert [round.clock_elapsed_s for round in rounds] == [5, 10, 15]
    assert simulation.reason == "15 s passed the clock's limit of 12 s"


def test_a_clock_does_not_change_what_clients_learn() -> None:
    """Nobody is late: the same model as without any time, byte for byte."""
    logic = {"selector": {"name": "uniform", "fraction": 0.5}}
    timeless, slow = (
        simulate(timed(logic, clock)) for clock in ({}, {"devices": DEVICES, "uploads": "serial"})
    )
    for simulation in (timeless, slow):
        with simulation:
            list(simulation)
    assert timeless.weights.tobytes() == slow.weights.tobytes()


def test_a_trace_that_is_not_there_is_told_with_where_it_was_looked_for() -> None:
    clock = {"devices": DEVICES, "availability": {"name": "trace", "path": "evening.csv"}}
    with pytest.raises(Exception, match=rf"evening.csv: .*; relative paths begin at {Path.cwd()}"):
        simulate(timed({}, clock))


@pytest.mark.parametrize("preset", ["fedcs", "offline-kp", "online-kp"])
def test_without_devices_nobody_takes_any_time_and_a_seed_gives_the_same_plan(preset) -> None:
    rounds = run(timed({"preset": preset}, {"deadline_s": 1e-6}))
    assert all(round.report.selected == CLIENTS for round in rounds)
    assert all(len(round.participants) == CLIENTS for round in rounds)


def test_tasks_that_outlive_their_round_are_accepted_in_a_later_one() -> None:
    rounds = run(timed({"selector": FirstBack()}, {"devices": DEVICES}, rounds=4))
    assert [len(round.participants) for round in rounds] == [1] * len(rounds)
    late = [row for round in rounds for row in round.client_records() if row.get("staleness")]
    assert late
    assert all(row["asked_s"] < 0 <= row["ended_s"] for row in late if row["status"] == "accepted")
