"""The curves of a report: accuracy and loss against rounds, bytes and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fedmx.report.figures.html import Html
from fedmx.report.figures.svg import (
    COLOURS,
    INK,
    RUN,
    STEPS,
    Unit,
    clock_units,
    fitting_unit,
    html_of,
    new_figure,
    style_axes,
)
from fedmx.report.records.quantities import MIB
from fedmx.report.records.summary import Point, RunSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHES = ("-", "--", ":", "-.")
_MARKERS_UP_TO = 40
_LOG_FROM_RATIO = 50


class Measure(NamedTuple):
    """A quantity on the vertical axis.

    Attributes:
        name: in captions.
        label: on the axis, with the unit.
        value: of a round; None where it was not measured.
        faint: a second quantity, drawn as a thinner line.
        band: how far a shaded band extends above and below the line.
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


def draw(
    runs: Sequence[RunSummary], measure: Measure, axis: Axis, target: float | None = None
) -> Html | None:
    """Return a figure with a line for each run, or None if no run has a value to draw."""
    largest = max((x for run in runs for p in run.points if (x := axis.value(p))), default=0.0)
    unit, scale = fitting_unit(axis.units, largest)
    with new_figure(5.0, 3.0) as figure:
        axes = figure.add_subplot()
        heights = [
            height
            for index, run in enumerate(runs)
            for height in _lines(axes, run, index, measure, axis, scale)
        ]
        if not heights:
            return None
        if target is not None and measure.share:
            axes.axhline(100 * target, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        _style(axes, unit, measure, heights)
        return html_of(figure, f"{measure.name} against {axis.name}")


def _lines(
    axes: Axes, run: RunSummary, index: int, measure: Measure, axis: Axis, scale: float
) -> list[float]:
    """Draw the lines of one run, and return the heights of their points."""
    drawn: list[float] = []
    for value, faint in ((measure.faint, True), (measure.value, False)):
        if value is None:
            continue
        pairs = [
            (x / scale, y)
            for p in run.points
            if (x := axis.value(p)) is not None and (y := value(p)) is not None
        ]
        if not pairs:
            continue
        xs, ys = zip(*pairs, strict=True)
        axes.plot(
            xs,
            ys,
            color=RUN[index % COLOURS],
            linestyle=_DASHES[index // COLOURS % len(_DASHES)],
            linewidth=0.9 if faint else 1.6,
            alpha=0.5 if faint else 1.0,
            marker="o" if len(pairs) <= _MARKERS_UP_TO and not faint else None,
            markersize=2.8,
            solid_joinstyle="round",
        )
        drawn += ys
    if measure.band is not None:
        _shade(axes, run, index, measure, axis, scale)
    return drawn


def _shade(
    axes: Axes, run: RunSummary, index: int, measure: Measure, axis: Axis, scale: float
) -> None:
    """Shade the band around the line of one run."""
    assert measure.band is not None
    points = [
        (x / scale, middle, reach)
        for p in run.points
        if (x := axis.value(p)) is not None
        and (middle := measure.value(p)) is not None
        and (reach := measure.band(p)) is not None
    ]
    if points:
        axes.fill_between(
            [x for x, _, _ in points],
            [max(middle - reach, 0.0) for _, middle, reach in points],
            [min(middle + reach, 100.0) for _, middle, reach in points],
            color=RUN[index % COLOURS],
            alpha=0.15,
            linewidth=0,
        )


def _style(axes: Axes, unit: str, measure: Measure, heights: Sequence[float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    style_axes(axes, unit, measure.label)
    axes.set_xlim(left=0)  # from 0, so that the cost of the first round is visible
    whole = unit == "round"
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=STEPS, integer=whole, min_n_ticks=1))
    if measure.share:
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 0.0), min(high, 100.0) if low < 100 else high)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=STEPS))
    elif min(heights) > 0 and max(heights) / min(heights) >= _LOG_FROM_RATIO:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda height, _: f"{height:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=STEPS))
    axes.ticklabel_format(axis="x", scilimits=(-3, 7), useOffset=False)
