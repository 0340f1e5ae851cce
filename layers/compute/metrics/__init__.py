"""The metrics that an experiment can name.

To add one, write its class with a `name` and add it to `METRICS`.
"""

from __future__ import annotations

from layers.compute.data.targets import Kind
from layers.compute.metrics.classes import (
    Accuracy,
    Auc,
    BalancedAccuracy,
    CalibrationError,
    ConfusionMatrix,
    ExactMatch,
    MacroF1,
    MicroF1,
    PerClassAccuracy,
    Perplexity,
    TopKAccuracy,
)
from layers.compute.metrics.metric import Metric as Metric
from layers.compute.metrics.real import (
    Determination,
    MeanAbsoluteError,
    MeanSquaredError,
    RootMeanSquaredError,
)

METRICS: dict[str, type[Metric]] = {
    one.name: one
    for one in (
        Accuracy,
        TopKAccuracy,
        BalancedAccuracy,
        PerClassAccuracy,
        MacroF1,
        MicroF1,
        Auc,
        ConfusionMatrix,
        Perplexity,
        ExactMatch,
        CalibrationError,
        MeanSquaredError,
        RootMeanSquaredError,
        MeanAbsoluteError,
        Determination,
    )
}
"""All metrics by name."""

USUAL: dict[Kind, tuple[type[Metric], ...]] = {
    "classes": (Accuracy,),
    "multi-label": (MacroF1, MicroF1),
    "real": (RootMeanSquaredError, Determination),
    "tokens": (Perplexity, Accuracy),
}
"""The metrics of an experiment that names none, by the kind of the targets."""
