"""A survey: a typed question to clients, once or before a round; never for their data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from layers.logic.core.engine import ArrayData, Data, Engine
from layers.logic.core.hook import PHASES, Phase
from layers.logic.core.messages import EMPTY, OPTIONAL, Slot, Training
from layers.logic.core.statistics import histogram, moments
from layers.logic.errors import LogicError
from layers.logic.numeric.distances import DISTANCES, uniform
from layers.logic.numeric.vectors import sketch
from layers.logic.seeds import derive, generator

HOOKS: Mapping[str, Phase] = {f"hooks {phase}": phase for phase in PHASES}
"""The questions that the server sides of hooks ask the client sides, each with its phase."""


EVALUATE = "evaluate"
"""The question for sums of a client's results on samples of its own (`ClientEvaluation`)."""


@dataclass(frozen=True, eq=False)
class Question:
    """Down: a question to a client.

    Attributes:
        name: a key of `QUESTIONS` or `HOOKS`, or `EVALUATE`.
        classes: number of labels, for a question about labels.
        learning_rate: learning rate, for a question about a step.
        samples: number of samples for the answer; 0: all. Of statistics, the fewest samples.
        values: number of values in a sketch that replaces the answer, or the most numbers of an
            answer to `EVALUATE`, or of each array of statistics; 0: no sketch.
        round: round of the question, from 1.
        seed: seed of the random draws for the answer, the same for all clients.
        training: how the client would train in the round.
        model_bytes: size of the model without any encoding.
        weights: float32 (d,), for a question that needs the model; for statistics, the ranges of
            the features, one after the other; otherwise empty.
        buffers: float32 (b,), for a question that needs the model; otherwise empty.
        slots: the questions of the server sides, by hook; empty in other questions.
        number: its number among the questions of hooks in one phase, from 1.

    The server fills in all but `name`, `classes`, `learning_rate`, `samples` and `values`.

    Raises:
        LogicError: there is no such question.
    """

    name: str
    classes: int = 0
    learning_rate: float = 0.0
    samples: int = 0
    values: int = 0
    round: int = 0
    seed: int = 0
    training: Training = field(default_factory=Training)
    model_bytes: int = 0
    weights: np.ndarray = field(default_factory=lambda: EMPTY)
    buffers: np.ndarray = field(default_factory=lambda: EMPTY)
    slots: dict[str, dict[str, bool | int | float | str | bytes | np.ndarray | None]] = field(
        default_factory=dict
    )
    number: int = field(default=1, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        if self.name not in {*QUESTIONS, *HOOKS, EVALUATE}:
            raise LogicError(f"no survey is called {self.name!r}; there are {', '.join(QUESTIONS)}")

    @property
    def step(self) -> tuple[int, int]:
        """Its place among the client's steps in a round (see `RoundMemory`)."""
        return 2 * PHASES.index(HOOKS[self.name]), self.number


@dataclass(frozen=True, eq=False)
class Answer:
    """Up: a client's answer to a question.

    Attributes:
        client: number of the client.
        question: name of the question.
        values: the answer.
        round: round of the question, by which late answers are recognised.
        slots: the answers of the client sides, by hook.
        number: the number of the question that it answers.
    """

    client: int
    question: str
    values: dict[str, bool | int | float | str | bytes | np.ndarray | None]
    round: int = 0
    slots: dict[str, dict[str, bool | int | float | str | bytes | np.ndarray | None]] = field(
        default_factory=dict
    )
    number: int = field(default=1, metadata=OPTIONAL)


def _labels(client: int, question: Question, engine: Engine, data: Data) -> Slot:
    """Return the histogram of the client's labels, int64 (classes,)."""
    return {"histogram": _histogram(question, data)}


def _histogram(question: Question, data: Data) -> np.ndarray:
    if data.y.max(initial=-1) >= question.classes:
        raise LogicError(f"a label of {int(data.y.max())} where there are {question.classes}")
    return np.bincount(data.y, minlength=question.classes).astype(np.int64)


def _distance(client: int, question: Question, engine: Engine, data: Data) -> Slot:
    """Return the distance of the client's labels from uniform, by the question's measure.

    It is computed from the histogram and reveals less than it.
    """
    away = DISTANCES[question.name](_histogram(question, data), uniform(question.classes))
    return {"distance": float(away)}


def _step(client: int, question: Question, engine: Engine, data: Data) -> Slot:
    """Return the weights after one step on all of the client's samples, float32 (d,).

    Or return a sketch of the step alone, float32 (values,), which reveals less.
    """
    engine.load(question.weights, question.buffers)
    training = Training(steps=1, batch_size=0, learning_rate=question.learning_rate)
    engine.train(data, training, derive(question.seed, "step", question.round, client))
    if question.values:
        return {"sketch": sketch(engine.weights - question.weights, question.values, question.seed)}
    return {"weights": engine.weights.copy()}


def _times(client: int, question: Question, engine: Engine, data: Data) -> Slot:
    """Return the seconds of training, from the measured time of one step, and 0 for the upload.

    A client that has trained before, or whose device is simulated, has better estimates.
    """
    training = question.training
    steps = training.steps_over(len(data))
    one = replace(training, steps=1, momentum=0.0)
    seed = derive(question.seed, "times", question.round, client)
    engine.train(data, one, seed)  # the first step of a process takes longer than all others
    began = time.perf_counter()
    engine.train(data, one, seed)
    return {"train_s": steps * (time.perf_counter() - began), "upload_s": 0.0}


def _loss(client: int, question: Question, engine: Engine, data: Data) -> Slot:
    """Return the mean loss of the weights, on all samples or on random ones."""
    if 0 < question.samples < len(data):
        rng = generator(question.seed, "loss", question.round, client)
        rows = np.sort(rng.choice(len(data), question.samples, replace=False))
        data = ArrayData(data.x[rows], data.y[rows])
    engine.load(question.weights, question.buffers)
    return {"loss": float(engine.evaluate(data).loss)}


def _statistics(client: int, question: Question, engine: Engine, data: Data) -> Slot:
    """Return the `moments` of the samples, or their histogram in the ranges of the question.

    A client with fewer samples than the question names says nothing.
    """
    if len(data) < question.samples:
        return {}
    if question.weights.size:
        return histogram(data, question.weights.reshape(2, -1).astype(np.float64))
    return moments(data, question.classes)


QUESTIONS: Mapping[str, Callable[[int, Question, Engine, Data], Slot]] = {
    "emd": _distance,
    "l1": _distance,
    "labels": _labels,
    "loss": _loss,
    "statistics": _statistics,
    "step": _step,
    "times": _times,
}
"""All questions that a client answers."""


def is_answer_to(question: Question, answer: Answer) -> bool:
    """Return whether an answer has no other names than the question's, and no more values.

    The selector judges the values. This check removes values that no selector reads.
    """
    if question.name in HOOKS:
        return not answer.values
    if question.name == EVALUATE:
        arrays = [one for one in answer.values.values() if isinstance(one, np.ndarray)]
        all_arrays = len(arrays) == len(answer.values) <= question.values
        return not answer.slots and all_arrays and sum(a.size for a in arrays) <= question.values
    most = {
        **{distance: {"distance": 1} for distance in DISTANCES},
        "labels": {"histogram": question.classes},
        "loss": {"loss": 1},
        "statistics": dict.fromkeys(
            ("number", "mean", "squares", "missing", "labels", "histogram"), question.values
        ),
        "step": {"weights": question.weights.size, "sketch": question.values},
        "times": {"train_s": 1, "upload_s": 1},
    }[question.name]
    if answer.slots or not answer.values.keys() <= most.keys():
        return False
    return all(_is_of_size(value, most[name]) for name, value in answer.values.items())


def _is_of_size(value: object, most: int) -> bool:
    if isinstance(value, np.ndarray):
        return value.size <= most
    return most > 0 and isinstance(value, (bool, int, float))


ABOUT_MODEL = frozenset({"loss", "step"})
"""The questions that need the model."""


def answer_survey(client: int, question: Question, engine: Engine, data: Data) -> Answer:
    """Return a client's answer to a question about its data or its speed."""
    values = QUESTIONS[question.name](client, question, engine, data)
    return Answer(client, question.name, values, question.round)
