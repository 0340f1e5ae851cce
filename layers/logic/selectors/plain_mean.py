"""The check of selectors that draw clients by their size: a mean must not count it once more."""

from __future__ import annotations

from layers.logic.aggregators.geometric_median import GeometricMedian
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.norm_clip import NormClip
from layers.logic.core.parts import Parts
from layers.logic.errors import LogicError


def check_plain_mean(name: str, logic: Parts) -> None:
    """Check that the aggregator does not weigh by samples what was drawn by samples.

    Raises:
        LogicError: it does, so that a client with twice the samples would count four times.
    """
    aggregator = logic.aggregator
    if not isinstance(aggregator, Mean | NormClip | GeometricMedian):
        return
    if aggregator.weights == "samples":
        raise LogicError(
            f"{name} draws clients by their size, and an aggregator with weights: samples would "
            "count it twice; set weights of logic.aggregator to uniform, as in "
            "{name: mean, weights: uniform}"
        )
