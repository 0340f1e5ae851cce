"""A client that is silent for too long is given up, by the times of events alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import (
    Answer,
    ClientLost,
    Logic,
    Offer,
    Question,
    Selector,
    ServerState,
    TimerFired,
    Update,
)
from layers.logic.core.state import EXCLUDED
from layers.logic.round.cohort import available
from layers.logic.round.exchange import (
    Answered,
    Ask,
    Cancel,
    Command,
    Costs,
    Event,
    Joined,
    Left,
    SetTimer,
)
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
    silence,
)
from layers.logic.round.port import Port
from layers.logic.round.round import RoundMachine
from tests.logic.memory_carrier import a_logic, a_state, alone

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
            {"answer": waiting.answered, "lose": waiting.offend}.get(
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
    assert waiting.offend(7, 1000.0) == 0.0
    for client in (7, 8):
        waiting.ask(client, 1000.0)
    assert waiting.next_s() == 1500.0
    assert waiting.spent(1500.0) == [7]
    assert (waiting.limit_of(7), waiting.limit_of(8)) == (500.0, 1000.0)
    waiting.answered(7, 1100.0)
    waiting.ask(7, 1100.0)
    assert waiting.limit_of(7) == waiting.limit_of(8) == 1000.0


@pytest.mark.parametrize(
    ("clients", "min_updates", "took_s", "next_s"),
    [
        (4, 1, [], FIRST_S),
        (4, 1, [30.0], 300.0),
        # A quorum is min_updates and a third of the tasks.
        (6, 2, [0.5], LEAST_S),
        (6, 2, [0.5, 0.5], QUORUM_LEAST_S),
        (4, 2, [20.0, 20.0], 200.0),
        (4, 3, [0.5, 0.5], LEAST_S),
        (4, 1, [0.5], LEAST_S),
    ],
)
def test_in_round_1_the_answers_of_others_are_the_measure_and_a_quorum_waits_less(
    clients: int, min_updates: int, took_s: list[float], next_s: float
) -> None:
    waiting = began(Patience(10.0), min_updates=min_updates)
    for client in range(clients):
        waiting.ask(client, 0.0)
    for client, seconds in enumerate(took_s):
        waiting.answered(client, seconds)
    assert waiting.next_s() == next_s


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
    waiting.ask(1, 2.0)
    waiting.ask(2, 0.0)
    assert waiting.memory([1], 6.0) == {"waited_s": {1: 4.0}}
    state = replace(START, memory={PATIENCE: waiting.memory([1], 6.0)})
    second = Waiting(patience, state)
    second.begin(0.0, [1, 3], None)
    assert second.next_s() == 1.0
    assert second.spent(0.9) == []
    assert second.spent(1.0) == second.spent(4.9) == [1]
    assert second.spent(5.0) == [1, 3]


def test_a_client_that_is_asked_again_begins_its_turn_anew() -> None:
    waiting = began(Patience(limit_s=5.0))
    for now_s, client in enumerate((1, 2, 1)):
        waiting.ask(client, now_s)
    assert waiting.next_s() == 6.0
    assert (waiting.spent(6.0), waiting.spent(7.0)) == ([2], [2, 1])


@pytest.mark.parametrize("min_updates", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("excluded", [(), (1,), (0, 1), (0, 1, 3)])
@pytest.mark.parametrize("suspended", [(), (2,), (2, 3), (0, 2, 3)])
def test_a_suspension_ends_early_if_too_few_clients_are_left_and_an_exclusion_never(
    suspended: Sequence[int], excluded: Sequence[int], min_updates: int
) -> None:
    samples = {client: 5 + client for client in range(4)}
    waiting = {"suspended_s": dict.fromkeys(suspended, 60.0)}
    memory = {PATIENCE: waiting, EXCLUDED: dict.fromkeys(excluded, "why")}
    state = replace(START, memory={key: kept for key, kept in memory.items() if kept})
    port = Port(samples, Waiting(Patience(10.0), state), None)
    logic = a_logic(alone(0), min_updates=min_updates)
    included = set(samples) - set(excluded)
    asked = included - set(suspended)
    if len(asked) < max(min_updates, 1):
        asked = included
    assert dict(available(state, port, logic)) == {one: 5 + one for one in sorted(asked)}
    port.now_s = 60.0
    assert set(available(state, port, logic)) == included


@pytest.mark.parametrize("what", ["", "traceback", "rejected", "ordered"])
def test_only_a_client_of_which_nothing_came_and_that_nobody_stopped_is_silent(what: str) -> None:
    lost = ClientLost(1, 0, "why", **({what: True} if what else {}))
    assert lost.is_silence is (what == "")


def test_a_client_is_suspended_from_its_second_offence_on_and_twice_as_long_each_time() -> None:
    state, seconds = START, []
    for _ in range(1100):  # 2**1099 is no float any more
        waiting = began(Patience(limit_s=5.0), state)
        waiting.ask(1, 0.0)
        seconds.append(waiting.offend(1, 5.0))
        state = later(state, waiting, 5.0 + seconds[-1])  # the suspension is over
    first = SUSPENDED_TIMES * 5.0
    assert seconds[:5] == [0.0, first, 2 * first, 4 * first, 8 * first]
    assert max(seconds) == seconds[-1] == MOST_SUSPENDED_S


def test_a_suspension_lasts_over_rounds_and_counts_their_time_alone() -> None:
    patience = Patience(limit_s=5.0)
    waiting = began(patience)
    waiting.ask(1, 0.0)
    waiting.offend(1, 5.0)
    waiting.ask(1, 5.0)
    assert waiting.offend(1, 10.0) == 40.0
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
        waiting.offend(1, 5.0)
    for _ in range(2):
        waiting.ask(1, 0.0)
        waiting.answered(1, 1.0)
    waiting.ask(1, 0.0)
    assert waiting.offend(1, 5.0) == 0.0
    assert waiting.offend(1, 5.0) == 0.0  # it had no task any more: the round has not waited


def test_a_client_that_fails_three_times_in_a_row_is_suspended_until_it_sends_an_update() -> None:
    waiting = began(Patience(limit_s=5.0))
    failure = ClientLost(1, 1, "its message was rejected", rejected=True)
    assert [waiting.lost(failure, 0.0) for _ in range(4)] == [0.0, 0.0, 8.0, 16.0]
    state = later(START, waiting, 1.0)
    assert state.memory[PATIENCE]["failures"] == {1: 4}
    again = began(Patience(limit_s=5.0), state)
    for client in (1, 2):
        again.ask(client, 0.0)
        again.answered(client, 1.0)
        assert again.lost(replace(failure, client=client), 2.0) == 0.0


def test_without_patience_nobody_is_suspended_and_nothing_is_remembered() -> None:
    waiting = began(None, replace(START, memory={PATIENCE: {"suspended_s": {1: 60.0}}}))
    for _ in range(3):
        waiting.ask(2, 0.0)
        waiting.offend(2, 5.0)
    assert waiting.offend(2, 5.0) == 0.0
    assert waiting.suspended(0.0) == set()
    assert waiting.memory((), 5.0) == {}


def test_a_round_with_a_deadline_gives_up_nobody_before_it() -> None:
    waiting = Waiting(Patience(10.0), START, 120.0)
    waiting.begin(0.0, (), 1)
    for client in range(2):
        waiting.ask(client, 0.0)
    waiting.answered(0, 0.5)
    assert waiting.next_s() == 120.0 + QUORUM_LEAST_S


ASKED = Question("labels", classes=3, round=1)


def answer_of(client: int, **changed: Any) -> Answered:
    return Answered(Answer(client, **{"question": "labels", "values": {}, "round": 1, **changed}))


def asking(
    events: Sequence[tuple[Event, float]], deadline_s: float | None = None
) -> tuple[list[list[Command]], list[int], Waiting]:
    """Ask three clients at 2 s; return the commands after each event, the clients that answered in
    time, and the events that the round then waits for."""
    waiting = began(Patience(10.0))
    port = Port({0: 5, 1: 6, 2: 7}, waiting, deadline_s)
    port.now_s = 2.0
    steps = port.ask(ASKED, [2, 0, 1])
    commands = [next(steps)]
    answered: list[int] = []
    for event, at_s in events:
        try:
            commands.append(steps.send((event, at_s)))
        except StopIteration as end:
            answered = [one.client for one in end.value]
    commands.append(next(port.step()))
    return commands, answered, waiting


def test_a_question_waits_as_long_as_its_answers_suggest_and_gives_up_silent_clients() -> None:
    first = [Ask(ASKED, (0, 1, 2)), SetTimer("patience", 2.0 + FIRST_S)]
    commands, answered, waiting = asking(
        [
            (answer_of(0), 22.0),
            (Joined(9, 3), 23.0),
            (ClientLost(1, 1, "its message was rejected", rejected=True), 24.0),
            (TimerFired("patience"), 202.0),
        ]
    )
    give_up = Cancel(2, silence(200.0, 0.0), None)
    assert commands == [first, [SetTimer("patience", 202.0)], [], [], [give_up]]
    assert answered == [0]
    assert waiting.memory((), 202.0)["offences"] == {2: 1}


def test_a_question_in_a_round_with_a_deadline_ends_with_it_and_blames_nobody() -> None:
    first = [
        SetTimer("deadline", 22.0),
        Ask(ASKED, (0, 1, 2)),
        SetTimer("patience", 2.0 + 20.0 + FIRST_S),
    ]
    commands, answered, waiting = asking(
        [(answer_of(0), 3.0), (TimerFired("deadline"), 22.0)], deadline_s=20.0
    )
    last: list[Command] = [Cancel(1, "", 20.0), Cancel(2, "", 20.0), SetTimer("patience", None)]
    assert commands == [first, [SetTimer("patience", 2.0 + 20.0 + LEAST_S)], last]
    assert answered == [0]
    assert "offences" not in waiting.memory((), 22.0)


def test_a_question_ends_with_the_last_answer_whatever_it_is() -> None:
    commands, answered, waiting = asking(
        [
            (answer_of(0, question="loss"), 3.0),
            (ClientLost(1, 2, "cable cut"), 4.0),
            (answer_of(1), 5.0),
        ],
        deadline_s=20.0,
    )
    assert commands[-1] == [SetTimer("deadline", None), SetTimer("patience", None)]
    assert answered == [1]
    assert waiting.memory((), 5.0)["offences"] == {2: 1}


def test_a_client_that_is_silent_again_is_suspended_by_how_long_its_question_waited() -> None:
    waiting = began(Patience(10.0))
    port = Port({2: 7}, waiting, None)
    for began_s, lost_s in ((2.0, 4.0), (5.0, 9.0)):
        port.now_s = began_s
        steps = port.ask(ASKED, [2])
        next(steps)
        with pytest.raises(StopIteration):
            steps.send((ClientLost(1, 2, "cable cut"), lost_s))
    ends_s = 9.0 + SUSPENDED_TIMES * 4.0
    assert waiting.suspended(np.nextafter(ends_s, 0.0)) == {2}
    assert waiting.suspended(ends_s) == set()


def test_who_joins_or_leaves_changes_what_the_round_knows_and_not_what_it_was_given() -> None:
    given = {0: 5, 1: 6}
    port = Port(given, began(None), None)
    known = []
    for event in (Joined(7, 3), Left(0), Left(0), Joined(1, 9)):
        steps = port.step()
        next(steps)
        with pytest.raises(StopIteration):
            steps.send((event, 1.0))
        known.append(dict(port.samples))
    assert known == [{0: 5, 1: 6, 7: 3}, *[{1: 6, 7: 3}] * 2, {1: 9, 7: 3}]
    assert given == {0: 5, 1: 6}


@dataclass(frozen=True)
class Deciding(Selector):
    """Three clients offer; when the first has, it is granted, and `declined` is declined."""

    declined: int | None = None

    def run(self, round):
        for client in round.clients:
            round.train(client, offer=True)
        offer = yield from round.next()
        if self.declined is not None:
            round.decline(self.declined)
            round.grant(offer)
        while round.offers_due:
            yield from round.next()


def given_up(logic: Logic, events: Sequence[tuple[Event, float]]) -> tuple[set[int], object]:
    """Return the clients that a round with a limit of 5 s gives up, and the offences after it."""
    machine = RoundMachine(a_state(logic), logic, patience=Patience(limit_s=5.0))
    commands = list(machine.start({0: 10, 1: 20, 2: 30}))
    for event, at_s in (*events, (Costs(9.0), 9.0)):
        commands += machine.handle(event, at_s)
    state, _ = machine.result()
    gone = {one.client for one in commands if isinstance(one, Cancel) and one.give_up}
    return gone, state.memory[PATIENCE].get("offences")


def update_of(client: int) -> Update:
    return Update(1, client, 10, 1, np.ones(3, np.float32), np.ones(1, np.float32), {"loss": 1.0})


def test_no_client_is_given_up_while_it_waits_for_a_verdict_or_after_it_was_declined() -> None:
    offer, fired = Offer(1, 0, 10, 1.0), (TimerFired("patience"), 5.0)
    undecided = a_logic(Deciding(), min_updates=0)
    assert given_up(undecided, [(offer, 1.0), fired]) == ({1, 2}, {1: 1, 2: 1})
    decided = a_logic(Deciding(declined=1), min_updates=0)
    events = [(offer, 1.0), (update_of(0), 4.0), fired]
    assert given_up(decided, events) == ({2}, {2: 1})


def test_a_client_that_is_lost_commits_an_offence_and_one_that_reports_an_error_does_not() -> None:
    logic = a_logic(alone(0, 1, 2))
    lost = [ClientLost(1, 1, "cable cut"), ClientLost(1, 2, "it failed", traceback="a traceback")]
    events = [(update_of(0), 1.0), *((one, 2.0) for one in lost)]
    assert given_up(logic, events) == (set(), {1: 1})
