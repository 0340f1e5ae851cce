"""Metrics of classes, of several labels and of tokens.

Values come from scikit-learn, from the number of samples of each pair of target and prediction.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from layers.arithmetic import exp, log
from layers.compute.data.targets import Targets
from layers.compute.errors import ComputeError
from layers.compute.metrics.metric import Metric
from layers.settings import Count

MOST_CLASSES = 100
"""The most classes of a confusion matrix, which has their square."""

TINY = np.finfo(np.float64).tiny


class _Share(Metric):
    """A share of right answers: the state is their number, and that of all."""

    def init(self, targets: Targets) -> np.ndarray:
        return np.zeros(2)

    @abstractmethod
    def right(self, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return which answers are right, bool."""

    def add(self, state: np.ndarray, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        right = self.right(outputs, targets)
        return np.asarray(state + np.array([right.sum(), right.size]))

    def finish(self, state: np.ndarray) -> float:
        return _ratio(state[0], state[1])


@dataclass(frozen=True)
class Accuracy(_Share):
    """Share of samples whose class is predicted, or of tokens."""

    name = "accuracy"
    label = "Accuracy"
    TARGETS = ("classes", "tokens")

    def right(self, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return np.asarray(outputs.argmax(axis=-1) == targets)


@dataclass(frozen=True)
class TopKAccuracy(_Share):
    """Share of samples whose class is among the `k` most likely ones, or of tokens."""

    name = "top-k-accuracy"
    label = "Top-k accuracy"
    TARGETS = ("classes", "tokens")

    k: Count = 5

    def right(self, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        own = np.take_along_axis(outputs, targets[..., None], axis=-1)
        return np.asarray((outputs > own).sum(axis=-1) < self.k)


@dataclass(frozen=True)
class ExactMatch(_Share):
    """Share of samples all of whose labels or tokens are predicted."""

    name = "exact-match"
    label = "Exact match"
    TARGETS = ("multi-label", "tokens")

    def right(self, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        found = outputs.argmax(axis=-1) if outputs.ndim == 3 else outputs > 0.5
        return np.asarray((found == targets).all(axis=1))


class _Confusion(Metric):
    """A metric of the confusion matrix: samples by class (rows) and by prediction (columns).

    With several labels, there is a matrix for each label: (labels, 2, 2).
    """

    TARGETS: ClassVar[tuple[str, ...]] = ("classes",)

    def init(self, targets: Targets) -> np.ndarray:
        size = targets.size
        return np.zeros((size, size) if targets.kind == "classes" else (size, 2, 2))

    def add(self, state: np.ndarray, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        if state.ndim == 2:
            cells = targets * len(state) + outputs.argmax(axis=1)
        else:
            cells = 2 * targets + (outputs > 0.5) + 4 * np.arange(len(state))
        more = np.bincount(cells.reshape(-1), minlength=state.size)
        return np.asarray(state + more.reshape(state.shape))


def _of_pairs(function: Callable[..., Any], state: np.ndarray, **settings: Any) -> Any:
    """Return a function of scikit-learn of targets and predictions, of a confusion matrix."""
    targets, predictions = np.nonzero(state)
    if not len(targets):
        return float("nan")
    weights = state[targets, predictions]
    return function(targets, predictions, sample_weight=weights, **settings)


@dataclass(frozen=True)
class BalancedAccuracy(_Confusion):
    """Mean over the classes that have samples of the share of them that is predicted."""

    name = "balanced-accuracy"
    label = "Balanced accuracy"

    def finish(self, state: np.ndarray) -> float:
        from sklearn.metrics import recall_score

        known = np.flatnonzero(state.sum(axis=1))
        settings = {"average": "macro", "labels": known, "zero_division": 0}
        return float(_of_pairs(recall_score, state, **settings))


@dataclass(frozen=True)
class PerClassAccuracy(_Confusion):
    """Share of each class's samples that are predicted; NaN for a class without samples."""

    name = "per-class-accuracy"
    label = "Accuracy by class"
    unit = "table"

    def finish(self, state: np.ndarray) -> list[float]:
        return [_ratio(own, all_) for own, all_ in zip(np.diag(state), state.sum(1), strict=True)]


@dataclass(frozen=True)
class ConfusionMatrix(_Confusion):
    """Number of samples by class (rows) and by predicted class (columns)."""

    name = "confusion-matrix"
    label = "Confusion matrix"
    unit = "table"

    def check(self, targets: Targets) -> None:
        super().check(targets)
        if targets.size > MOST_CLASSES:
            raise ComputeError(
                f"metric confusion-matrix: it is for {MOST_CLASSES} classes at most, and the data "
                f"have {targets.size}"
            )

    def finish(self, state: np.ndarray) -> list[list[int]]:
        return [[int(one) for one in row] for row in state]


class _F1(_Confusion):
    TARGETS = ("classes", "multi-label")
    _average: str

    def finish(self, state: np.ndarray) -> float:
        from sklearn.metrics import f1_score

        if state.ndim == 2:
            return float(_of_pairs(f1_score, state, average=self._average, zero_division=0))
        if not state.any():
            return float("nan")
        counts = state.sum(axis=0, keepdims=True) if self._average == "micro" else state
        found = [_of_pairs(f1_score, one, pos_label=1, zero_division=0) for one in counts]
        return float(np.mean(found))


@dataclass(frozen=True)
class MacroF1(_F1):
    """Mean over the classes or labels of F1; classes neither there nor predicted are left out."""

    name = "macro-f1"
    label = "Macro F1"
    _average = "macro"


@dataclass(frozen=True)
class MicroF1(_F1):
    """F1 of all decisions together; for classes it is the accuracy."""

    name = "micro-f1"
    label = "Micro F1"
    _average = "micro"


@dataclass(frozen=True)
class Auc(Metric):
    """Area under the ROC curve: of each class against the others, or of each label; their mean.

    Classes with all samples or none are left out.
    """

    name = "auc"
    label = "AUC"
    TARGETS = ("classes", "multi-label")
    SUMS = False

    def init(self, targets: Targets) -> np.ndarray:
        return np.zeros((0, 2, targets.size))

    def add(self, state: np.ndarray, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        own = np.eye(outputs.shape[1])[targets] if targets.ndim == 1 else targets
        return np.concatenate([state, np.stack([outputs, own], axis=1)])

    def finish(self, state: np.ndarray) -> float:
        from sklearn.metrics import roc_auc_score

        scores, own = state[:, 0], state[:, 1]
        mixed = [one for one in range(own.shape[1]) if 0 < own[:, one].sum() < len(own)]
        found = [roc_auc_score(own[:, one], scores[:, one]) for one in mixed]
        return float(np.mean(found)) if found else float("nan")


@dataclass(frozen=True)
class Perplexity(Metric):
    """Exponential of the mean of -log p, p of each token or of each sample's class."""

    name = "perplexity"
    label = "Perplexity"
    unit = "number"
    better = "lower"
    TARGETS = ("tokens", "classes")

    def init(self, targets: Targets) -> np.ndarray:
        return np.zeros(2)

    def add(self, state: np.ndarray, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        own = np.take_along_axis(outputs, targets[..., None], axis=-1)
        return np.asarray(state + np.array([-log(np.maximum(own, TINY)).sum(), own.size]))

    def finish(self, state: np.ndarray) -> float:
        return float(exp(np.array(_ratio(state[0], state[1]))))


@dataclass(frozen=True)
class CalibrationError(Metric):
    """Expected calibration error: mean of |accuracy - confidence| over bins of the confidence.

    Source: Guo et al., "On Calibration of Modern Neural Networks", 2017, eq. 3.

    Attributes:
        bins: how many bins of equal width there are.
    """

    name = "calibration-error"
    label = "Calibration error"
    better = "lower"
    TARGETS = ("classes",)

    bins: Count = 15

    def init(self, targets: Targets) -> np.ndarray:
        return np.zeros((self.bins, 3))

    def add(self, state: np.ndarray, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        confidence = outputs.max(axis=1)
        own = np.clip(np.ceil(confidence * self.bins).astype(int) - 1, 0, self.bins - 1)
        right = outputs.argmax(axis=1) == targets
        columns = (np.ones(len(own)), confidence, right)
        sums = [np.bincount(own, one, minlength=self.bins) for one in columns]
        return np.asarray(state + np.stack(sums, axis=1))

    def finish(self, state: np.ndarray) -> float:
        return _ratio(np.abs(state[:, 2] - state[:, 1]).sum(), state[:, 0].sum())


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")
