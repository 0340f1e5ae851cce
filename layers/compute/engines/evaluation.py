"""What an evaluation measures: the loss and the metrics, of one set of samples or over clients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from layers.compute.data.targets import Targets
from layers.compute.errors import ComputeError
from layers.compute.losses import OwnLoss
from layers.compute.metrics import METRICS, USUAL, Metric
from layers.compute.scores import Scores

Sums = Mapping[str, np.ndarray]
"""What clients send of their samples: arrays that add up, by name."""

LOSS, ACCURACY = "loss", "accuracy"

MOST_SAMPLES = 10**12
"""The most samples that a client can say it has evaluated."""

LARGEST = 1e200
"""The largest number in a client's sums, so that those of all clients are finite."""


@dataclass(frozen=True)
class Evaluator:
    """The metrics of an experiment.

    Attributes:
        metrics: the metrics; the first one stands for the model wherever one number does.
        own_loss: the model's own loss.
        targets: the targets of the samples.

    Raises:
        ComputeError: a metric is not for these targets, or there twice.
    """

    metrics: tuple[Metric, ...]
    own_loss: OwnLoss
    targets: Targets

    def __post_init__(self) -> None:
        for metric in self.metrics:
            metric.check(self.targets)
        keys = [metric.key for metric in self.metrics]
        for key in keys:
            if keys.count(key) > 1:
                raise ComputeError(f"metric {key} is there twice; name it once")
            if key == LOSS:
                raise ComputeError(f"metric {key}: an evaluation has this name already")

    @classmethod
    def of(cls, metrics: Sequence[Metric] | None, own_loss: OwnLoss, targets: Targets) -> Evaluator:
        """Return the evaluator of some metrics; None: the usual ones of the targets."""
        usual = (one() for one in USUAL[targets.kind])
        return cls(tuple(usual if metrics is None else metrics), own_loss, targets)

    @cached_property
    def _further(self) -> tuple[Metric, ...]:
        """The metrics that need the outputs: the accuracy of classes is known without."""
        known = METRICS[ACCURACY] if self.targets.classes else ()
        return tuple(one for one in self.metrics if type(one) is not known)

    @property
    def needs_outputs(self) -> bool:
        """Whether a metric needs the model's outputs (`Scores.outputs`)."""
        return bool(self._further)

    def values(self, scores: Scores, y: np.ndarray) -> dict[str, Any]:
        """Return the loss and the value of each metric by key; None: it has none.

        The accuracy of classes is there in any case.

        Args:
            scores: the scores of the samples.
            y: their targets.
        """
        found = scores.metrics()
        values: dict[str, Any] = {LOSS: found.loss}
        if self.targets.classes:
            values[ACCURACY] = found.accuracy
        return values | {
            one.key: _plain(one.finish(self._state(one, scores, y))) for one in self._further
        }

    def sums(self, scores: Scores, y: np.ndarray) -> dict[str, np.ndarray]:
        """Return what a client sends in place of its samples, float64 arrays by name."""
        number, found = float(len(y)), scores.metrics()
        sums = {LOSS: np.array([found.loss * number, number])}
        if self.targets.classes:
            sums[ACCURACY] = np.array([float(scores.right.sum()), number])
        for one in self._further:
            state = self._state(one, scores, y)
            if not one.SUMS:
                value = float(one.finish(state))
                state = np.zeros(2) if math.isnan(value) else np.array([value * number, number])
            sums[one.key] = state
        return sums

    def sizes(self) -> dict[str, int]:
        """Return how many numbers each array of `sums` has."""
        sizes = {LOSS: 2, **({ACCURACY: 2} if self.targets.classes else {})}
        return sizes | {
            one.key: one.init(self.targets).size if one.SUMS else 2 for one in self._further
        }

    def accepts(self, sums: Mapping[str, Any]) -> bool:
        """Return whether these can be the `sums` of a client: their names, sizes and numbers."""
        sizes = {key: one.size for key, one in sums.items() if isinstance(one, np.ndarray)}
        if sizes != self.sizes() or len(sizes) != len(sums):
            return False
        arrays = sums.values()
        if any(one.dtype != np.float64 or not (np.abs(one) <= LARGEST).all() for one in arrays):
            return False
        number = sums[LOSS][1]
        if not (1 <= number <= MOST_SAMPLES and number == int(number)):
            return False
        values = self.total([sums])
        shares = [ACCURACY, *(one.key for one in self.metrics if one.unit == "share")]
        return all(0 <= value <= 1 for key in shares if (value := values.get(key)) is not None)

    def total(self, clients: Iterable[Sums]) -> dict[str, Any]:
        """Return the values of all clients' samples together; see `values`.

        Args:
            clients: the `sums` of each client, added in this order.
        """
        total: dict[str, np.ndarray] = {}
        for sums in clients:
            for key, array in sums.items():
                total[key] = total[key] + array if key in total else array
        if not total:
            return {}
        values: dict[str, Any] = {LOSS: _mean(total[LOSS])}
        if self.targets.classes:
            values[ACCURACY] = _mean(total[ACCURACY])
        for one in self._further:
            state = total[one.key]
            if one.SUMS:
                shape = one.init(self.targets).shape
                values[one.key] = _plain(one.finish(state.reshape(shape)))
            else:
                values[one.key] = _mean(state)
        return values

    def _state(self, metric: Metric, scores: Scores, y: np.ndarray) -> np.ndarray:
        """Return a metric's state, from batch to batch."""
        state, step = metric.init(self.targets), scores.batch_size
        for start in range(0, len(y), step):
            outputs = self.own_loss.scores(scores.outputs[start : start + step])
            state = metric.add(state, outputs, y[start : start + step])
        return state


def _mean(sums: np.ndarray) -> float | None:
    return float(sums[0] / sums[1]) if sums[1] else None


def _plain(value: Any) -> Any:
    """Return a value of Python, with None for NaN and infinities."""
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(one) for one in value]
    if isinstance(value, int | np.integer):
        return int(value)
    return float(value) if math.isfinite(value) else None
