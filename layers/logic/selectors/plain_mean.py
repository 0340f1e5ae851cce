"""The check of selectors that draw clients by their size: a mean must not count it once more."""

from __future__ import annotations

from layers.logic.core.parts import Parts
from layers.logic.errors import LogicError


def check_plain_mean(name: str, logic: Parts) -> None:
    """Check that the aggregator does not weigh by samples what was drawn by samples.

    Raises:
        LogicError: it does, so that a client with twice the samples would count four times.
    """
    if logic.aggregator.by_samples:
        rule = type(logic.aggregator).__name__
        raise LogicError(
            f"{name} draws clients by their size, and {rule} would count it twice, since it weighs "
            "by samples; set logic.aggregator to one that does not, as in "
            "{name: mean, weights: uniform}"
        )
