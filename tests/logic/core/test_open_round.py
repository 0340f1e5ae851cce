"""What an algorithm says in a round, what it waits for, and what it cannot say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from layers.logic import (
    LogicError,
    OpenRound,
    Question,
    Run,
    Selector,
    Trait,
    run_round,
)
from layers.logic.core.round import Answers
from layers.logic.errors import PartFailed
from layers.logic.seeds import generator
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state
from tests.logic.quadratic import bowls

HERE = Path(__file__).name
FIVE = dict.fromkeys(range(5), 10)


def test_the_clients_that_numpy_has_drawn_are_plain_numbers_that_a_checkpoint_can_keep() -> None:
    round, drawn = OpenRound(FIVE), np.random.default_rng(0).choice(5, 4, replace=False)
    round.train(drawn[0])
    round.train_lane(drawn[1:])
    clients = [client for lane in round.planned for client in lane.clients]
    assert [type(client) for client in clients] == [int] * 4
    assert clients == drawn.tolist()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda round: round.train(1.0), r"not 1.0, as in round.train\(0\)"),
        (lambda round: round.train([1]), r"not \[1\]"),
        (lambda round: round.train_lane(1), "list of clients, not 1"),
        (lambda round: round.train_lane([1, "2"]), "not '2'"),
        (lambda round: round.train_lane([]), r"clients \(\)"),
        (lambda round: round.train_lane([1], passes=0), "in 0 passes"),
        (lambda round: next(round.until(accepted=0)), r"until\(0\)"),
        (lambda round: next(round.until({"a": 0})), r"until\(0\)"),
    ],
)
def test_a_lane_is_of_one_client_or_more_by_number(wrong, named) -> None:
    round = OpenRound(FIVE)
    with pytest.raises(LogicError, match=named):
        wrong(round)
    assert not round.planned


def test_a_client_without_samples_is_not_among_the_clients() -> None:
    round = OpenRound({4: 1, 2: 0, 1: 7})
    assert round.clients == (1, 4)
    assert [round.has(client) for client in (1, 2, 3, 4)] == [True, False, False, True]
    assert round.all_clients == 2
    assert OpenRound({4: 1}, total=9).all_clients == 9


@pytest.mark.parametrize(
    ("factor", "needed", "asked"),
    [(1.0, 10, 10), (1.3, 10, 13), (1.31, 10, 14), (1.0001, 3, 4), (1.5, 0, 0), (2.0, 30, 40)],
)
def test_a_reserve_is_rounded_up_and_never_more_than_there_are(factor, needed, asked) -> None:
    round = OpenRound(dict.fromkeys(range(40), 1), over_select=factor)
    assert round.asked(needed) == asked
    assert round.asked(needed, among=12) == min(asked, 12)


def test_the_draws_of_a_round_follow_its_seed_and_the_number_of_its_tasks() -> None:
    round = OpenRound(FIVE, number=3, seed=7)
    assert round.rng is round.rng, "one generator until the next tasks"
    draws = [round.rng.random(), round.generator("others").random()]
    round.next_tasks(9)
    draws.append(round.rng.random())
    named = (("select", 3), ("others", 3), ("select", 9))
    assert draws == [generator(7, name, number).random() for name, number in named]


def test_a_selector_that_says_nothing_of_a_round_is_refused_before_one() -> None:
    class Nothing(Selector):
        pass

    with pytest.raises(LogicError, match=r"Nothing has neither run nor select.*\.py:\d+"):
        a_logic(Nothing())


# --- questions ------------------------------------------------------------------------------


def test_all_are_asked_or_those_that_are_named() -> None:
    round, question = OpenRound(FIVE), Question("loss")
    assert next(round.ask(question)) == Answers(question, tuple(range(5)))
    steps = round.ask(question, [3, 1])
    assert next(steps) == Answers(question, (3, 1))
    with pytest.raises(StopIteration) as end:
        steps.send({1: {"loss": 1.0}, 3: {"loss": 3.0}})
    assert end.value.value == {1: {"loss": 1.0}, 3: {"loss": 3.0}}
    assert round.survey == {}


def test_a_question_that_is_asked_once_is_for_those_that_have_not_answered() -> None:
    round, question = OpenRound(FIVE, survey={"labels": {1: {"old": 1}}}), Question("labels")
    steps = round.ask(question, once=True)
    assert next(steps) == Answers(question, (0, 2, 3, 4), once=True)
    with pytest.raises(StopIteration) as end:
        steps.send({2: {"new": 2}})
    assert end.value.value == {2: {"new": 2}}
    assert round.survey == {"labels": {1: {"old": 1}, 2: {"new": 2}}}


# --- waiting --------------------------------------------------------------------------------


def returning(round: OpenRound, wait: Run[None]) -> list[tuple[str | None, int]]:
    """Let the planned lanes return, in order; return each group that is closed, and when."""
    closed: list[tuple[str | None, int]] = []
    round.close = lambda group: closed.append((group, round.accepted))
    lanes, round.planned = round.planned, []
    round.in_flight = clients = [client for lane in lanes for client in lane.clients]
    for _ in wait:
        lane = lanes.pop(0)
        clients[:] = [client for client in clients if client not in lane.clients]
        round.returned[lane.group] += 1
    closed.append(("end", round.accepted))
    return closed


def test_a_wait_for_some_ends_with_them_or_with_the_last_that_can_return() -> None:
    for accepted, at in ((2, 2), (5, 5), (9, 5)):
        round = OpenRound(FIVE)
        for client in range(5):
            round.train(client)
        assert len(round.outstanding) == 5
        assert returning(round, round.until(accepted=accepted)) == [(None, at), ("end", at)]


def test_a_lane_of_several_clients_counts_as_one_that_returned() -> None:
    round = OpenRound(FIVE)
    round.train_lane([3, 1])
    round.train_lane([0, 2], passes=2)
    assert returning(round, round.until(accepted=1)) == [(None, 1), ("end", 1)]


def test_each_group_closes_with_its_own_number_and_one_without_a_number_with_its_last() -> None:
    round = OpenRound(dict.fromkeys(range(9), 10))
    for client, group in enumerate("abacbabcc"):
        round.train(client, group=group)
    # The third to return is the second of a; the fifth is the second of b.
    assert returning(round, round.until({"a": 2, "b": 2})) == [("a", 3), ("b", 5), ("end", 9)]


def test_a_wait_for_all_closes_nothing_and_ends_at_once_if_nobody_trains() -> None:
    round = OpenRound(FIVE)
    round.train(4)
    assert returning(round, round.until_all()) == [("end", 1)]
    for wait in (round.until_all(), OpenRound({}).until(accepted=3)):
        assert list(wait) == []


# --- what it cannot say ---------------------------------------------------------------------


@dataclass(frozen=True)
class Telling(Selector):
    """A round as a test writes it."""

    run: Callable[[OpenRound], Run[None]]


class Further(Telling):
    provides = frozenset({Trait.ASYNCHRONOUS})
    tasks_per_round = 5


def twice(round: OpenRound) -> Run[None]:
    round.train(1)
    round.train_lane([2, 1])
    yield from round.until_all()


def unknown(round: OpenRound) -> Run[None]:
    for client in (1, 8, 7):
        round.train(client)
    yield from round.until_all()


def later(round: OpenRound) -> Run[None]:
    round.train(1)
    yield from round.next()
    round.train(2)


def asking_later(round: OpenRound) -> Run[None]:
    round.train(1)
    yield from round.next()
    yield from round.ask(Question("loss"))


def undeclared(round: OpenRound) -> Run[None]:
    yield from round.ask(Question("labels", classes=10), once=True)


def passes(round: OpenRound) -> Run[None]:
    round.train_lane([1], passes=2)
    yield from round.until_all()


def without_from(round: OpenRound) -> Run[None]:
    round.train(1)
    yield round.until_all()


def still_training(round: OpenRound) -> Run[None]:
    for _ in range(2):
        for client in (0, 1):
            round.train(client)
        yield from round.next()


def offering(round: OpenRound) -> Run[None]:
    round.train(1, offer=True)
    yield from round.next()


def lasting(name: str, given_s: float) -> Callable[[OpenRound], Run[None]]:
    def run(round: OpenRound) -> Run[None]:
        setattr(round, name, given_s)
        yield from round.until_all()

    return run


@pytest.mark.parametrize(
    ("selector", "named"),
    [
        (Telling(twice), r"clients \[1\] twice"),
        (Further(still_training), r"clients \[1\] twice"),
        (Telling(unknown), r"clients \[7, 8\], which are not available .* round.clients"),
        (Telling(later), "further clients after its first wait.* Trait.ASYNCHRONOUS"),
        (Telling(asking_later), "asks clients after they have their tasks"),
        (Telling(undeclared), "asks labels once"),
        (Telling(passes), "a client 2 tasks .* answer 1; .* tasks_per_round"),
        (Further(offering), "offers in an asynchronous round"),
        (Telling(lasting("before_s", -1.0)), "before_s to -1.0"),
        (Telling(lasting("after_s", float("nan"))), "after_s to nan"),
        (Telling(without_from), "yields a generator; write yield from"),
    ],
)
def test_what_an_algorithm_cannot_do_is_told_with_its_file_and_line(selector, named) -> None:
    logic = a_logic(selector)
    with pytest.raises(PartFailed, match=rf"^round 1: \w+\.run .*{named}.*{HERE}:\d+\)$"):
        run_round(a_state(logic), MemoryCarrier(logic, bowls(3)), logic)
