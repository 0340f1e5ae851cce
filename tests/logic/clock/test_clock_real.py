"""Real time: it begins with a round and stops with it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from layers.logic import Training
from layers.logic.clock import InstantClock, RealClock
from layers.logic.core.report import Times


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time of the machine's monotonic clock, as a test sets it."""
    now = SimpleNamespace(s=100.0)
    machine = SimpleNamespace(monotonic=lambda: now.s)
    monkeypatch.setattr("layers.logic.clock.real.time", machine)
    return now


def test_a_round_lasts_from_its_begin_to_its_end(now) -> None:
    clock = RealClock()
    assert (clock.running, clock.elapsed_s) == (False, 0.0)
    clock.end()
    clock.begin()
    now.s += 3
    assert (clock.running, clock.elapsed_s) == (True, 3.0)
    clock.end()
    now.s += 5
    clock.end()
    assert (clock.running, clock.elapsed_s) == (False, 3.0)
    clock.begin()
    assert (clock.running, clock.elapsed_s) == (True, 0.0)


def test_the_times_of_a_round_are_those_of_the_clients_with_a_task_in_it(now) -> None:
    clock = RealClock()
    clock.begin()
    clock.ask(0)
    clock.ask(1)
    now.s += 2
    clock.note(0, "trained_s")
    clock.note(7, "trained_s")  # it was never asked
    now.s += 1
    clock.note(0, "ended_s")
    assert clock.times() == {0: Times(0.0, trained_s=2.0, ended_s=3.0), 1: Times(0.0)}
    clock.ask(0, again=True)
    assert clock.times()[0] == Times(3.0)
    clock.end()
    now.s += 4
    clock.note(0, "trained_s")  # after the round: at its last moment
    assert clock.times()[0] == Times(3.0, trained_s=3.0)
    clock.begin([1])
    assert clock.times() == {}, "client 1 was asked before, and has not ended"
    now.s += 1
    clock.note(1, "ended_s")
    assert clock.times() == {1: Times(-7.0, ended_s=1.0)}


def test_a_clock_without_devices_reports_the_real_time_of_a_round_until_its_close(now) -> None:
    clock = InstantClock(2)
    clock.begin()
    clock.ask(0, 10, Training(), 100, 1)
    now.s += 2
    assert clock.next().kind == "trained"
    clock.trained(0)
    clock.upload(0, 100)
    now.s += 1
    assert clock.next().kind == "arrived"
    clock.close()
    now.s += 5
    assert (clock.elapsed_s, clock.run_s) == (3.0, 0.0)
    assert clock.times() == {0: Times(0.0, trained_s=2.0, ended_s=3.0)}
