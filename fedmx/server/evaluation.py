"""Evaluation of the global model: on all test samples, and on each client's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from layers.compute.evaluation import ACCURACY, LOSS, Evaluator
from layers.compute.scores import Scores
from layers.logic import ServerState

Rows = npt.NDArray[np.integer]

Measure: TypeAlias = "Callable[[ServerState, Scores], Mapping[str, Any]]"
"""Returns values for a round's record, of the state after it and of its model's scores."""


@dataclass(frozen=True)
class Evaluation:
    """The result of one pass over the test samples.

    Attributes:
        values: the loss, the accuracy of classes, and the value of each metric, by key.
        clients: what `evaluations.jsonl` records of each client: its number, its samples, and the
            values of the global model on them.
        measured: further values for the round's record, by name.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    clients: tuple[Mapping[str, Any], ...] = ()
    measured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def accuracy(self) -> float | None:
        """Share of samples that were classified correctly, from 0 to 1; None: not measured."""
        return self.values.get(ACCURACY)

    @property
    def loss(self) -> float | None:
        """Mean loss over the samples; None: not measured."""
        return self.values.get(LOSS)

    def over_clients(self) -> tuple[float | None, float | None]:
        """Return mean and population variance over the clients of the accuracy, equally weighted.

        They are None without clients, and where targets are not classes.
        """
        known = [one[ACCURACY] for one in self.clients if one.get(ACCURACY) is not None]
        return (float(np.mean(known)), float(np.var(known))) if known else (None, None)


def evaluate(
    evaluator: Evaluator,
    scores: Scores,
    y: np.ndarray,
    clients: Sequence[Rows] | None = None,
) -> Evaluation:
    """Return the evaluation that follows from the samples' scores.

    Args:
        evaluator: what is measured.
        scores: the scores of all samples.
        y: their targets.
        clients: each client's rows of the samples; a client without any is left out.
    """
    of_clients = tuple(
        {"client": client, "samples": len(rows), **evaluator.values(scores.of(rows), y[rows])}
        for client, rows in enumerate(clients or ())
        if len(rows)
    )
    return Evaluation(evaluator.values(scores, y), of_clients)
