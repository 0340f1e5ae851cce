"""A survey is asked once, before a client's first round, and answered without the data."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from layers.logic import Answer, LogicError, Question, Selector, Training
from layers.logic.core import survey
from layers.logic.core.engine import ArrayData
from layers.logic.core.messages import Slot
from layers.logic.core.state import ServerState
from layers.logic.core.survey import answer_survey, is_answer_to
from layers.logic.numeric.vectors import sketch
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, run_rounds
from tests.logic.quadratic import Measured, QuadraticEngine, bowl

LABELS = {0: (0, 0, 1), 1: (2,), 2: (1, 1)}
CLIENTS = {
    client: bowl([1.0, client, -1.0], n=len(labels), labels=labels)
    for client, labels in LABELS.items()
}


@dataclass(frozen=True)
class Surveying(Selector):
    """Select everybody who has answered."""

    questions: tuple[Question, ...] = (Question("labels", classes=3),)

    @property
    def asks(self):
        return self.questions

    def run(self, round):
        for question in self.asks:
            yield from round.ask(question, once=True)
        for client in round.clients:
            if all(client in round.survey[question.name] for question in self.asks):
                round.train(client)
        yield from round.until_all()


def histograms(state: ServerState) -> dict[int, list[int]]:
    answers = state.memory["survey"]["labels"]
    return {client: told["histogram"].tolist() for client, told in answers.items()}


def test_every_client_is_asked_once_before_its_first_round() -> None:
    logic = a_logic(Surveying())
    peers = MemoryCarrier(logic, CLIENTS)
    state, reports = run_rounds(3, a_state(logic), peers)
    assert peers.asked == [("labels", (0, 1, 2))]
    assert histograms(state) == {0: [2, 1, 0], 1: [0, 0, 1], 2: [0, 2, 0]}
    assert reports[0].of("accepted") == (0, 1, 2)


def test_a_late_joiner_is_asked_in_its_first_round() -> None:
    logic = a_logic(Surveying())
    peers = MemoryCarrier(logic, {0: CLIENTS[0]})
    state, _ = run_rounds(2, a_state(logic), peers)
    peers.clients = CLIENTS
    _, reports = run_rounds(2, state, peers)
    assert peers.asked == [("labels", (0,)), ("labels", (1, 2))]
    assert reports[0].of("accepted") == (0, 1, 2)


def test_who_did_not_answer_is_asked_again() -> None:
    logic = a_logic(Surveying())
    peers = MemoryCarrier(logic, CLIENTS, lost=[1])
    state, reports = run_rounds(1, a_state(logic), peers)
    assert reports[0].of("accepted") == (0, 2)
    peers.lost = ()
    _, reports = run_rounds(1, state, peers)
    assert peers.asked == [("labels", (0, 1, 2)), ("labels", (1,))]
    assert reports[0].of("accepted") == (0, 1, 2)


def test_answers_that_nobody_asked_for_are_not_kept() -> None:
    def also(told):
        return [told, replace(told, client=77), replace(told, question="step")]

    logic = a_logic(Surveying())
    peers = MemoryCarrier(logic, CLIENTS, forge_answer=also)
    state, _ = run_rounds(1, a_state(logic), peers)
    assert set(histograms(state)) == {0, 1, 2}
    assert set(state.memory["survey"]) == {"labels"}


def test_a_later_answer_for_another_client_does_not_replace_its_own() -> None:
    logic = a_logic(Surveying())
    peers = MemoryCarrier(logic, {0: CLIENTS[0]})
    state, _ = run_rounds(1, a_state(logic), peers)
    peers.clients = CLIENTS
    peers.forge_answer = lambda told: [told, replace(told, client=0)]
    state, _ = run_rounds(1, state, peers)
    assert histograms(state)[0] == [2, 1, 0]


def test_a_question_about_a_step_gets_the_global_model_and_changes_nothing() -> None:
    logic = a_logic(Surveying((Question("step", learning_rate=0.5), Question("labels", classes=3))))
    start = a_state(logic, [1, 2, 3])
    peers = MemoryCarrier(logic, CLIENTS)
    state, _ = run_rounds(1, start, peers)
    assert [name for name, _ in peers.asked] == ["step", "labels"]
    for client, data in CLIENTS.items():
        told = state.memory["survey"]["step"][client]["weights"]
        np.testing.assert_allclose(told, 0.5 * start.weights + 0.5 * data.b, rtol=1e-6)
    assert start.weights.tolist() == [1, 2, 3]


def test_a_question_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(
        LogicError, match="'lables'; there are emd, l1, labels, loss, statistics, step"
    ):
        Question("lables")


VALUES = np.zeros(3, np.float32)
LABELLED, STEP = Question("labels", classes=3), Question("step", weights=VALUES, values=2)


ONE, TWO, COUNTS = VALUES[:1], VALUES[:2], np.zeros(3, np.int64)
ANSWERS: list[tuple[Question, list[Slot], list[Slot]]] = [
    (
        LABELLED,
        [{"histogram": COUNTS}, {"histogram": 3}, {}],
        [
            *({"histogram": one} for one in (np.zeros(4, np.int64), np.zeros((3, 1, 2), np.int64))),
            *({"histogram": one} for one in ("abc", b"abc", None)),
            *({"distance": 1.0}, {"histogram": COUNTS, "more": 1}),
        ],
    ),
    (Question("labels"), [], [{"histogram": 3}]),
    *(
        (Question(name), [{"distance": 0.5}, {"distance": ONE}], [{"distance": TWO}])
        for name in ("emd", "l1")
    ),
    (Question("loss"), [{"loss": ONE}], [{"loss": TWO}]),
    (
        Question("times"),
        [{"train_s": 1.0, "upload_s": ONE}],
        [{"train_s": TWO, "upload_s": 0.0}, {"train_s": 1.0, "upload_s": TWO}],
    ),
    (
        STEP,
        [{"weights": VALUES}, {"sketch": TWO}],
        [{"weights": np.zeros(4, np.float32)}, {"sketch": VALUES}],
    ),
    (Question("hooks cohort"), [{}], [{"histogram": 1}]),
]


@pytest.mark.parametrize(("question", "answers", "others"), ANSWERS)
def test_an_answer_has_the_names_of_its_question_and_no_more_values(
    question: Question, answers: list[Slot], others: list[Slot]
) -> None:
    slots: dict[str, Slot] = {"0:Stc": {"update": 1}}
    for values, is_one in (*((one, True) for one in answers), *((one, False) for one in others)):
        assert is_answer_to(question, Answer(0, question.name, values)) is is_one
        with_slots = Answer(0, question.name, values, slots=slots)
        assert is_answer_to(question, with_slots) is (is_one and question.name in survey.HOOKS)


def test_a_loss_on_some_samples_is_on_different_ones_that_vary_by_round_and_client() -> None:
    rows = np.arange(6.0)
    client = ArrayData(rows.reshape(6, 1), rows.astype(np.int64))
    seen = []

    class Reading(QuadraticEngine):
        def evaluate(self, samples):
            seen.append(samples.y.tolist())
            assert samples.x.ravel().tolist() == seen[-1]
            return Measured(float(samples.y.sum()), 0.0, len(samples))

    def loss(samples: int, round: int = 1, one: int = 0) -> float:
        question = Question("loss", samples=samples, round=round, seed=5, weights=VALUES[:1])
        engine = Reading(1)
        question = replace(question, buffers=engine.buffers)
        value = answer_survey(one, question, engine, client).values["loss"]
        assert isinstance(value, float)
        return value

    assert [loss(samples) for samples in (0, 6, 7)] == [15.0] * 3
    for samples in range(1, 6):
        assert loss(samples) == loss(samples) == sum(seen[-1])
        assert len(set(seen[-1])) == samples
    for round in range(1, 9):
        loss(3, round)
        loss(3, one=round)
    assert len({tuple(rows) for rows in seen if len(rows) == 3}) > 3


def test_a_step_is_on_all_samples_at_once() -> None:
    plans = []

    class Planned(QuadraticEngine):
        def batches(self, samples, plan, seed, **given):
            plans.append(plan)
            return super().batches(samples, plan, seed, **given)

    engine = Planned(1)
    question = Question("step", learning_rate=0.5, weights=VALUES[:1], buffers=engine.buffers)
    answer_survey(0, question, engine, bowl(0.0, n=30))
    assert plans == [Training(steps=1, batch_size=0, learning_rate=0.5)]


def test_a_label_outside_the_classes_is_refused() -> None:
    client = bowl(0.0, n=2, labels=(0, 3))
    with pytest.raises(LogicError, match="a label of 3 where there are 3"):
        answer_survey(0, Question("labels", classes=3), QuadraticEngine(1), client)


class Stopwatch:
    """A clock that goes on by a quarter of a second with each local step, and by nothing else."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def perf_counter(self) -> float:
        return self.now_s


