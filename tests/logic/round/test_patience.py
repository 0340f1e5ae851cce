"""A client that is silent for too long is given up, by the times of events alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from layers.logic import ServerState
from layers.logic.round.patience import ANSWERS, LEAST_S, PATIENCE, Patience, Waiting

EMPTY = np.zeros(0, np.float32)
START = ServerState(0, EMPTY, EMPTY)


def after(
    patience: Patience, state: ServerState, took_s: Sequence[float], in_flight: Sequence[int] = ()
) -> ServerState:
    """Return the state after a round whose answers took so long."""
    waiting = Waiting(patience, state)
    for client, seconds in enumerate(took_s):
        waiting.ask(client, 0.0)
        waiting.answered(client, seconds)
    for client in in_flight:
        waiting.ask(client, 0.0)
    memory = waiting.memory(in_flight, max(took_s, default=0.0))
    return replace(state, memory={PATIENCE: memory})


def test_the_limit_is_a_multiple_of_the_median_answer_and_holds_from_the_second_round_on() -> None:
    patience = Patience(10.0)
    assert Waiting(patience, START).limit_s == math.inf
    waiting = Waiting(patience, after(patience, START, [100.0, 90.0, 110.0]))
    assert waiting.limit_s == 1000.0
    waiting.ask(7, 5.0)
    waiting.ask(8, 6.0)
    assert waiting.next_s() == 1005.0
    assert waiting.spent(1004.9) == []
    assert waiting.spent(1005.0) == [7]
    assert waiting.spent(1006.0) == [7, 8]


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
def test_a_limit_in_seconds_holds_from_the_first_round_on_and_none_is_none(
    patience: Patience | None, limit_s: float
) -> None:
    waiting = Waiting(patience, START)
    waiting.ask(1, 0.0)
    assert waiting.limit_s == limit_s
    assert waiting.next_s() == (None if limit_s == math.inf else limit_s)


def test_the_servers_own_time_does_not_count() -> None:
    waiting = Waiting(Patience(limit_s=5.0), START)
    waiting.ask(1, 0.0)
    waiting.pause(1)
    assert waiting.spent(100.0) == []
    waiting.ask(1, 100.0)
    assert waiting.spent(104.9) == []
    assert waiting.spent(105.0) == [1]


def test_a_task_in_flight_keeps_its_time_over_rounds_and_others_are_forgotten() -> None:
    patience = Patience(limit_s=5.0)
    waiting = Waiting(patience, START)
    waiting.ask(1, 0.0)
    waiting.ask(2, 0.0)
    state = replace(START, memory={PATIENCE: waiting.memory([1], 4.0)})
    later = Waiting(patience, state)
    later.resume([1, 3], 0.0)
    assert later.spent(1.0) == [1]
    assert later.spent(5.0) == [1, 3]
