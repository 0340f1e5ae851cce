"""Evaluation of the global model: on all test samples, and on each client's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fedmx.log import Log
from layers.compute.engines.evaluation import ACCURACY, LOSS, Evaluator
from layers.compute.errors import one_line
from layers.compute.scores import Scores
from layers.logic import ServerState

log = Log("fedmx.server")

Rows = npt.NDArray[np.integer]

Measure: TypeAlias = "Callable[[ServerState, Scores], Evaluation]"
"""Measures more of the state after a round and of its model's scores; it gives no `values`."""


GLOBAL, PERSONAL = "global", "personal"


def client_record(
    client: int, samples: int, model: str, values: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return what is recorded of one client: its values but for tables, such as a matrix."""
    numbers = {key: value for key, value in values.items() if not isinstance(value, list)}
    return {"client": client, "samples": samples, "model": model, **numbers}


@dataclass(frozen=True)
class Evaluation:
    """The result of one pass over the test samples.

    Attributes:
        values: the loss, the accuracy of classes, and the value of each metric, by key.
        clients: what `evaluations.jsonl` records of each client: its number, its samples, whether
            the model is `global` or `personal`, and the values of the model on them.
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

    def with_more(self, further: Sequence[Evaluation]) -> Evaluation:
        """Return this evaluation with what others measured."""
        clients = [one for each in (self, *further) for one in each.clients]
        measured = {key: value for each in (self, *further) for key, value in each.measured.items()}
        return replace(self, clients=tuple(clients), measured=measured)

    def with_initial(self, values: Mapping[str, Any]) -> Evaluation:
        """Return this evaluation with that of the initial model."""
        return replace(self, measured={**self.measured, "initial": dict(values)})

    def with_test(self, values: Mapping[str, Any]) -> Evaluation:
        """Return this evaluation with that of the last model on the test split."""
        return replace(self, measured={**self.measured, "test": dict(values)})

    def over_clients(self) -> tuple[float | None, float | None]:
        """Return mean and population variance over the clients of the accuracy, equally weighted.

        They are None without clients, and where targets are not classes.
        """
        of_global = (one for one in self.clients if one["model"] == GLOBAL)
        known = [one[ACCURACY] for one in of_global if one.get(ACCURACY) is not None]
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
        client_record(client, len(rows), GLOBAL, evaluator.values(scores.of(rows), y[rows]))
        for client, rows in enumerate(clients or ())
        if len(rows)
    )
    return Evaluation(evaluator.values(scores, y), of_clients)


def of_clients(
    evaluator: Evaluator, sums: Mapping[int, Mapping[str, Any]], *, untrusted: bool
) -> Evaluation:
    """Return the evaluation that follows from the sums that clients sent.

    Args:
        evaluator: what is measured.
        sums: what each client sent; empty: it has no samples for it.
        untrusted: whether a client may have made a metric fail; its sums are then left out, and the
            log says so.
    """
    known, records = [], []
    for client, one in sorted(sums.items()):
        if not one:
            continue
        try:
            if not evaluator.accepts(one):
                raise ValueError("they are not the sums of these metrics")
            values = evaluator.total([one])
        except Exception as error:
            if not untrusted:
                raise
            log.warning(
                "results_rejected",
                "client {client}: its results are left out: {reason}",
                client=client,
                reason=one_line(error),
            )
            continue
        known.append(one)
        records.append(client_record(client, int(one[LOSS][1]), GLOBAL, values))
    return Evaluation(evaluator.total(known), tuple(records))
