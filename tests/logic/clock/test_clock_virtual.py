"""Virtual time: everything happens in its order, and nothing after the deadline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import LogicError, Training
from layers.logic.clock import UPLOADS, ClockEvent, InstantClock, VirtualClock
from layers.logic.clock.availability import Chance, Trace
from layers.logic.clock.devices import Lognormal
from layers.logic.clock.uploads import Parallel, Serial
from layers.logic.core.report import Times
from tests.logic.clock.one_round import Rounds
from tests.logic.timed_carrier import Given

TRAINING = Training()
durations = st.floats(0.01, 100, allow_nan=False)
devices = st.lists(st.tuples(durations, durations), min_size=1, max_size=12)


def a_clock(
    times: list[tuple[float, float]], deadline_s: float | None = None, **settings
) -> Rounds:
    """Return a clock of clients that train and upload for these times."""
    train, upload = zip(*times, strict=True)
    given = Given(dict(enumerate(train)), dict(enumerate(upload)))
    return Rounds(VirtualClock(len(times), given, **settings), deadline_s)


def played(clock: Rounds, clients: int | Sequence[int], round: int = 1) -> list[ClockEvent]:
    """Return what happens when all are asked at once, and upload when they have trained."""
    clock.begin(round)
    for client in range(clients) if isinstance(clients, int) else clients:
        clock.ask(client, 10, TRAINING, 100)
    happened = []
    while (event := clock.next()) is not None:
        happened.append(event)
        if event.kind == "trained":
            clock.upload(event.client, 100)
    return happened


def arrivals(happened: list[ClockEvent]) -> dict[int, float]:
    return {one.client: one.at_s for one in happened if one.kind == "arrived"}


def traced(folder: Path, lines: str, repeat: bool = False) -> Trace:
    file = folder / "trace.csv"
    file.write_text(f"client,time,state\n{lines}")
    return Trace(file, repeat)


@pytest.mark.parametrize("uploads", UPLOADS)
@given(times=devices)
def test_everything_happens_in_the_order_of_time(uploads, times) -> None:
    clock = a_clock(times, uploads=UPLOADS[uploads]())
    happened = played(clock, len(times))
    assert [one.at_s for one in happened] == sorted(one.at_s for one in happened)
    assert sorted(arrivals(happened)) == list(range(len(times)))
    for client, (train_s, upload_s) in enumerate(times):
        noted = clock.times()[client]
        assert (noted.asked_s, noted.trained_s) == (0.0, train_s)
        assert noted.sending_s >= train_s
        assert noted.ended_s == arrivals(happened)[client]
        assert noted.ended_s == pytest.approx(noted.sending_s + upload_s)
    assert clock.elapsed_s == happened[-1].at_s


def test_what_is_at_the_same_time_happens_in_the_order_of_asking() -> None:
    happened = played(a_clock([(5.0, 2.0)] * 4), (2, 0, 3, 1))
    expected = [(kind, k) for kind in ("trained", "arrived") for k in (2, 0, 3, 1)]
    assert [(one.kind, one.client) for one in happened] == expected


@pytest.mark.parametrize("uploads", UPLOADS)
@given(times=devices, deadline_s=st.floats(0.1, 200))
def test_nothing_happens_after_the_deadline(uploads, times, deadline_s) -> None:
    unbounded = played(a_clock(times, uploads=UPLOADS[uploads]()), len(times))
    clock = a_clock(times, uploads=UPLOADS[uploads](), deadline_s=deadline_s)
    happened = played(clock, len(times))
    assert happened == [one for one in unbounded if one.at_s <= deadline_s]
    over = len(happened) < len(unbounded)
    assert clock.elapsed_s == (deadline_s if over else unbounded[-1].at_s)
    assert all(noted.ended_s <= deadline_s for noted in clock.times().values())
    assert not clock.outstanding
    assert clock.next() is None, "a round that is over stays over"


def test_a_round_that_nothing_arrives_in_lasts_until_its_deadline() -> None:
    clock = a_clock([(5.0, 2.0)], deadline_s=60.0)
    clock.begin(1)
    clock.ask(0, 10, TRAINING, 0)
    assert clock.next().kind == "trained"
    clock.decide(0, granted=False)
    assert clock.next() is None
    assert clock.elapsed_s == 60.0
    clock.begin(2)  # of nobody
    assert clock.next() is None
    assert clock.elapsed_s == 60.0


def test_dropouts_come_at_their_rate_and_before_the_work_is_done() -> None:
    times = [(30.0, 10.0)] * 1000
    clock = a_clock(times, dropout=0.3, seed=5)
    happened = played(clock, len(times))
    dropped = {one.client: one for one in happened if one.kind == "dropped"}
    assert len(dropped) == pytest.approx(300, abs=45)
    assert set(arrivals(happened)) == set(range(1000)) - set(dropped)
    assert all(one.at_s < 40 and one.reason == "dropped out" for one in dropped.values())
    trained = {one.client for one in happened if one.kind == "trained"}
    early = {client for client, one in dropped.items() if one.at_s < 30}
    assert trained == set(range(1000)) - early
    assert 0 < len(early) < len(dropped), "some drop out while they upload"
    again = {one.client for one in played(clock, 1000, round=2) if one.kind == "dropped"}
    assert again != set(dropped), "each round draws anew"


@pytest.mark.parametrize(("rate", "dropped"), [(0.0, 0), (1.0, 50)])
def test_nobody_and_everybody_drops_out(rate, dropped) -> None:
    happened = played(a_clock([(3.0, 1.0)] * 50, dropout=rate), 50)
    assert [one.kind for one in happened].count("dropped") == dropped


def test_who_leaves_in_the_middle_of_a_round_is_lost_at_that_moment(tmp_path: Path) -> None:
    trace = traced(tmp_path, "0,3,off\n1,12,off\n2,20,off\n3,0,off\n")
    clock = a_clock([(10.0, 5.0)] * 5, availability=trace)
    happened = played(clock, 5)
    gone = {one.client: one.at_s for one in happened if one.kind == "dropped"}
    assert gone == {3: 0.0, 0: 3.0, 1: 12.0}, "at work, on its way, not there at all"
    assert arrivals(happened) == {2: 15.0, 4: 15.0}
    assert {one.reason for one in happened if one.kind == "dropped"} == {
        "left, as its availability says"
    }
    assert clock.times()[1].ended_s == 12.0


def test_who_comes_or_goes_is_looked_at_again_in_any_round(tmp_path: Path) -> None:
    trace = traced(tmp_path, "0,0,on\n0,3,on\n0,31,on\n0,33,off\n")  # two lines change nothing
    clock = a_clock([(10.0, 5.0)], availability=trace)
    assert arrivals(played(clock, 1)) == {0: 15.0}
    assert arrivals(played(clock, 1)) == {0: 15.0}
    assert [(one.kind, one.at_s) for one in played(clock, 1)] == [("dropped", 3.0)]
    assert clock.run_s == 33.0


def test_time_goes_on_from_round_to_round_and_from_a_checkpoint(tmp_path: Path) -> None:
    trace = traced(tmp_path, "0,0,on\n0,100,off\n0,130,on\n0,1000,on\n", repeat=True)
    clock = a_clock([(20.0, 5.0)], availability=trace)
    seen = []
    for round in range(1, 9):
        assert clock.available([0]) == [0]
        waited_s = clock.waited_s
        happened = played(clock, 1, round)
        seen.append((clock.run_s, waited_s, [(one.kind, one.at_s) for one in happened]))
        clock.settle()
        other = a_clock([(20.0, 5.0)], availability=trace)
        other.restore(clock.run_s)
        clock = other
    whole = [("trained", 20.0), ("arrived", 25.0)]
    assert seen[:4] == [(25.0 * n, 0.0, whole) for n in (1, 2, 3, 4)]
    assert seen[4] == (155.0, 30.0, whole), "after the fourth, it is away for 30 s"


def test_a_verdict_counts_from_when_it_is_dated() -> None:
    clock = a_clock([(10.0, 5.0), (12.0, 4.0), (40.0, 1.0)], uploads=Serial())
    clock.begin(1)
    for client in range(3):
        clock.ask(client, 10, TRAINING, 0)
    assert [clock.next().client for _ in range(3)] == [0, 1, 2]
    for client in (0, 1):
        clock.decide(client, granted=True, dated_s=12.0)
        clock.upload(client, 0, dated_s=12.0)
    clock.decide(2, granted=False, dated_s=12.0)
    assert [clock.next().client, clock.next().client, clock.next()] == [0, 1, None]
    assert clock.times() == {
        0: Times(0.0, 10.0, 12.0, 12.0, 17.0),
        1: Times(0.0, 12.0, 12.0, 17.0, 21.0),
        2: Times(0.0, 40.0, 12.0, None, 12.0),
    }
    assert clock.elapsed_s == 21.0, "as if the third had not been waited for"


def test_a_grant_for_one_who_has_gone_brings_nothing(tmp_path: Path) -> None:
    clock = a_clock([(5.0, 1.0), (9.0, 1.0)], availability=traced(tmp_path, "0,7,off\n"))
    clock.begin(1)
    for client in range(2):
        clock.ask(client, 10, TRAINING, 0)
    assert [(one.kind, one.client) for one in (clock.next(), clock.next(), clock.next())] == [
        ("trained", 0),
        ("dropped", 0),
        ("trained", 1),
    ]
    for client in range(2):
        clock.decide(client, granted=True)
        clock.upload(client, 100)
    assert [one.client for one in iter(clock.next, None)] == [1]
    assert clock.times()[0].ended_s == 7.0


def test_a_round_in_which_all_wait_for_nothing_is_over(tmp_path: Path) -> None:
    """They come and go for ever, and nobody does anything."""
    trace = traced(tmp_path, "0,1000,off\n0,1001,on\n1,5000,off\n", repeat=True)
    clock = a_clock([(5.0, 1.0)] * 2, availability=trace)
    clock.begin(1)
    clock.ask(0, 10, TRAINING, 0)
    assert clock.next().kind == "trained"
    assert clock.next() is None  # there is no verdict, ever
    assert clock.run_s < 1000


def test_the_timer_fires_once_behind_all_that_happens_at_its_moment() -> None:
    clock = a_clock([(3.0, 1.0), (8.0, 1.0), (50.0, 1.0)], deadline_s=10.0)

    def events(timer_s: float | None) -> list[tuple[str, float]]:
        clock.begin(1)
        for client in range(3):
            clock.ask(client, 10, TRAINING, 0)
        clock.set_timer("offers", timer_s)
        return [(one.kind, one.at_s) for one in iter(clock.next, None)]

    trained = [("trained", 3.0), ("trained", 8.0)]
    assert events(8.0) == [*trained, ("timer", 8.0)]
    assert events(5.0) == [trained[0], ("timer", 5.0), trained[1]]
    assert events(10.0) == [*trained, ("timer", 10.0)], "a client trains beyond the deadline"
    clock.set_timer("offers", 4.0)
    assert clock.clock.next() == ClockEvent("timer", -1, 10.0, "offers"), "now, not in the past"
    for never in (10.5, None):
        assert events(never) == trained
    assert clock.elapsed_s == 10.0


SETTINGS: Mapping[str, Mapping] = {
    "parallel": {"uploads": Parallel()},
    "shared": {"uploads": Parallel(2000.0)},
    "serial": {"uploads": Serial()},
}


@pytest.mark.parametrize("uploads", SETTINGS)
def test_a_seed_gives_the_same_events_again(uploads) -> None:
    def run(seed: int) -> list[list[ClockEvent]]:
        virtual = VirtualClock(
            30,
            Lognormal(sigma=1.0, up_bytes_per_s=100.0),
            seed,
            availability=Chance(0.8, 2.0),
            dropout=0.1,
            **SETTINGS[uploads],
        )
        clock = Rounds(virtual, deadline_s=8.0)
        rounds = []
        for round in range(1, 6):
            clock.settle()
            clock.available(range(30))
            rounds.append(played(clock, 30, round))
        return rounds

    assert run(1) == run(1)
    assert run(1) != run(2)
    kinds = {one.kind for events in run(1) for one in events}
    assert kinds == {"trained", "arrived", "dropped"}


@pytest.mark.parametrize("dropout", [-0.1, 1.1, math.nan])
def test_an_impossible_rate_of_dropouts_is_refused(dropout) -> None:
    with pytest.raises(LogicError, match="dropout"):
        VirtualClock(1, Lognormal(), dropout=dropout)


# --- tasks that outlive a round ---------------------------------------------------------------


def events_of(clock: VirtualClock, number: int) -> list[tuple[str, int, float]]:
    """Return the next events; a client that has trained uploads 5000 bytes."""
    happened = []
    for _ in range(number):
        event = clock.next()
        happened.append((event.kind, event.client, event.at_s))
        if event.kind == "trained":
            clock.trained(event.client)
            clock.upload(event.client, 5000)
    return happened


def asked(clock: VirtualClock, round: int, *clients: int) -> None:
    for client in clients:
        clock.ask(client, 10, TRAINING, 100, round)


def test_a_task_in_flight_goes_on_in_the_next_round() -> None:
    devices = Given({0: 3.0, 1: 10.0}, {0: 2.0, 1: 5.0})
    clock = VirtualClock(2, devices)
    clock.begin(continues=True)
    asked(clock, 1, 0, 1)
    assert events_of(clock, 2) == [("trained", 0, 3.0), ("arrived", 0, 5.0)]
    assert (clock.opened_s, clock.run_s) == (0.0, 5.0)
    clock.close()
    assert (clock.elapsed_s, clock.opened_s, clock.run_s) == (5.0, 5.0, 5.0)
    assert clock.times() == {0: Times(0.0, 3.0, None, 3.0, 5.0), 1: Times(0.0)}

    clock.begin(before_s=1.0, after_s=2.0, continues=True)
    asked(clock, 2, 0)
    assert events_of(clock, 3) == [("trained", 0, 4.0), ("trained", 1, 5.0), ("arrived", 0, 6.0)]
    assert (clock.opened_s, clock.run_s) == (5.0, 11.0)
    clock.close()
    assert (clock.elapsed_s, clock.opened_s, clock.run_s) == (8.0, 13.0, 13.0)
    assert clock.times() == {0: Times(1.0, 4.0, None, 4.0, 6.0)}

    clock.begin(continues=True)
    assert events_of(clock, 1) == [("arrived", 1, 2.0)]
    clock.close()
    assert clock.times() == {1: Times(-13.0, -3.0, None, -3.0, 2.0)}
    assert clock.tree() == {"run_s": 15.0}, "no task is in flight"
    clock.begin()
    assert (clock.run_s, clock.elapsed_s, clock.waited_s) == (15.0, 0.0, 0.0)


def test_waiting_for_clients_counts_once_also_where_tasks_may_outlive_a_round(
    tmp_path: Path,
) -> None:
    trace = traced(tmp_path, "0,0,off\n0,40,on\n0,50,off\n0,70,on\n1,0,off\n1,40,on\n")
    devices = Given({0: 3.0, 1: 10.0}, {0: 1.0, 1: 5.0})
    clock = VirtualClock(2, devices, availability=trace)
    assert (clock.available([0, 1]), clock.waited_s) == ([0, 1], 40.0)
    clock.begin(continues=True)
    asked(clock, 1, 0, 1)
    assert events_of(clock, 2) == [("trained", 0, 3.0), ("arrived", 0, 4.0)]
    clock.close()
    assert (clock.run_s, clock.waited_s) == (44.0, 40.0)

    again = VirtualClock(2, devices, availability=trace)
    again.restore(clock.tree())
    for one in (clock, again):
        one.settle()
        one.begin(after_s=4.0, continues=True)
        assert events_of(one, 1) == [("trained", 1, 6.0)]
        one.close()
        assert (one.run_s, one.available([0]), one.waited_s) == (54.0, [], 0.0)
        one.settle()
        one.begin(continues=True)
        assert events_of(one, 1) == [("arrived", 1, 1.0)]
        one.close()
        assert (one.run_s, one.waited_s) == (55.0, 0.0)
        one.settle()
        assert (one.available([0]), one.waited_s) == ([0], 15.0)
        one.begin(continues=True)
        assert (one.run_s, one.waited_s) == (70.0, 15.0)


def test_what_was_left_of_an_earlier_task_does_not_happen_to_a_later_one() -> None:
    clock = VirtualClock(2, Given({0: 10.0, 1: 4.0}, {0: 1.0, 1: 0.0}))
    clock.begin(continues=True)
    asked(clock, 1, 0, 1)
    assert events_of(clock, 1) == [("trained", 1, 4.0)]
    clock.cancel(0)
    assert clock.times()[0] == Times(0.0, None, None, None, 4.0)
    asked(clock, 1, 0)
    assert clock.times()[0] == Times(4.0)
    happened = [("arrived", 1, 4.0), ("trained", 0, 14.0), ("arrived", 0, 15.0)]
    assert events_of(clock, 3) == happened
    assert clock.times()[0] == Times(4.0, 14.0, None, 14.0, 15.0)


def test_events_of_a_round_with_older_tasks_count_from_its_begin(tmp_path: Path) -> None:
    trace = traced(tmp_path, "0,0,on\n0,5,off\n0,8,on\n0,35,off\n")
    devices = Given({0: 90.0, 1: 20.0, 2: 1.0}, {0: 1.0, 1: 50.0, 2: 1.0})
    clock = VirtualClock(3, devices, availability=trace)
    clock.begin(before_s=10.0, continues=True)
    asked(clock, 1, 0, 1, 2)
    assert events_of(clock, 2) == [("trained", 2, 11.0), ("arrived", 2, 12.0)]
    clock.close()
    clock.begin(continues=True)
    clock.set_timer("offers", 4.0)
    clock.set_timer("refill", 2.0)
    clock.set_timer("refill", None)
    assert clock.next() == ClockEvent("timer", -1, 4.0, "offers")
    assert events_of(clock, 2) == [("trained", 1, 18.0), ("dropped", 0, 23.0)]
    clock.close()
    assert (clock.elapsed_s, clock.run_s) == (23.0, 35.0)
    clock.begin()
    assert (clock.run_s, clock.tree()) == (35.0, {"run_s": 35.0}), "the last task is given up"
    asked(clock, 3, 2)
    assert events_of(clock, 2) == [("trained", 2, 1.0), ("arrived", 2, 2.0)]
    assert clock.next() == ClockEvent("timer", -1, 2.0, "deadline")


def test_all_tasks_in_flight_can_be_dropped() -> None:
    clock = VirtualClock(2, Given({0: 3.0, 1: 10.0}, {0: 2.0, 1: 5.0}))
    clock.begin(continues=True)
    asked(clock, 1, 0, 1)
    assert events_of(clock, 1) == [("trained", 0, 3.0)]
    clock.close()
    clock.drop()
    assert clock.tree() == {"run_s": 3.0}
    clock.begin(continues=True)
    asked(clock, 2, 1)
    assert events_of(clock, 2) == [("trained", 1, 10.0), ("arrived", 1, 15.0)]
    assert (clock.run_s, clock.times()) == (18.0, {1: Times(0.0, 10.0, None, 10.0, 15.0)})


@pytest.mark.parametrize("uploads", SETTINGS)
@pytest.mark.parametrize("number", [0, 1, 4, 7, 11])
def test_tasks_in_flight_go_on_from_a_checkpoint(uploads, number, tmp_path: Path) -> None:
    trace = traced(tmp_path, "5,0,on\n5,7,off\n5,40,on\n")
    devices = Given({k: 3.0 + k for k in range(8)}, {k: 1.0 + k / 2 for k in range(8)})

    def a_new_one() -> VirtualClock:
        settings = {"availability": trace, "dropout": 0.3, **SETTINGS[uploads]}
        return VirtualClock(8, devices, seed=4, **settings)

    def next_round(clock: VirtualClock, round: int) -> tuple:
        clock.begin(before_s=0.5, after_s=0.25, continues=True)
        asked(clock, round, 4 + round)
        happened = events_of(clock, 4)
        clock.close()
        return happened, clock.times(), clock.elapsed_s, clock.run_s, clock.tree()

    clock, again = a_new_one(), a_new_one()
    for one in (clock, again):
        one.begin(continues=True)
        asked(one, 1, 5, 0, 3, 1, 4, 2)
    events_of(clock, number)
    clock.close()
    events_of(again, 2)  # its earlier tasks do not count
    again.restore(clock.tree())
    assert (again.run_s, again.tree()) == (clock.run_s, clock.tree())
    for round in (2, 3):
        assert next_round(again, round) == next_round(clock, round)


def test_nobody_is_waited_for_where_there_are_no_clients_or_all_are_there(tmp_path: Path) -> None:
    nobody, both = np.zeros(0, np.int64), np.arange(2)
    away = VirtualClock(1, Lognormal(), availability=traced(tmp_path, "0,0,off\n0,9,on\n"))
    assert away.available_of(nobody) is nobody
    assert away.waited_s == 0.0
    assert VirtualClock(2, Lognormal()).available_of(both) is both


def test_without_devices_nothing_takes_time() -> None:
    clock = Rounds(InstantClock(3))
    happened = played(clock, 3)
    assert not clock.virtual
    assert clock.run_s == 0.0
    assert {one.at_s for one in happened} == {0.0}
