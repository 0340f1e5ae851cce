"""Which deployed clients count as there, and when something is logged again, by a set clock."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fedmx.deployment import membership as module
from fedmx.deployment.membership import (
    MOST_TICK_S,
    SHOWN,
    LogTimer,
    Membership,
    ServerClock,
    listing,
)


class Machine:
    """The module's `time`, as far as it needs it."""

    def __init__(self) -> None:
        self.now_s = 5000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(module, "time", machine)
    return machine


@pytest.fixture
def clock() -> ServerClock:
    clock = ServerClock()
    clock.now_s = 5000.0
    return clock


def test_a_step_of_the_servers_loop_counts_as_one_second_at_most(machine: Machine) -> None:
    clock = ServerClock()
    for seconds in (0.25, 0.5, 40.0, 3600.0, -3600.0, 0.25):
        machine.now_s += seconds
        clock.tick()
    assert clock.now_s == 0.25 + 0.5 + MOST_TICK_S + MOST_TICK_S + 0.0 + 0.25


def test_the_time_to_reconnect_is_one_for_a_task_and_not_for_each_cut(clock: ServerClock) -> None:
    clients = Membership(60.0, clock)
    clients.join(3, 10)
    clients.begin_task(3)
    for _ in range(3):
        clients.leave(3)
        clock.now_s += 20.0
        clients.join(3, 10)
        clock.now_s += 500.0
    clients.leave(3)
    clock.now_s += 0.001
    assert clients.expire() == [3]
    clients.join(3, 10)
    for begin in (lambda client: None, clients.begin_task):
        begin(3)
        clients.leave(3)
        clock.now_s += 59.0
        assert clients.expire() == []
        clients.join(3, 10)


def test_a_client_that_left_may_be_away_for_its_time_and_not_longer(clock: ServerClock) -> None:
    clients = Membership(60.0, clock)
    assert clients.join(3, 10) is None
    assert clients.join(4, 20) is None
    assert clients.leave(3)
    assert not clients.leave(3)
    assert (clients.ready, clients.disconnected) == ({4}, {3: 5000.0})
    clock.now_s += 60.0
    assert clients.expire() == []
    assert clients.samples == {3: 10, 4: 20}
    clock.now_s += 0.001
    assert clients.expire() == [3]
    assert (clients.samples, clients.disconnected) == ({4: 20}, {})
    assert clients.expire() == []


def test_a_client_that_is_needed_and_was_never_there_is_given_up_after_the_same_time(
    clock: ServerClock,
) -> None:
    clients = Membership(60.0, clock)
    clients.join(4, 20)
    clients.expect(4)
    clients.expect(3)
    clock.now_s += 30.0
    clients.expect(3)  # this does not begin anew
    assert clients.disconnected == {3: 5000.0}
    clock.now_s += 30.5
    assert clients.expire() == [3]
    assert clients.samples == {4: 20}


def test_a_message_names_twenty_clients_and_the_number_of_the_others() -> None:
    assert SHOWN == 20
    first = ", ".join(map(str, range(20)))
    assert listing({7, 2, 31}) == "2, 7, 31"
    assert listing(set(range(20))) == first
    assert listing(set(range(21))) == f"{first} and 1 more"


def test_the_pauses_between_two_lines_of_the_log_double_up_to_an_hour(machine: Machine) -> None:
    timer = LogTimer(60.0)
    due_s, began_s = [], machine.now_s
    machine.now_s += 59.0
    while len(due_s) < 10:
        if timer.due():
            due_s.append(machine.now_s - began_s)
        machine.now_s += 1.0
    pauses = [after - before for before, after in pairwise(due_s)]
    assert due_s[0] == 60.0
    assert pauses == [30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0]
