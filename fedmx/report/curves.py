"""Curves of metrics and the loss against rounds, bytes and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fedmx.components.text import unknown
from fedmx.errors import FedmxError
from fedmx.quantities import Quantity
from fedmx.report.formats import MIB, duration, finite, mebibytes, number
from fedmx.report.groups import Group
from fedmx.report.html import Html
from fedmx.report.summary import Curve, Point, RunSummary, deviation, points_of
from fedmx.report.svg import (
    COLOURS,
    PAGE,
    STEPS,
    LineEnd,
    Look,
    Spot,
    Unit,
    clock_units,
    curve_id,
    fitting_unit,
    html_of,
    label_lines,
    line_style,
    marker,
    new_figure,
    style_axes,
)
from layers.compute.engines.evaluation import ACCURACY

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Targets = tuple[float | None, float | None]
"""Two targets: of the metric on all test samples, and of the accuracy in the mean over clients."""


class Measure(NamedTuple):
    """A quantity on the vertical axis.

    Attributes:
        key: for programs.
        name: in captions.
        label: on the axis, with the unit.
        value: of a round; None where it was not measured.
        faint: a second quantity, drawn as a thinner line.
        band: how far a shaded band extends above and below the line of a single run.
        share: whether it is in percent, and its axis limited to 0 to 100 %.
        linear: whether its axis is never logarithmic, as of a value that rises to a limit.
        target: which of the targets is one of it; None: neither.
    """

    key: str
    name: str
    label: str
    value: Callable[[Point], float | None]
    faint: Callable[[Point], float | None] | None = None
    band: Callable[[Point], float | None] | None = None
    share: bool = False
    linear: bool = False
    target: int | None = None

    def level(self, targets: Targets) -> float | None:
        """Return the target on the vertical axis; None: there is none."""
        level = None if self.target is None else targets[self.target]
        return _percent(level) if self.share else level

    def text(self, value: float) -> str:
        """Return a value with its unit."""
        return f"{value:.2f} %" if self.share else number(value)


class Axis(NamedTuple):
    """A quantity on the horizontal axis.

    Attributes:
        name: in captions.
        value: of a round, in the smallest unit; a round without a value is not drawn.
        units: the possible units, from the smallest to the largest.
        text: returns a value with its unit; None: the number of a round.
    """

    name: str
    value: Callable[[Point], float | None]
    units: Sequence[Unit]
    text: Callable[[float], str] | None = None


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


LOSS = Measure("loss", "Loss", "loss", lambda p: p.loss, lambda p: p.train_loss)
BY_CLIENT = Measure(
    "accuracy by client",
    "Accuracy by client",
    "accuracy, mean over clients, %",
    lambda p: _percent(p.client_accuracy_mean),
    band=lambda p: _percent(deviation(p.client_accuracy_variance)),
    share=True,
    target=1,
)
PERSONAL = Measure(
    "personal accuracy",
    "Personal accuracy",
    "personal accuracy, mean over clients, %",
    lambda p: _percent(p.measured.get("personal_accuracy_mean")),
    band=lambda p: _percent(deviation(p.measured.get("personal_accuracy_variance"))),
    share=True,
)
PRIVACY = Measure("privacy spent", "Privacy spent", "epsilon", lambda p: p.measured.get("epsilon"))


def measures_of(runs: Sequence[Curve]) -> list[Measure]:
    """Return what is drawn: first the metric that stands for the models, and the loss."""
    metrics = {one.key: one for run in runs for one in run.metrics if one.unit != "text"}
    first = runs[0].metric.key
    found = {key: _of(one, 0 if key == first else None) for key, one in metrics.items()}
    personal = PERSONAL._replace(target=0 if first == ACCURACY else None)
    drawn = [found.pop(first), LOSS, *found.values(), BY_CLIENT, personal, PRIVACY]
    return list({one.key: one for one in drawn}.values())


def _of(metric: Quantity, target: int | None) -> Measure:
    """Return the curve of a metric."""
    if metric.key == LOSS.key:
        return LOSS._replace(target=target)
    share = metric.unit == "share"
    return Measure(
        metric.key,
        metric.label,
        f"{metric.words}, %" if share else metric.words,
        lambda p: _percent(p.value(metric)) if share else p.value(metric),
        share=share,
        linear=metric.better != "lower",
        target=target,
    )


AXES = (
    Axis("rounds", lambda p: p.round, (("round", 1),)),
    Axis(
        "bytes",
        lambda p: p.bytes,
        (("up and down, KiB", 1024), ("up and down, MiB", MIB), ("up and down, GiB", 1024 * MIB)),
        mebibytes,
    ),
    Axis("machine time", lambda p: p.time_s, clock_units("machine time"), duration),
    Axis("virtual time", lambda p: p.virtual_s, clock_units("virtual time"), duration),
    Axis(
        "local steps",
        lambda p: p.local_steps or None,
        (("local steps", 1), ("local steps, thousands", 1e3), ("local steps, millions", 1e6)),
        lambda steps: f"{steps:,.0f} local steps",
    ),
)


def named(runs: Sequence[Curve], measure: str | None, against: str) -> tuple[Measure, Axis]:
    """Return a measure of some runs and an axis by their names; None: the first measure.

    Raises:
        FedmxError: a name is unknown.
    """
    measures = {one.key: one for one in measures_of(runs)}
    measure = next(iter(measures)) if measure is None else measure
    axes = {one.name: one for one in AXES}
    for what, name, known in (("measure", measure, measures), ("axis", against, axes)):
        if name not in known:
            raise FedmxError(f"plot: {unknown(what, name, known)}")
    return measures[measure], axes[against]


Value = Callable[[Point], float | None]
Line = list[tuple[float, float]]
"""Pairs of x and y."""


@dataclass(frozen=True)
class Band:
    """The curve of a group of runs.

    Attributes:
        mean: the mean over the runs, in the rounds that all of them have.
        low: the least y at each x of `mean`.
        high: the largest y at each x of `mean`.
        tails: the points of single runs after the last common round.
        singles: all points of each run.
        rounds: the number of each round of `mean`.
    """

    mean: Line
    low: Sequence[float]
    high: Sequence[float]
    tails: Sequence[Line]
    singles: Sequence[Line] = ()
    rounds: Sequence[int] = ()


def band_of(runs: Sequence[RunSummary], x: Value, y: Value) -> Band:
    """Return the curve of runs; runs without any value of y are left out.

    Both x and y are means over the runs at each round.
    """
    drawn = [
        {
            p.round: (across, up)
            for p in run.drawn
            if (across := x(p)) is not None and (up := y(p)) is not None
        }
        for run in runs
    ]
    lines = [line for line in drawn if line]
    common = sorted(set.intersection(*map(set, lines))) if lines else []
    singles = [list(line.values()) for line in lines]
    if not common:
        return Band([], [], [], singles, singles)
    columns = [tuple(zip(*(line[number] for line in lines), strict=True)) for number in common]
    tails = [[pair for number, pair in line.items() if number >= common[-1]] for line in lines]
    return Band(
        [(sum(xs) / len(xs), sum(ys) / len(ys)) for xs, ys in columns],
        [min(ys) for _, ys in columns],
        [max(ys) for _, ys in columns],
        [tail for tail in tails if len(tail) > 1],
        singles,
        common,
    )


_MARKERS_UP_TO = 40
_MARKED = 8  # the approximate number of markers on a longer line
_LOG_FROM_RATIO = 50
FEW_SEEDS = 5  # are drawn as single lines; a band of so few would look like more than it is
_MOST_SPOTS = 60  # of a line
FAINT = 1  # the index of the faint line as a curve; a figure with it has a single run
# An axis has a least span, because the noise of a flat line would look like a result.
_CHANCE_REACH = 0.35  # how far below the lines chance is still drawn, a share of their span
_END = 0.98  # of the longest line, a share of the axes' width
_LEAST_POINTS = 10  # percentage points
_LEAST_SHARE = 0.2  # of the largest value


def has_values(groups: Sequence[Group], measure: Measure, axis: Axis) -> bool:
    """Return whether a run has two points, which make a line to `plot`."""
    runs = [run for group in groups for run in group.runs]
    faint = measure.faint if len(runs) == 1 else None
    return any(
        sum(
            axis.value(p) is not None
            and (measure.value(p) is not None or (faint is not None and faint(p) is not None))
            for p in run.drawn
        )
        > 1
        for run in runs
    )


def draw(
    groups: Sequence[Group],
    measure: Measure,
    axis: Axis,
    target: float | None = None,
    mark: int | None = None,
) -> Html:
    """Return a figure with a line for each group; see `plot`."""
    with new_figure(5.0, 3.0) as figure:
        axes = figure.add_subplot()
        spots = plot(axes, groups, measure, axis, target, mark)
        return html_of(figure, f"{measure.name} against {axis.name}", axes, spots)


def plot(
    axes: Axes,
    groups: Sequence[Group],
    measure: Measure,
    axis: Axis,
    target: float | None = None,
    mark: int | None = None,
    look: Look = PAGE,
    points: float = 8,
) -> list[Spot]:
    """Draw a line for each group that has values (`has_values`), and return points of the lines.

    Args:
        axes: the axes of matplotlib to draw on.
        groups: the groups of runs.
        measure: on the vertical axis.
        axis: the horizontal axis.
        target: where to draw a horizontal line; see `Measure.level`.
        mark: a round of the last run to draw as a vertical line.
        look: the colours.
        points: the font size of the lines' names.
    """
    runs = [run for group in groups for run in group.runs]
    largest = max((x for run in runs for p in run.points if (x := axis.value(p))), default=0.0)
    unit, scale = fitting_unit(axis.units, largest)
    heights: list[float] = []
    faint: list[float] = []
    ends: list[LineEnd] = []
    spots: list[Spot] = []
    for index, group in enumerate(groups):
        one = measure if len(groups) == 1 else measure._replace(faint=None)
        lines, thin, found = _lines(axes, group, index, one, axis, scale, look)
        name = group.name if len(groups) > 1 else ""
        spots += (spot._replace(text="\n".join(filter(None, (name, spot.text)))) for spot in found)
        heights += [y for line in lines for _, y in line]
        faint += [y for _, y in thin]
        if lines:
            ends.append(LineEnd(*lines[0][-1], group.name, index))
    if target is not None:
        axes.axhline(target, color=look.ink, linewidth=0.8, linestyle=(0, (4, 3)))
    if measure.key == ACCURACY and heights:
        _draw_chance(axes, runs, look, points)
    at = next((axis.value(p) for p in runs[-1].points if p.round == mark), None)
    if at is not None:
        axes.axvline(at / scale, color=look.ink, linewidth=0.8, linestyle=":")
    style_curve(axes, unit, measure, heights, faint, look)
    # A common scale of all measures; the longest line ends at the edge, where its name is.
    axes.set_xlim(0, (largest or 1.0) / scale / _END)
    if len(groups) > 1:
        label_lines(axes, ends, look, points)
    return spots


def _draw_chance(axes: Axes, runs: Sequence[RunSummary], look: Look, points: float) -> None:
    """Draw the accuracy of guessing, if all runs have the same and the axis nearly reaches it."""
    shares = {finite(run.folder.facts.get("chance")) for run in runs}
    chance = _percent(shares.pop()) if len(shares) == 1 else None
    low, high = axes.get_ylim()
    if chance is None or chance < low - _CHANCE_REACH * (high - low):
        return
    axes.axhline(chance, color=look.quiet, linewidth=0.8, linestyle=":")
    axes.annotate(
        f"chance, {chance:.3g} %",
        xy=(1.0, chance),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 2),
        textcoords="offset points",
        ha="right",
        va="bottom",
        color=look.quiet,
        fontsize=points,
    )


def _lines(
    axes: Axes, group: Group, index: int, measure: Measure, axis: Axis, scale: float, look: Look
) -> tuple[list[Line], Line, list[Spot]]:
    """Draw the lines of one group; return their points, those of the faint line, and texts."""
    colour, dash, gid = look.lines[index % COLOURS], line_style(index), curve_id(index)
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
            gid=gid,
        )
    spots = _spots(band, measure, axis, scale, index)
    few = 1 < len(group.runs) <= FEW_SEEDS
    for thin in band.singles if few else band.tails:
        axes.plot(*_columns(thin), color=colour, linestyle=dash, linewidth=0.7, alpha=0.6, gid=gid)
    xs = [x for x, _ in band.mean]
    if len(group.runs) > 1:
        if not few:
            axes.fill_between(
                xs, band.low, band.high, color=colour, alpha=0.15, linewidth=0, gid=gid
            )
        return [*lines, *band.singles], [], spots
    run = group.runs[0]
    faint: Line = []
    if measure.faint is not None:
        trained = band_of([run], lambda p: _scaled(axis.value(p), scale), measure.faint)
        faint = trained.mean
        if faint:
            axes.plot(*_columns(faint), color=colour, linewidth=0.9, alpha=0.5, gid=curve_id(FAINT))
            spots += _spots(trained, measure, axis, scale, FAINT, "training ")
    if measure.band is not None and xs:
        reach = {_scaled(axis.value(p), scale): measure.band(p) or 0.0 for p in run.drawn}
        low = [max(y - reach[x], 0.0) for x, y in band.mean]
        high = [min(y + reach[x], 100.0) for x, y in band.mean]
        axes.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0, gid=gid)
    return lines, faint, spots


def _spots(
    band: Band, measure: Measure, axis: Axis, scale: float, curve: int, prefix: str = ""
) -> list[Spot]:
    """Return points of a line with their round, place and value as text."""
    found = []
    every = max(1, -(-len(band.mean) // _MOST_SPOTS))
    for place, (x, y) in enumerate(band.mean):
        if place % every and place != len(band.mean) - 1:
            continue
        at = f"round {band.rounds[place]}"
        if axis.text is not None:
            at += f", {axis.text(x * scale)}"
        text = f"{prefix}{measure.name.lower()} {measure.text(y)}"
        low, high = measure.text(band.low[place]), measure.text(band.high[place])
        if low != high:
            text += f" (mean of {low} to {high})"
        found.append(Spot(x, y, f"{at}\n{text}", curve))
    return found


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value / scale


def _columns(line: Line) -> tuple[list[float], list[float]]:
    return [x for x, _ in line], [y for _, y in line]


def style_curve(
    axes: Axes,
    unit: str,
    measure: Measure,
    heights: Sequence[float],
    faint: Sequence[float],
    look: Look,
) -> None:
    """Style the axes; the scale is that of `heights`, and `faint` lines are on it too."""
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
    elif not measure.linear and _is_steep(heights or faint) and min(faint, default=1.0) > 0:
        axes.set_yscale("log")
        axes.set_ylabel(f"{measure.label} (logarithmic scale)")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda height, _: f"{height:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        least = _LEAST_SHARE * max(abs(height) for height in (*heights, *faint))
        axes.set_ylim(*_widened(*axes.get_ylim(), least))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=STEPS))
    axes.ticklabel_format(axis="x", scilimits=(-3, 7), useOffset=False)


def _is_steep(heights: Sequence[float]) -> bool:
    return min(heights, default=0.0) > 0 and max(heights) / min(heights) >= _LOG_FROM_RATIO


def _widened(low: float, high: float, least: float) -> tuple[float, float]:
    """Return limits around the same middle that are at least `least` apart."""
    more = max(0.0, least - (high - low)) / 2
    return low - more, high + more


def plot_records(
    records: Iterable[Mapping[str, Any]],
    metrics: Sequence[Quantity],
    measure: str | None,
    against: str,
    *,
    axes: Axes | None = None,
    label: str | None = None,
) -> Axes:
    """Draw the records of a run, and return the axes; see `Server.plot`.

    Raises:
        FedmxError: there is no such measure, or no round has it.
    """
    curve = Curve(points_of(list(records), metrics), metrics)
    height, axis = named([curve], measure, against)
    pairs = [
        (x, y)
        for point in curve.drawn
        if (x := axis.value(point)) is not None and (y := height.value(point)) is not None
    ]
    if not pairs:
        raise FedmxError(
            f"plot: no round has {height.key} against {against} yet; run the simulation first, or "
            f"give another axis ({', '.join(one.name for one in AXES)})"
        )
    if axes is None:
        # Not at the top: pyplot needs a window or a notebook, which axes of the user's do not.
        from matplotlib import pyplot

        axes = pyplot.subplots(figsize=(5.0, 3.0), layout="constrained")[1]
    fitting = fitting_unit(axis.units, pairs[-1][0])
    # Keep the unit of a curve that is already there.
    unit, scale = next((one for one in axis.units if one[0] == axes.get_xlabel()), fitting)
    axes.plot(
        [x / scale for x, _ in pairs],
        [y for _, y in pairs],
        marker="o" if len(pairs) <= _MARKERS_UP_TO else None,
        markersize=3,
        label=label,
    )
    axes.set_xlabel(unit)
    axes.set_ylabel(height.label)
    axes.set_xlim(left=0)
    if unit == "round":
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=STEPS, integer=True))
    axes.grid(visible=True, linewidth=0.6, alpha=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    if label is not None:
        axes.legend(frameon=False)
    return axes
