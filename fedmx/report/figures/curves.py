"""The curves of a report: a line for each run, or for each group its mean and its range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedmx.report.figures.bands import Line, band_of
from fedmx.report.figures.html import Html
from fedmx.report.figures.line_labels import LineEnd, label_lines
from fedmx.report.figures.look import COLOURS, Look, line_style, marker
from fedmx.report.figures.measures import Axis, Measure
from fedmx.report.figures.svg import PAGE, STEPS, fitting_unit, html_of, new_figure, style_axes
from fedmx.report.records.groups import Group

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS_UP_TO = 40
_MARKED = 8  # about as many points of a longer line have a marker
_LOG_FROM_RATIO = 50
# An axis spans at least so much, or the noise of a flat line would look like a result.
_LEAST_POINTS = 10  # of percent
_LEAST_SHARE = 0.2  # of the largest value


def draw(
    groups: Sequence[Group],
    measure: Measure,
    axis: Axis,
    target: float | None = None,
    mark: int | None = None,
) -> Html | None:
    """Return a figure with a line for each group, or None if no run has a value to draw.

    Args:
        groups: runs, or groups of them.
        measure: what is drawn.
        axis: against what.
        target: an accuracy to draw as a level line.
        mark: a round of the last run to draw as an upright line; None: none is.
    """
    with new_figure(5.0, 3.0) as figure:
        axes = figure.add_subplot()
        if not plot(axes, groups, measure, axis, target, mark):
            return None
        return html_of(figure, f"{measure.name} against {axis.name}")


def plot(
    axes: Axes,
    groups: Sequence[Group],
    measure: Measure,
    axis: Axis,
    target: float | None = None,
    mark: int | None = None,
    look: Look = PAGE,
    points: float = 8,
) -> bool:
    """Draw on axes of matplotlib what `draw` draws; False: no run has a value.

    Args:
        axes: to draw on.
        groups: see `draw`, as all that are not here.
        measure: see there.
        axis: see there.
        target: see there.
        mark: see there.
        look: the colours.
        points: the size of the font of the lines' names.
    """
    runs = [run for group in groups for run in group.runs]
    largest = max((x for run in runs for p in run.points if (x := axis.value(p))), default=0.0)
    unit, scale = fitting_unit(axis.units, largest)
    heights: list[float] = []
    ends: list[LineEnd] = []
    for index, group in enumerate(groups):
        one = measure if len(groups) == 1 else measure._replace(faint=None)
        lines = _lines(axes, group, index, one, axis, scale, look)
        heights += [y for line in lines for _, y in line]
        if lines:
            ends.append(LineEnd(*lines[0][-1], group.name, look.lines[index % COLOURS]))
    if not heights:
        return False
    if target is not None and measure.share:
        axes.axhline(100 * target, color=look.ink, linewidth=0.8, linestyle=(0, (4, 3)))
    at = next((axis.value(p) for p in runs[-1].points if p.round == mark), None)
    if at is not None:
        axes.axvline(at / scale, color=look.ink, linewidth=0.8, linestyle=":")
    _style(axes, unit, measure, heights, look)
    if len(groups) > 1 and not label_lines(axes, ends, look.ink, points):
        axes.legend([end.name for end in ends], fontsize=points, labelcolor=look.ink)
    return True


def _lines(
    axes: Axes, group: Group, index: int, measure: Measure, axis: Axis, scale: float, look: Look
) -> list[Line]:
    """Draw the lines of one group, and return their points; the main line comes first."""
    colour, dash = look.lines[index % COLOURS], line_style(index)
    band = band_of(group.runs, lambda p: _scaled(axis.value(p), scale), measure.value)
    lines = [line for line in (band.mean, *band.tails) if line]
    if band.mean:
        few = len(band.mean) <= _MARKERS_UP_TO
        every = max(1, len(band.mean) // _MARKED)
        axes.plot(
            *_columns(band.mean),
            color=colour,
            linestyle=dash,
            linewidth=1.6,
            marker=marker(index),
            markersize=3.0,
            markevery=1 if few else (index % every, every),
            solid_joinstyle="round",
        )
    for tail in band.tails if len(group.runs) > 1 else ():
        axes.plot(*_columns(tail), color=colour, linestyle=dash, linewidth=0.8, alpha=0.7)
    xs = [x for x, _ in band.mean]
    if len(group.runs) > 1:
        axes.fill_between(xs, band.low, band.high, color=colour, alpha=0.15, linewidth=0)
        return lines
    run = group.runs[0]
    if measure.faint is not None:
        faint = band_of([run], lambda p: _scaled(axis.value(p), scale), measure.faint).mean
        if faint:
            axes.plot(*_columns(faint), color=colour, linewidth=0.9, alpha=0.5)
            lines.append(faint)
    if measure.band is not None and xs:
        reach = {_scaled(axis.value(p), scale): measure.band(p) or 0.0 for p in run.points}
        low = [max(y - reach[x], 0.0) for x, y in band.mean]
        high = [min(y + reach[x], 100.0) for x, y in band.mean]
        axes.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
    return lines


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value / scale


def _columns(line: Line) -> tuple[list[float], list[float]]:
    return [x for x, _ in line], [y for _, y in line]


def _style(axes: Axes, unit: str, measure: Measure, heights: Sequence[float], look: Look) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    style_axes(axes, unit, measure.label, look)
    axes.set_xlim(left=0)  # from 0, so that the cost of the first round is visible
    whole = unit == "round"
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=STEPS, integer=whole, min_n_ticks=1))
    if measure.share:
        low, high = axes.get_ylim()
        low, high = _widened(low, high, _LEAST_POINTS)
        low, high = (low, high) if high <= 100 else (low - (high - 100), 100.0)
        axes.set_ylim(max(low, 0.0), high if low >= 0 else max(high, _LEAST_POINTS))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=STEPS))
    elif min(heights) > 0 and max(heights) / min(heights) >= _LOG_FROM_RATIO:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda height, _: f"{height:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        least = _LEAST_SHARE * max(abs(height) for height in heights)
        axes.set_ylim(*_widened(*axes.get_ylim(), least))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=STEPS))
    axes.ticklabel_format(axis="x", scilimits=(-3, 7), useOffset=False)


def _widened(low: float, high: float, least: float) -> tuple[float, float]:
    """Return limits around the same middle that are at least so far apart."""
    more = max(0.0, least - (high - low)) / 2
    return low - more, high + more
