"""Evaluation of the global model: on all test samples, and on each client's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from layers.compute.scores import Scores
from layers.logic import ServerState

Rows = npt.NDArray[np.integer]

Measure: TypeAlias = "Callable[[ServerState, Scores], Mapping[str, Any]]"
"""Returns values for a round's record, of the state after it and of its model's scores."""


@dataclass(frozen=True)
class Evaluation:
    """The result of one pass over the test samples.

    Attributes:
        accuracy: share of samples that were classified correctly, from 0 to 1.
        loss: mean loss over the samples.
        client_accuracy_mean: mean over the clients of the accuracy on a client's own test samples,
            with equal weights; None if it was not evaluated.
        client_accuracy_variance: population variance of these accuracies (divided by their number).
        measured: further values for the round's record, by name.
    """

    accuracy: float
    loss: float
    client_accuracy_mean: float | None = None
    client_accuracy_variance: float | None = None
    measured: Mapping[str, Any] = field(default_factory=dict)


def evaluate(scores: Scores, clients: Sequence[Rows] | None = None) -> Evaluation:
    """Return the evaluation that follows from the samples' scores.

    Args:
        scores: the scores of all samples.
        clients: each client's rows of the samples; a client without any is left out.
    """
    metrics = scores.metrics()
    held = [rows for rows in clients or () if len(rows)]
    if not held:
        return Evaluation(metrics.accuracy, metrics.loss)
    accuracies = np.array([scores.right[rows].mean() for rows in held])
    return Evaluation(
        metrics.accuracy, metrics.loss, float(accuracies.mean()), float(accuracies.var())
    )
