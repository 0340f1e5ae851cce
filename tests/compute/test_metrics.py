"""The metrics: those of scikit-learn, in batches and over clients."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as reference

from layers.compute.data.targets import Targets
from layers.compute.engines.architectures import Architecture, Dense
from layers.compute.engines.evaluation import Evaluator
from layers.compute.engines.numpy.engine import NumpyEngine
from layers.compute.errors import ComputeError
from layers.compute.losses import USUAL
from layers.compute.metrics import METRICS, Metric
from layers.compute.scores import Scores

CLASSES = Targets("classes", 5)
LABELS = Targets("multi-label", 4)
REAL = Targets("real", 3)
TOKENS = Targets("tokens", 6, 7)

Expected = Callable[[np.ndarray, np.ndarray], Any]


def f1(average: str, cut: Callable[[np.ndarray], np.ndarray]) -> Expected:
    return lambda p, y: reference.f1_score(y, cut(p), average=average, zero_division=0)


def top(p: np.ndarray) -> np.ndarray:
    return p.argmax(-1)


def half(p: np.ndarray) -> np.ndarray:
    return p > 0.5


def calibration(p: np.ndarray, y: np.ndarray) -> float:
    confidence, right = p.max(1), top(p) == y
    total = 0.0
    for low in range(15):
        inside = (confidence > low / 15) & (confidence <= (low + 1) / 15)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return total


def recalls(p: np.ndarray, y: np.ndarray) -> Any:
    return reference.recall_score(y, top(p), labels=range(5), average=None, zero_division=np.nan)


def mean_auc(p: np.ndarray, y: np.ndarray) -> float | None:
    own = np.eye(p.shape[1])[y] if y.ndim == 1 else y
    known = [k for k in range(p.shape[1]) if 0 < own[:, k].sum() < len(own)]
    values = [reference.roc_auc_score(own[:, k], p[:, k]) for k in known]
    return float(np.mean(values)) if values else None


def perplexity(p: np.ndarray, y: np.ndarray) -> float:
    flat = p.reshape(-1, p.shape[-1])
    return float(np.exp(reference.log_loss(y.reshape(-1), flat, labels=range(p.shape[-1]))))


CASES: dict[str, tuple[str, dict[str, Any], Targets, Expected]] = {
    "accuracy": ("accuracy", {}, CLASSES, lambda p, y: reference.accuracy_score(y, top(p))),
    "accuracy of tokens": ("accuracy", {}, TOKENS, lambda p, y: (top(p) == y).mean()),
    "top-k": (
        "top-k-accuracy",
        {"k": 2},
        CLASSES,
        lambda p, y: reference.top_k_accuracy_score(y, p, k=2, labels=range(5)),
    ),
    "top-k of tokens": (
        "top-k-accuracy",
        {"k": 3},
        TOKENS,
        lambda p, y: reference.top_k_accuracy_score(
            y.reshape(-1), p.reshape(-1, 6), k=3, labels=range(6)
        ),
    ),
    "balanced": (
        "balanced-accuracy",
        {},
        CLASSES,
        lambda p, y: reference.balanced_accuracy_score(y, top(p)),
    ),
    "per class": ("per-class-accuracy", {}, CLASSES, recalls),
    "macro": ("macro-f1", {}, CLASSES, f1("macro", top)),
    "micro": ("micro-f1", {}, CLASSES, f1("micro", top)),
    "macro of labels": ("macro-f1", {}, LABELS, f1("macro", half)),
    "micro of labels": ("micro-f1", {}, LABELS, f1("micro", half)),
    "auc": ("auc", {}, CLASSES, mean_auc),
    "auc of labels": ("auc", {}, LABELS, mean_auc),
    "confusion": (
        "confusion-matrix",
        {},
        CLASSES,
        lambda p, y: reference.confusion_matrix(y, top(p), labels=range(5)),
    ),
    "perplexity": ("perplexity", {}, TOKENS, perplexity),
    "perplexity of classes": ("perplexity", {}, CLASSES, perplexity),
    "exact match of labels": (
        "exact-match",
        {},
        LABELS,
        lambda p, y: reference.accuracy_score(y, half(p)),
    ),
    "exact match of tokens": (
        "exact-match",
        {},
        TOKENS,
        lambda p, y: (top(p) == y).all(1).mean(),
    ),
    "calibration": ("calibration-error", {}, CLASSES, calibration),
    "mse": ("mse", {}, REAL, lambda p, y: reference.mean_squared_error(y, p)),
    "rmse": ("rmse", {}, REAL, lambda p, y: np.sqrt(reference.mean_squared_error(y, p))),
    "mae": ("mae", {}, REAL, lambda p, y: reference.mean_absolute_error(y, p)),
    "r2": (
        "r2",
        {},
        REAL,
        lambda p, y: reference.r2_score(y, p) if len(y) > 1 else None,
    ),
}


def drawn(targets: Targets, number: int, top_class: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits or predictions, and targets; classes from `top_class` on have no sample."""
    rng = np.random.default_rng(number)
    if targets.kind == "real":
        y = rng.normal(100, 5, (number, targets.size)).astype("f")
        return (y + rng.normal(size=y.shape)).astype("f"), y
    if targets.kind == "multi-label":
        shape = number, targets.size
        return rng.normal(size=shape).astype("f"), rng.integers(0, 2, shape)
    y = rng.integers(0, top_class, (number, *targets.shape))
    return rng.normal(size=(*y.shape, targets.size)).astype("f"), y


