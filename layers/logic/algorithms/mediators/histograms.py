"""What clients reported of their labels: histograms, or distances from uniform labels alone.

A client whose answer is no histogram, or no distance, counts as one that has not answered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from layers.logic.core.messages import Slot
from layers.logic.core.selector import SURVEY
from layers.logic.core.state import ServerState
from layers.logic.core.survey import Question
from layers.logic.errors import LogicError

MOST = 1 << 53  # up to here float64 counts exactly
LABELS = "labels"
"""The question for a histogram; the question for a distance has the name of the distance."""

HISTOGRAM, DISTANCE = "histogram", "distance"


@dataclass(frozen=True, eq=False)
class LabelHistograms:
    """The histograms of n clients over C labels.

    Attributes:
        clients: ascending.
        counts: float64 (n, C).
    """

    clients: tuple[int, ...]
    counts: np.ndarray

    @classmethod
    def of_state(cls, state: ServerState, question: Question) -> LabelHistograms:
        """Return what was answered to a question for `question.classes` labels."""
        answers = state.memory[SURVEY][question.name]
        clients, counts = reported_histograms(answers, question.classes)
        return cls(tuple(clients), counts)

    def kept_in(self, state: ServerState, question: Question) -> ServerState:
        """Return the state with these answers alone; who gave none of them is asked again."""
        return _with_answers(state, question, self.clients, HISTOGRAM)


@dataclass(frozen=True, eq=False)
class LabelDistances:
    """How far the labels of n clients are from uniform.

    Attributes:
        clients: ascending.
        distances: float64 (n,).
    """

    clients: tuple[int, ...]
    distances: np.ndarray

    @classmethod
    def of_state(cls, state: ServerState, question: Question) -> LabelDistances:
        """Return what was answered to a question for a distance."""
        answers: Mapping[int, Slot] = state.memory[SURVEY][question.name]
        clients = tuple(client for client in sorted(answers) if _is_distance(answers[client]))
        distances = np.array([answers[client][DISTANCE] for client in clients], np.float64)
        return cls(clients, distances)

    def kept_in(self, state: ServerState, question: Question) -> ServerState:
        """Return the state with these answers alone; who gave none of them is asked again."""
        return _with_answers(state, question, self.clients, DISTANCE)


def reported_histograms(answers: Mapping[int, Any], classes: int) -> tuple[list[int], np.ndarray]:
    """Return the clients that reported a histogram, ascending, and float64 (n, classes)."""
    clients = [client for client in sorted(answers) if _is_histogram(answers[client], classes)]
    counts = np.array([answers[client][HISTOGRAM] for client in clients], np.float64)
    return clients, counts.reshape(len(clients), classes)


def check_classes(classes: int) -> None:
    """Raise `LogicError` unless there are two classes or more."""
    if classes < 2:
        raise LogicError(f"classes must be 2 or more, not {classes}")


def _with_answers(
    state: ServerState, question: Question, clients: tuple[int, ...], key: str
) -> ServerState:
    """Return the state with the answers of these clients alone, and of each its value `key`."""
    survey = state.memory[SURVEY]
    kept = {client: {key: survey[question.name][client][key]} for client in clients}
    return replace(state, memory={**state.memory, SURVEY: {**survey, question.name: kept}})


def _is_histogram(answer: Mapping[str, Any], classes: int) -> bool:
    reported = answer.get(HISTOGRAM)
    return (
        isinstance(reported, np.ndarray)
        and reported.shape == (classes,)
        and reported.dtype.kind in "iu"
        and bool((reported >= 0).all() and (reported <= MOST).all())
        and 0 < int(reported.astype(np.float64).sum()) <= MOST
    )


def _is_distance(answer: Mapping[str, Any]) -> bool:
    reported = answer.get(DISTANCE)
    return isinstance(reported, (int, float)) and 0 <= reported < math.inf
