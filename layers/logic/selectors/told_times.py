"""What clients said before a round of how long they will take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from layers.logic.errors import LogicError
from layers.logic.plan import Population

if TYPE_CHECKING:
    from layers.logic.logic import Logic

TIMES = "times"
"""The question, a key of `layers.logic.survey.QUESTIONS`."""


@dataclass(frozen=True, eq=False)
class ToldTimes:
    """The clients that said so, in ascending order, each one's seconds as it reckons them.

    Attributes:
        clients: int64 (k,).
        train_s: float64 (k,), t^UC of training.
        upload_s: float64 (k,), t^UL of the upload alone.
    """

    clients: np.ndarray
    train_s: np.ndarray
    upload_s: np.ndarray

    @classmethod
    def of(cls, population: Population) -> ToldTimes:
        """Return the answers to the question; one that cannot be is as good as none."""
        told = []
        for client, answer in population.answers.get(TIMES, {}).items():
            train_s, upload_s = answer.get("train_s"), answer.get("upload_s")
            if _seconds(train_s) and _seconds(upload_s):
                told.append((client, train_s, upload_s))
        told.sort()
        table = np.array(told, np.float64).reshape(len(told), 3)
        return cls(table[:, 0].astype(np.int64), table[:, 1], table[:, 2])

    def trained_before(self, deadline_s: float) -> list[int]:
        """Return the clients that will have trained before the deadline."""
        clients: list[int] = self.clients[self.train_s < deadline_s].tolist()
        return clients


def _seconds(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value >= 0


def check_deadline(name: str, logic: Logic) -> None:
    """Raise `LogicError` unless the round has a deadline, and nobody is asked in reserve."""
    if logic.deadline_s is None:
        raise LogicError(
            f"{name} fits clients into a round of a given length; set deadline_s, in seconds"
        )
    if logic.over_select != 1:
        raise LogicError(
            f"{name} takes as many clients as fit into the round, so none can be asked in "
            f"reserve; set over_select to 1, not {logic.over_select:g}"
        )


def deadline_of(population: Population) -> float:
    """Return the round's deadline; that it has one was checked before anything ran."""
    if population.deadline_s is None:
        raise LogicError("a population without deadline_s, which this selector needs")
    return population.deadline_s
