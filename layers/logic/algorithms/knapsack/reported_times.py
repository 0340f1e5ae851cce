"""The times that clients reported before a round: how long they will train and upload."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layers.logic.core.parts import Parts
from layers.logic.core.plan import Population
from layers.logic.errors import LogicError

TIMES = "times"
"""The question, a key of `layers.logic.core.survey.QUESTIONS`."""


@dataclass(frozen=True, eq=False)
class ReportedTimes:
    """The clients that reported their times, in ascending order, each with its own estimate.

    Attributes:
        clients: int64 (k,).
        train_s: float64 (k,), t^UC of training.
        upload_s: float64 (k,), t^UL of the upload alone.
    """

    clients: np.ndarray
    train_s: np.ndarray
    upload_s: np.ndarray

    @classmethod
    def of(cls, population: Population) -> ReportedTimes:
        """Return the answers to the question; an answer that cannot be true counts as none."""
        reported = [
            (client, train_s, upload_s)
            for client, answer in sorted(population.answers.get(TIMES, {}).items())
            if _number(train_s := answer.get("train_s"))
            and _number(upload_s := answer.get("upload_s"))
        ]
        clients = np.array([line[0] for line in reported], np.int64)
        times = np.array([line[1:] for line in reported], np.float64).reshape(len(reported), 2)
        able = (np.isfinite(times) & (times >= 0)).all(axis=1)
        return cls(clients[able], times[able, 0], times[able, 1])

    def trained_before(self, deadline_s: float) -> list[int]:
        """Return the clients that will have trained before the deadline."""
        clients: list[int] = self.clients[self.train_s < deadline_s].tolist()
        return clients


def _number(value: object) -> bool:
    return isinstance(value, float) or type(value) is int


def check_deadline(name: str, logic: Parts) -> None:
    """Check that the round has a deadline, and that no clients are asked in reserve.

    Raises:
        LogicError: one of the two does not hold; the message calls the selector `name`.
    """
    if logic.deadline_s is None:
        raise LogicError(
            f"{name} fits clients into a round of a given length; set clock.deadline_s"
        )
    if logic.over_select != 1:
        raise LogicError(
            f"{name} takes as many clients as fit into the round, so none can be asked in "
            f"reserve; set over_select to 1, not {logic.over_select:g}"
        )


def deadline_of(population: Population) -> float:
    """Return the round's deadline in seconds; `check_deadline` has made sure that there is one.

    Raises:
        LogicError: there is none.
    """
    if population.deadline_s is None:
        raise LogicError("a population without deadline_s, which this selector needs")
    return population.deadline_s
