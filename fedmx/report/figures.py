"""Accuracy and loss against rounds, bytes and seconds, as SVG that takes its page's colours."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fedmx.report.html import Html
from fedmx.report.quantities import MIB
from fedmx.report.summary import Point, RunSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = 8  # style.css has as many --run-N
_DASHES = ("-", "--", ":", "-.")
# Colours that stand for the page's variables, so that one figure serves light, dark and print.
_INK, _GRID = "#010203", "#010204"
_RUN = [f"#0102{240 + index:02x}" for index in range(COLOURS)]
_MARKERS_UP_TO = 40
_STEPS = (1, 2, 2.5, 5, 10)
_LOG_FROM_RATIO = 50


class Measure(NamedTuple):
    """Something on the upright axis; ``faint`` is drawn thinly beside it.

    ``band`` is how far a shade reaches above and below; a ``share`` is drawn from 0 to 100 %.
    """

    name: str
    label: str
    value: Callable[[Point], float | None]
    faint: Callable[[Point], float | None] | None = None
    band: Callable[[Point], float | None] | None = None
    share: bool = False


class Axis(NamedTuple):
    """Something on the level axis, in its smallest unit, and the units that it may be given in."""

    name: str
    value: Callable[[Point], float]
    units: Sequence[tuple[str, float]]  # the largest of which the axis has at least 3, or the first


def _hundred(share: float | None) -> float | None:
    return None if share is None else 100 * share


MEASURES = (
    Measure("Accuracy", "accuracy, %", lambda p: _hundred(p.accuracy), share=True),
    Measure("Loss", "loss", lambda p: p.loss, lambda p: p.train_loss),
)
BY_CLIENT = Measure(
    "Accuracy by client",
    "accuracy, mean over clients, %",
    lambda p: _hundred(p.client_accuracy),
    band=lambda p: _hundred(p.client_deviation),
    share=True,
)
AXES = (
    Axis("rounds", lambda p: p.round, (("round", 1),)),
    Axis(
        "bytes",
        lambda p: p.bytes,
        (("up and down, KiB", 1024), ("up and down, MiB", MIB), ("up and down, GiB", 1024 * MIB)),
    ),
    Axis("time", lambda p: p.seconds, (("time, s", 1), ("time, min", 60), ("time, h", 3600))),
)


def draw(
    runs: Sequence[RunSummary], measure: Measure, axis: Axis, target: float | None = None
) -> Html | None:
    """One figure with a line for each run, or None when no run has anything to draw."""
    # Not at the top: a command that draws nothing should not wait for matplotlib.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "fedmx", "font.size": 9}):
        figure = Figure(figsize=(5.0, 3.0), layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.add_subplot()
        unit, scale = _unit(runs, axis)
        heights = [
            height
            for index, run in enumerate(runs)
            for height in _lines(axes, run, index, measure, axis, scale)
        ]
        if not heights:
            return None
        if target is not None and measure.share:
            axes.axhline(100 * target, color=_INK, linewidth=0.8, linestyle=(0, (4, 3)))
        _style(axes, unit, measure, heights)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return _page_svg(buffer.getvalue(), f"{measure.name} against {axis.name}")


def _lines(
    axes: Axes, run: RunSummary, index: int, measure: Measure, axis: Axis, scale: float
) -> list[float]:
    """Draw the lines of one run; return the heights of what was drawn."""
    drawn: list[float] = []
    for value, faint in ((measure.faint, True), (measure.value, False)):
        if value is None:
            continue
        pairs = [(axis.value(p) / scale, y) for p in run.points if (y := value(p)) is not None]
        if not pairs:
            continue
        xs, ys = zip(*pairs, strict=True)
        axes.plot(
            xs,
            ys,
            color=_RUN[index % COLOURS],
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
        (axis.value(p) / scale, middle, reach)
        for p in run.points
        if (middle := measure.value(p)) is not None and (reach := measure.band(p)) is not None
    ]
    if points:
        axes.fill_between(
            [x for x, _, _ in points],
            [max(middle - reach, 0.0) for _, middle, reach in points],
            [min(middle + reach, 100.0) for _, middle, reach in points],
            color=_RUN[index % COLOURS],
            alpha=0.15,
            linewidth=0,
        )


def _style(axes: Axes, unit: str, measure: Measure, heights: Sequence[float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axes.patch.set_visible(False)
    axes.set_xlabel(unit, color=_INK)
    axes.set_ylabel(measure.label, color=_INK)
    axes.tick_params(colors=_INK, length=3)
    axes.grid(color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_INK)
    axes.set_xlim(left=0)  # a curve that begins at its first round hides what that round cost
    whole = unit == "round"
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=_STEPS, integer=whole, min_n_ticks=1))
    if measure.share:
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 0.0), min(high, 100.0) if low < 100 else high)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=_STEPS))
    elif min(heights) > 0 and max(heights) / min(heights) >= _LOG_FROM_RATIO:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda height, _: f"{height:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=_STEPS))
    axes.ticklabel_format(axis="x", scilimits=(-3, 7), useOffset=False)


def _unit(runs: Sequence[RunSummary], axis: Axis) -> tuple[str, float]:
    furthest = max((axis.value(p) for run in runs for p in run.points), default=0.0)
    fitting = [unit for unit in axis.units if furthest >= 3 * unit[1]]
    return fitting[-1] if fitting else axis.units[0]


def _page_svg(svg: str, title: str) -> Html:
    """Matplotlib's file as a part of a page: no prologue, no metadata, no colours of its own."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
    svg = re.sub(r"font: ([0-9.]+px)[^;\"]*", r"font-size: \1; font-family: inherit", svg)
    names = {_INK: "ink", _GRID: "grid"} | {c: f"run-{i}" for i, c in enumerate(_RUN)}
    for colour, name in names.items():
        svg = svg.replace(colour, f"var(--{name})")
    return Html(svg)
