"""A client that is silent for too long is given up, by the times of events alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import ServerState
from layers.logic.round.patience import (
    ANSWERS,
    FIRST_S,
    LEAST_S,
    MOST_SUSPENDED_S,
    PATIENCE,
    QUORUM_LEAST_S,
    SUSPENDED_TIMES,
    AnswerTimes,
    Patience,
    Waiting,
)

EMPTY = np.zeros(0, np.float32)
START = ServerState(0, EMPTY, EMPTY)


def began(patience: Patience | None, state: ServerState = START, min_updates: int = 1) -> Waiting:
    """Return what a round that has begun to collect waits for."""
    waiting = Waiting(patience, state)
    waiting.begin(0.0, (), min_updates)
    return waiting


def later(state: ServerState, waiting: Waiting, now_s: float) -> ServerState:
    """Return the state after a round."""
    return replace(state, memory={PATIENCE: waiting.memory((), now_s)})


def after(patience: Patience, state: ServerState, took_s: Sequence[float]) -> ServerState:
    """Return the state after a round whose answers took so long."""
    waiting = began(patience, state)
    for client, seconds in enumerate(took_s):
        waiting.ask(client, 0.0)
        waiting.answered(client, seconds)
    return later(state, waiting, max(took_s))


def test_the_limit_is_a_multiple_of_the_median_answer() -> None:
    patience = Patience(10.0)
    waiting = began(patience, after(patience, START, [100.0, 90.0, 110.0]))
    assert waiting.limit_s == 1000.0
    waiting.ask(7, 5.0)
    waiting.ask(8, 6.0)
    assert waiting.next_s() == 1005.0
    assert waiting.spent(1004.9) == []
    assert waiting.spent(1005.0) == [7]
    assert waiting.spent(1006.0) == [7, 8]


@given(st.lists(st.floats(0, 1e6), max_size=40), st.integers(1, 12))
def test_the_median_is_that_of_the_newest_answers(took_s: list[float], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("layers.logic.round.patience.ANSWERS", most)
        times = AnswerTimes(took_s)
    newest = took_s[-most:]
    assert times.newest().tolist() == newest
    assert times.median == (statistics.median(newest) if newest else None)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["ask", "answer", "lose", "pause"]))))
def test_no_client_has_spent_its_limit_before_the_next_moment_and_one_has_after_it(
    steps: list[tuple[int, str]],
) -> None:
    waiting = began(Patience(1.0), after(Patience(1.0), START, [300.0, 300.0]))
    waiting.begin(0.0, [9, 8], 1)
    asked = {8, 9}
    for now_s, (client, what) in enumerate(steps, start=1):
        if what == "ask":
            waiting.ask(client, now_s)
            asked.add(client)
        elif client in asked:
            {"answer": waiting.answered, "lose": waiting.lost}.get(
                what, lambda client, now_s: waiting.pause(client)
            )(client, now_s)
        next_s = waiting.next_s()
        if next_s is None:
            assert waiting.spent(1e9) == []
        else:
            assert waiting.spent(next_s - 0.001) == []
            assert waiting.spent(next_s + 0.001) != []


def test_an_offence_halves_the_limit_of_a_client_until_an_update_takes_it_back() -> None:
    patience = Patience(10.0)
    waiting = began(patience, after(patience, START, [100.0, 90.0, 110.0]))
    waiting.ask(7, 0.0)
    assert waiting.lost(7, 1000.0) == 0.0
    for client in (7, 8):
        waiting.ask(client, 1000.0)
    assert waiting.next_s() == 1500.0
    assert waiting.spent(1500.0) == [7]
    assert (waiting.limit_of(7), waiting.limit_of(8)) == (500.0, 1000.0)
    waiting.answered(7, 1100.0)
    waiting.ask(7, 1100.0)
    assert waiting.limit_of(7) == waiting.limit_of(8) == 1000.0


def test_in_round_1_the_answers_of_others_are_the_measure() -> None:
    waiting = began(Patience(10.0))
    for client in range(4):
        waiting.ask(client, 0.0)
    assert waiting.next_s() == FIRST_S
    waiting.answered(0, 30.0)
    assert waiting.next_s() == 300.0


def test_a_round_with_a_quorum_waits_less_for_the_rest_but_never_less_than_the_multiple() -> None:
    waiting = began(Patience(10.0), min_updates=2)
    for client in range(6):
        waiting.ask(client, 0.0)
    waiting.answered(0, 0.5)
    assert waiting.next_s() == LEAST_S
    waiting.answered(1, 0.5)
    assert waiting.next_s() == QUORUM_LEAST_S
    slow = began(Patience(10.0), min_updates=2)
    for client in range(4):
        slow.ask(client, 0.0)
    slow.answered(0, 20.0)
    slow.answered(1, 20.0)
    assert slow.next_s() == 200.0


@pytest.mark.parametrize(("min_updates", "answers"), [(3, 2), (1, 1)])
def test_there_is_no_quorum_without_min_updates_and_a_third_of_the_tasks(
    min_updates: int, answers: int
) -> None:
    waiting = began(Patience(10.0), min_updates=min_updates)
    for client in range(4):
        waiting.ask(client, 0.0)
    for client in range(answers):
        waiting.answered(client, 0.5)
    assert waiting.next_s() == LEAST_S


def test_quick_rounds_leave_the_least_limit_and_slow_clients_do_not_move_it() -> None:
    patience = Patience(10.0)
    state = after(patience, START, [0.1, 0.1])
    assert Waiting(patience, state).limit_s == LEAST_S
    for _ in range(ANSWERS // 2):
        slow_s = Waiting(patience, state).limit_s - 1.0
        state = after(patience, state, [100.0, 100.0, slow_s])
    assert Waiting(patience, state).limit_s == 1000.0
    assert len(state.memory[PATIENCE]["took_s"]) == ANSWERS


@pytest.mark.parametrize(
    ("patience", "limit_s"),
    [(Patience(10.0, 5.0), 5.0), (Patience(), math.inf), (None, math.inf)],
)
def test_a_limit_in_seconds_is_as_given_and_none_is_none(
    patience: Patience | None, limit_s: float
) -> None:
    waiting = began(patience)
    for client in (1, 2):
        waiting.ask(client, 0.0)
    waiting.answered(2, 1.0)
    assert waiting.limit_s == limit_s
    assert waiting.next_s() == (None if limit_s == math.inf else limit_s)


def test_the_servers_own_time_does_not_count() -> None:
    waiting = began(Patience(limit_s=5.0))
    waiting.ask(1, 0.0)
    waiting.pause(1)
    assert waiting.spent(100.0) == []
    waiting.ask(1, 100.0)
    assert waiting.spent(104.9) == []
    assert waiting.spent(105.0) == [1]


def test_a_task_in_flight_keeps_its_time_over_rounds_and_others_are_forgotten() -> None:
    patience = Patience(limit_s=5.0)
    waiting = began(patience)
    waiting.ask(1, 0.0)
    waiting.ask(2, 0.0)
    state = replace(START, memory={PATIENCE: waiting.memory([1], 4.0)})
    second = Waiting(patience, state)
    second.begin(0.0, [1, 3], None)
    assert second.spent(1.0) == [1]
    assert second.spent(5.0) == [1, 3]


def test_a_client_is_suspended_from_its_second_offence_on_and_twice_as_long_each_time() -> None:
    state, seconds = START, []
    for _ in range(12):
        waiting = began(Patience(limit_s=5.0), state)
        waiting.ask(1, 0.0)
        seconds.append(waiting.lost(1, 5.0))
        state = later(state, waiting, 5.0 + seconds[-1])  # the suspension is over
    first = SUSPENDED_TIMES * 5.0
    assert seconds[:5] == [0.0, first, 2 * first, 4 * first, 8 * first]
    assert max(seconds) == seconds[-1] == MOST_SUSPENDED_S


def test_a_client_with_thousands_of_offences_is_suspended_for_the_longest_time() -> None:
    waiting = began(Patience(limit_s=5.0))
    for _ in range(3000):
        suspended_s = waiting.offend(1, 5.0, 0.0)
    assert suspended_s == MOST_SUSPENDED_S


def test_a_suspension_lasts_over_rounds_and_counts_their_time_alone() -> None:
    patience = Patience(limit_s=5.0)
    waiting = began(patience)
    waiting.ask(1, 0.0)
    waiting.lost(1, 5.0)
    waiting.ask(1, 5.0)
    assert waiting.lost(1, 10.0) == 40.0
    assert (waiting.suspended(49.9), waiting.suspended(50.0)) == ({1}, set())
    state = later(START, waiting, 20.0)
    second = Waiting(patience, state)
    assert (second.suspended(29.9), second.suspended(30.0)) == ({1}, set())
    second.begin(10.0, (), 1)  # the moment after 10 s of questions
    assert (second.suspended(19.9), second.suspended(20.0)) == ({1}, set())


def test_each_update_takes_one_offence_back() -> None:
    waiting = began(Patience(limit_s=5.0))
    for _ in range(2):
        waiting.ask(1, 0.0)
        waiting.lost(1, 5.0)
    for _ in range(2):
        waiting.ask(1, 0.0)
        waiting.answered(1, 1.0)
    waiting.ask(1, 0.0)
    assert waiting.lost(1, 5.0) == 0.0
    assert waiting.lost(1, 5.0) == 0.0  # it had no task any more: the round has not waited


def test_without_patience_nobody_is_suspended_and_nothing_is_remembered() -> None:
    waiting = began(None, replace(START, memory={PATIENCE: {"suspended_s": {1: 60.0}}}))
    for _ in range(3):
        waiting.ask(2, 0.0)
        waiting.lost(2, 5.0)
    assert waiting.suspended(0.0) == set()
    assert waiting.memory((), 5.0) == {}


def test_a_round_with_a_deadline_gives_up_nobody_before_it() -> None:
    waiting = Waiting(Patience(10.0), START, 120.0)
    waiting.begin(0.0, (), 1)
    for client in range(2):
        waiting.ask(client, 0.0)
    waiting.answered(0, 0.5)
    assert waiting.next_s() == 120.0 + QUORUM_LEAST_S