@dataclass
class Timed(QuadraticEngine):
    """Every local step takes a quarter of a second, but the first one ten."""

    watch: Stopwatch | None = None
    taken: int = 0

    def batches(self, samples, plan, seed, **_given):
        assert plan.steps == 1, "one step is measured, not the whole training"
        assert plan.batch_size in (0, 10), "a step as large as those of the training"
        self.watch.now_s += 0.25 if self.taken else 10.0
        self.taken += 1
        return super().batches(samples, plan, seed)


def told_s(monkeypatch, samples: int, **training) -> float:
    """Return the training time that a client of so many samples tells, without a wall clock."""
    watch = Stopwatch()
    monkeypatch.setattr(survey, "time", watch)
    question = Question("times", training=Training(**training))
    told = answer_survey(0, question, Timed(1, watch=watch), bowl(0.0, n=samples)).values
    assert told["upload_s"] == 0.0
    return told["train_s"]


@pytest.mark.parametrize(
    ("samples", "training", "steps"),
    [
        (30, {}, 3),  # an epoch of batches of ten
        (31, {"epochs": 5}, 20),
        (29, {"epochs": 5}, 15),
        (30, {"batch_size": 0, "epochs": 7}, 7),  # all samples are one batch
        (30, {"steps": 11, "epochs": 5}, 11),
    ],
)
def test_the_training_time_that_is_told_is_that_of_all_steps(
    monkeypatch, samples, training, steps
) -> None:
    assert told_s(monkeypatch, samples, **training) == pytest.approx(steps * 0.25)


def test_a_sketch_is_of_the_step_alone_wherever_the_model_stands() -> None:
    client = bowl([1.0, 4.0, -1.0, 2.0])
    at, moved = np.array([3.0, -5.0, 7.0, 0.5], np.float32), {}
    for start in (np.zeros(4, np.float32), at):
        question = Question("step", learning_rate=0.5, values=2, seed=9, weights=start)
        engine = QuadraticEngine(4)
        told = answer_survey(0, replace(question, buffers=engine.buffers), engine, client).values
        step = (0.5 * (client.b - start)).astype(np.float32)
        np.testing.assert_allclose(told["sketch"], sketch(step, 2, 9), rtol=1e-6)
        moved[bool(start.any())] = told["sketch"]
    assert not np.allclose(moved[True], moved[False])


def test_a_sketch_may_be_as_long_as_its_vector_and_no_longer() -> None:
    vector = np.array([3.0, -5.0, 7.0], np.float32)
    assert sketch(vector, 3, 1).shape == (3,)
    with pytest.raises(LogicError, match="4 values of a vector of 3"):
        sketch(vector, 4, 1)
