"""What the curves of a report show: accuracy and loss against rounds, bytes and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fedmx.report.figures.svg import Unit, clock_units
from fedmx.report.records.points import Point
from fedmx.report.records.quantities import MIB


class Measure(NamedTuple):
    """A quantity on the vertical axis.

    Attributes:
        name: in captions.
        label: on the axis, with the unit.
        value: of a round; None where it was not measured.
        faint: a second quantity, drawn as a thinner line.
        band: how far a shaded band extends above and below the line of a single run.
        share: whether the axis stays between 0 and 100 %.
    """

    name: str
    label: str
    value: Callable[[Point], float | None]
    faint: Callable[[Point], float | None] | None = None
    band: Callable[[Point], float | None] | None = None
    share: bool = False


class Axis(NamedTuple):
    """A quantity on the horizontal axis.

    Attributes:
        name: in captions.
        value: of a round, in the smallest unit; a round without a value is not drawn.
        units: that the axis can have, from the smallest to the largest.
    """

    name: str
    value: Callable[[Point], float | None]
    units: Sequence[Unit]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


MEASURES = (
    Measure("Accuracy", "accuracy, %", lambda p: _percent(p.accuracy), share=True),
    Measure("Loss", "loss", lambda p: p.loss, lambda p: p.train_loss),
)
BY_CLIENT = Measure(
    "Accuracy by client",
    "accuracy, mean over clients, %",
    lambda p: _percent(p.client_accuracy),
    band=lambda p: _percent(p.client_deviation),
    share=True,
)
AXES = (
    Axis("rounds", lambda p: p.round, (("round", 1),)),
    Axis(
        "bytes",
        lambda p: p.bytes,
        (("up and down, KiB", 1024), ("up and down, MiB", MIB), ("up and down, GiB", 1024 * MIB)),
    ),
    Axis("time", lambda p: p.time_s, clock_units("time")),
)
VIRTUAL_TIME = Axis("virtual time", lambda p: p.virtual_s, clock_units("virtual time"))
ALL_MEASURES = (*MEASURES, BY_CLIENT)
ALL_AXES = (*AXES, VIRTUAL_TIME)