def evaluator(case: str) -> Evaluator:
    name, settings, targets, _ = CASES[case]
    return Evaluator((METRICS[name](**settings),), USUAL[targets.kind](), targets)


def scores(of: Evaluator, outputs: np.ndarray, y: np.ndarray, batch: int) -> Scores:
    right = of.own_loss.predict(outputs) == y if of.targets.classes else np.zeros(0, bool)
    return Scores(right, of.own_loss.loss(outputs, y), batch, outputs)


def same(found: Any, wanted: Any) -> None:
    """Check values, or lists of them; None is NaN."""
    numbers = [np.array(one, np.float64) for one in (found, wanted)]
    np.testing.assert_allclose(*numbers, rtol=1e-6)


def test_every_metric_has_a_case() -> None:
    assert {name for name, *_ in CASES.values()} == {*METRICS}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("number", "top_class"), [(100, 5), (101, 3), (1, 1)])
def test_a_metric_is_that_of_scikit_learn_in_any_batches(
    case: str, number: int, top_class: int
) -> None:
    *_, targets, expected = CASES[case]
    outputs, y = drawn(targets, number, top_class)
    of = evaluator(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = expected(of.own_loss.scores(outputs), y)
    key = of.metrics[0].key
    for batch in (1, 37, 500):
        found = of.values(scores(of, outputs, y, batch), y)[key]
        same(found, wanted)


@pytest.mark.parametrize("case", CASES)
def test_the_sums_of_clients_give_the_value_of_all_their_samples(case: str) -> None:
    targets = CASES[case][2]
    outputs, y = drawn(targets, 120, 5)
    of, parts = evaluator(case), np.split(np.arange(120), [50, 51, 90])
    sent = [of.sums(scores(of, outputs[rows], y[rows], 7), y[rows]) for rows in parts]
    assert {key: one.size for key, one in sent[0].items()} == of.sizes()
    whole = of.values(scores(of, outputs, y, 500), y)
    total = of.total(sent)
    assert total.keys() == whole.keys()
    if of.metrics[0].SUMS:
        for key, value in whole.items():
            same(total[key], value)
    else:  # the mean of the clients' values
        values = [of.values(scores(of, outputs[r], y[r], 7), y[r])["auc"] for r in parts]
        known = [(one, len(r)) for one, r in zip(values, parts, strict=True) if one is not None]
        mean = sum(one * n for one, n in known) / sum(n for _, n in known)
        assert total["auc"] == pytest.approx(mean, rel=1e-9)


def test_a_metric_is_refused_where_it_does_not_fit() -> None:
    for name, kind in METRICS.items():
        for targets in (CLASSES, LABELS, REAL, TOKENS):
            if targets.kind not in kind.TARGETS:
                with pytest.raises(ComputeError, match=f"metric {name} "):
                    Evaluator((kind(),), USUAL[targets.kind](), targets)
    twice = METRICS["mse"](), METRICS["mse"]()
    with pytest.raises(ComputeError, match="mse is there twice"):
        Evaluator(twice, USUAL["real"](), REAL)
    with pytest.raises(ComputeError, match="100 classes at most"):
        Evaluator((METRICS["confusion-matrix"](),), USUAL["classes"](), Targets("classes", 101))


class Recall(Metric):
    """Share of the samples of class 1 that are predicted."""

    TARGETS = ("classes",)

    def init(self, targets: Targets) -> np.ndarray:
        return np.zeros(2)

    def add(self, state: np.ndarray, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        own = targets == 1
        return state + np.array([(outputs.argmax(1)[own] == 1).sum(), own.sum()])

    def finish(self, state: np.ndarray) -> float:
        return float(state[0] / state[1])


def test_a_metric_of_a_user_measures_an_engine() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 6)).astype("f"), rng.integers(0, 3, 64)

    class Both:
        def __init__(self) -> None:
            self.x, self.y = x, y

    engine = NumpyEngine(lambda: Architecture((Dense(3),)), (6,), 3)
    of = Evaluator.of([Recall()], engine.own_loss, engine.targets)
    found = of.values(engine.scores(Both(), 10, outputs=True), y)
    predicted = engine.outputs(Both()).logits.argmax(1)
    assert found["recall"] == pytest.approx(reference.recall_score(y == 1, predicted == 1))
    assert found["accuracy"] == (predicted == y).mean()
