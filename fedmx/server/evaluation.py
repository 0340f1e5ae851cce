"""How good the global model is: on all test samples, and on each client's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layers.compute.scores import Scores

Rows = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Evaluation:
    """What one pass over the test samples said.

    Attributes:
        accuracy: share of right answers.
        loss: mean over the samples.
        client_accuracy_mean: mean over the clients of the accuracy on a client's own test samples,
            each client counting the same; None if it was not asked for.
        client_accuracy_variance: the variance of these accuracies, divided by their number.
    """

    accuracy: float
    loss: float
    client_accuracy_mean: float | None = None
    client_accuracy_variance: float | None = None


def evaluate(scores: Scores, clients: Sequence[Rows] | None = None) -> Evaluation:
    """Return what the scores of the samples say.

    Args:
        scores: of all samples.
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
