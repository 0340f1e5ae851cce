"""What a hook asks the clients of a round, and what it adds to the round's record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from layers.logic import (
    ClientContext,
    ClientLost,
    ClientSide,
    Hook,
    LogicError,
    Question,
    Selector,
    ServerSide,
    TooFewUpdates,
    Training,
    run_round,
)
from layers.logic.aggregators.mean import Mean
from layers.logic.round.hook_order import keyed
from layers.logic.round.pipeline import answer_hooks
from tests.logic.memory_carrier import (
    InLanes,
    MemoryCarrier,
    a_logic,
    a_state,
    alone,
    of_client,
    run_rounds,
)
from tests.logic.quadratic import THREE_BOWLS


@dataclass(frozen=True)
class Masked(Hook):
    """Pairwise masks that cancel in the sum, as in secure aggregation, without any secrecy.

    Before the tasks each client tells a number; the server hands all of them to everybody. Those
    who returned then tell what the numbers of those who did not have left in the sum.
    """

    class Server(ServerSide):
        asks = frozenset({"cohort", "returned"})

        def __init__(self, hook):
            super().__init__(hook)
            self.told: dict[int, int] = {}
            self.returned: Sequence[int] = ()
            self.left = 0.0
            self.folded: list[int] = []

        def ask(self, phase, clients, context):
            if phase == "cohort":
                return {"ask": "your number"}
            assert not self.folded, "nothing is folded before the answers"
            self.returned = clients
            gone = [number for client, number in self.told.items() if client not in clients]
            return {"gone": np.array(gone, np.int64)}

        def on_answers(self, phase, answers, context):
            if phase == "cohort":
                self.told = {client: int(slot["number"]) for client, slot in answers.items()}
            else:
                self.left = sum(float(slot["left"]) for slot in answers.values())

        def send(self, task, context):
            others = [number for client, number in self.told.items() if client != task.client]
            context.slot["others"] = np.array(others, np.int64)
            return task

        def on_accepted(self, update, context):
            self.folded.append(update.client)

        def conclude(self, state, context):
            context.record(unmasked=len(self.returned), budget=0.5 * context.round)
            correction = np.float32(self.left / max(len(self.returned), 1))
            return replace(state, weights=state.weights - correction)

    class Client(ClientSide):
        def answer(self, phase, question, context: ClientContext):
            if phase == "cohort":
                return {"number": _number(context.client)}
            mine = _number(context.client)
            return {"left": float(sum(mine - int(other) for other in question["gone"]))}

        def receive(self, task, context):
            self.others = context.slot["others"]
            return task

        def send(self, update, context):
            mine = _number(context.client)
            mask = sum(mine - int(other) for other in self.others)
            return replace(update, delta=update.delta + np.float32(mask))


def _number(client: int | None) -> int:
    return 100 * (client + 1)


def _plain(clients: Sequence[int]) -> np.ndarray:
    logic = a_logic(alone(*clients), aggregator=Mean("uniform"))
    return run_round(a_state(logic), MemoryCarrier(logic, THREE_BOWLS), logic)[0].weights


@pytest.mark.parametrize("hooks", [[], [Masked()]])
def test_no_timer_is_left_after_the_last_update_or_answer(hooks) -> None:
    logic = a_logic(alone(0, 1, 2), hooks=hooks, deadline_s=4.0)
    peers = MemoryCarrier(logic, THREE_BOWLS)
    run_round(a_state(logic), peers, logic)
    assert peers.asked[-1:] == ([("hooks returned", (0, 1, 2))] if hooks else [])
    assert peers.timers == {}


class Counted(Hook):
    class Client(ClientSide):
        def answer(self, phase, question, context: ClientContext):
            return {"clients": context.clients}


def test_a_client_side_that_answers_knows_the_number_of_clients() -> None:
    logic = a_logic(alone(0, 1, 2), hooks=[Counted()], clients=7)
    (key,) = keyed(logic.hooks)
    answer = answer_hooks(1, Question("hooks cohort", slots={key: {}}), logic, {})
    assert answer.slots == {key: {"clients": 7}}


def test_a_hook_asks_the_cohort_first_and_those_who_returned_before_folding() -> None:
    logic = a_logic(alone(0, 1, 2), aggregator=Mean("uniform"), hooks=[Masked()])
    peers = MemoryCarrier(logic, THREE_BOWLS)
    peers.forge = of_client(1, lambda update: [ClientLost(1, 1, "cable cut")])
    state, report = run_round(a_state(logic), peers, logic)
    assert report.of("accepted") == (0, 2)
    assert peers.asked == [("hooks cohort", (0, 1, 2)), ("hooks returned", (0, 2))]
    np.testing.assert_allclose(state.weights, _plain((0, 2)), atol=1e-4)


@dataclass(frozen=True)
class LeavesOut(Hook):
    """Leave a client out, and write down the cohort that it saw and what it drew."""

    one: int
    why: str
    seen: list = field(default_factory=list, compare=False)

    class Server(ServerSide):
        def leave_out(self, clients, context):
            self.hook.seen.append((tuple(clients), context.shared_rng("draw").random()))
            return {self.hook.one: self.hook.why}


def test_a_client_that_a_hook_leaves_out_is_asked_nothing_and_gets_no_task() -> None:
    hooks = [LeavesOut(1, "unwell"), Masked(), LeavesOut(1, "too late")]
    logic = a_logic(alone(0, 1, 2), aggregator=Mean("uniform"), hooks=hooks)
    peers = MemoryCarrier(logic, THREE_BOWLS)
    state, report = run_round(a_state(logic), peers, logic)
    assert peers.asked == [("hooks cohort", (0, 2)), ("hooks returned", (0, 2))]
    np.testing.assert_allclose(state.weights, _plain((0, 2)), atol=1e-4)
    assert sorted(task.client for task in peers.tasks) == [0, 2]
    assert report.of("lost") == (1,)
    assert [c.reason for c in report.clients if c.client == 1] == ["unwell"], "the first hook's"
    assert hooks[0].seen == hooks[2].seen, "one cohort, and the same draws for all hooks"
    run_round(state, peers, logic)
    assert hooks[0].seen[0][1] != hooks[0].seen[1][1], "each round draws anew"


@pytest.mark.parametrize(
    "slots", [None, {}, {"0:Masked": {"x": bytes(2 << 20)}}, {"0:Masked": {}, "1:Nobody": {}}]
)
def test_a_client_that_does_not_answer_a_hooks_question_or_something_else_gets_no_task(
    slots,
) -> None:
    logic = a_logic(alone(0, 1, 2), aggregator=Mean("uniform"), hooks=[Masked()])
    peers = MemoryCarrier(logic, THREE_BOWLS, lost=(1,) if slots is None else ())
    peers.forge_answer = lambda told: [replace(told, slots=slots) if told.client == 1 else told]
    state, report = run_round(a_state(logic), peers, logic)
    assert [task.client for task in peers.tasks] == [0, 2]
    assert (report.of("accepted"), report.of("lost")) == ((0, 2), (1,))
    (lost,) = [one for one in report.clients if one.client == 1]
    assert "no answer" in lost.reason
    np.testing.assert_allclose(state.weights, _plain((0, 2)), atol=1e-4)


@dataclass(frozen=True)
class Discards(Hook):
    """Two questions to the clients that returned; then those of odd numbers do not count."""

    class Server(ServerSide):
        asks = frozenset({"returned"})

        def __init__(self, hook):
            super().__init__(hook)
            self.questions = 0

        def ask(self, phase, clients, context):
            self.questions += 1
            return {"number": self.questions}

        def on_answers(self, phase, answers, context):
            return self.questions < 2

        def discard(self, phase, clients, context):
            assert phase == "returned"
            return {one: "odd" for one in (*clients, 99) if one % 2}

        def on_accepted(self, update, context):
            assert update.client % 2 == 0


@pytest.mark.parametrize(
    ("selector", "counted", "reasons"),
    [
        (alone(0, 1, 2), (0, 2), {1: "odd"}),
        (InLanes(((0, 1), (2,))), (2,), {0: "client 1 of its lane: odd", 1: "odd"}),
    ],
)
def test_an_update_that_a_hook_discards_after_its_questions_is_not_folded(
    selector, counted, reasons
) -> None:
    logic = a_logic(selector, aggregator=Mean("uniform"), hooks=[Discards()])
    peers = MemoryCarrier(logic, THREE_BOWLS)
    state, report = run_round(a_state(logic), peers, logic)
    assert peers.asked == [("hooks returned", (0, 1, 2))] * 2
    assert report.of("accepted") == counted
    assert {one.client: one.reason for one in report.clients if one.status == "lost"} == reasons
    np.testing.assert_array_equal(state.weights, _plain(counted))
    assert set(state.last_accepted) == set(counted)
    with pytest.raises(TooFewUpdates):
        run_round(a_state(logic), peers, replace(logic, min_updates=3))


@dataclass(frozen=True)
class DiscardsLater(Hook):
    """In round 2 the updates of client 1 do not count."""

    class Server(ServerSide):
        asks = frozenset({"returned"})

        def ask(self, phase, clients, context):
            return {"number": 1}

        def discard(self, phase, clients, context):
            return {1: "odd"} if context.round == 2 else {}


@pytest.mark.parametrize("passes", [1, 2])
def test_a_client_whose_updates_are_discarded_goes_on_from_the_round_before(passes) -> None:
    selector = InLanes(passes=passes)
    logic = a_logic(selector, aggregator=Mean("uniform"), hooks=[DiscardsLater()])
    peers = MemoryCarrier(logic, THREE_BOWLS)
    state, reports = run_rounds(2, a_state(logic), peers)
    assert [report.of("accepted") for report in reports] == [(0, 1, 2), (0, 2)]
    assert state.last_accepted == {0: 2, 1: 1, 2: 2}
    state, _ = run_rounds(1, state, peers)
    first = {task.client: task for task in reversed(peers.tasks) if task.round == 3}
    assert {one: task.last_accepted_round for one, task in first.items()} == {0: 2, 1: 1, 2: 2}


def test_a_question_to_a_hook_that_a_client_does_not_have_is_refused() -> None:
    logic = a_logic(alone(0), hooks=[Masked()])
    question = Question("hooks cohort", round=1, slots={"1:Masked": {}})
    with pytest.raises(LogicError, match="the hook 1:Masked, which this client does not have"):
        answer_hooks(0, question, logic, {})


@dataclass
class Asked(MemoryCarrier):
    """Keeps each question to client 0."""

    questions: list[Question] = field(default_factory=list)

    def _answer_of(self, question, client):
        if client == 0:
            self.questions.append(question)
        return super()._answer_of(question, client)


@dataclass(frozen=True)
class Inquiring(Selector):
    """Asks for times once, and for losses in each round."""

    asks = (Question("times"),)

    def run(self, round):
        yield from round.ask(*self.asks, once=True)
        yield from round.ask(Question("loss"))
        assert round.training.learning_rate == rate_of(round.number)
        for client in round.clients:
            round.train(client)
        yield from round.until_all()


def rate_of(round: int) -> float:
    return 0.5**round


def test_every_question_tells_how_clients_train_in_its_round() -> None:
    hooks = [DiscardsLater()]
    logic = a_logic(Inquiring(), hooks=hooks, learning_rate=rate_of, training=Training(steps=1))
    peers = Asked(logic, THREE_BOWLS)
    run_rounds(2, a_state(logic), peers)
    told = [(one.name, one.round, one.training) for one in peers.questions]
    assert told == [
        (name, round, Training(steps=1, learning_rate=rate_of(round)))
        for name, round in (
            *(("times", 1), ("loss", 1), ("hooks returned", 1)),
            *(("loss", 2), ("hooks returned", 2)),
        )
    ]
    assert {task.training.learning_rate for task in peers.tasks} == {rate_of(1), rate_of(2)}
