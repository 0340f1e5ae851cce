"""A survey: a typed question to every client before its first round; never its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from layers.logic.engine import Data, Engine
from layers.logic.errors import LogicError
from layers.logic.exchange import EMPTY, Slot, Training


@dataclass(frozen=True, eq=False)
class Question:
    """Down: what a client is asked.

    Attributes:
        name: a key of `QUESTIONS`.
        classes: number of labels, for a question about labels.
        rate: learning rate, for a question about a step.
        weights: float32 (d,), for a question that needs the model; the server fills it in.
        buffers: float32 (b,), likewise.
    """

    name: str
    classes: int = 0
    rate: float = 0.0
    weights: np.ndarray = field(default_factory=lambda: EMPTY)
    buffers: np.ndarray = field(default_factory=lambda: EMPTY)

    def __post_init__(self) -> None:
        if self.name not in QUESTIONS:
            raise LogicError(f"no survey is called {self.name!r}; there are {', '.join(QUESTIONS)}")


@dataclass(frozen=True, eq=False)
class Answer:
    """Up: what a client answered."""

    client: int
    question: str
    values: dict[str, bool | int | float | str | bytes | np.ndarray | None]


def _labels(question: Question, engine: Engine, data: Data) -> Slot:
    """Return the histogram of the client's labels, int64 (classes,)."""
    if data.y.max(initial=-1) >= question.classes:
        raise LogicError(f"a label of {int(data.y.max())} where there are {question.classes}")
    return {"histogram": np.bincount(data.y, minlength=question.classes).astype(np.int64)}


def _step(question: Question, engine: Engine, data: Data) -> Slot:
    """Return the weights after one step on all of the client's samples, float32 (d,)."""
    engine.load(question.weights, question.buffers)
    engine.train(data, Training(steps=1, batch_size=0, rate=question.rate), seed=0)
    return {"weights": engine.weights.copy()}


QUESTIONS: Mapping[str, Callable[[Question, Engine, Data], Slot]] = {
    "labels": _labels,
    "step": _step,
}
"""Every question that a client answers; what is not here is not answered."""


def answer_question(client: int, question: Question, engine: Engine, data: Data) -> Answer:
    """Return a client's answer."""
    return Answer(client, question.name, QUESTIONS[question.name](question, engine, data))
