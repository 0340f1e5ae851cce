"""Matplotlib's drawings as parts of a page: SVG that takes the page's colours."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedmx.report.figures.html import Html

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = 8  # style.css has as many --run-N
# Colours that stand for the page's variables, so that one figure serves light, dark and print.
INK, GRID, PANEL, QUIET = "#010203", "#010204", "#010205", "#010206"
RUN = [f"#0102{240 + index:02x}" for index in range(COLOURS)]
STEPS = (1, 2, 2.5, 5, 10)  # of the ticks on an axis

Unit = tuple[str, float]
"""What a unit is called on an axis, and its size in the smallest one."""


@contextmanager
def drawing(width: float, height: float) -> Iterator[Figure]:
    """A figure to draw in, in inches; make it Html before this ends."""
    # Not at the top: a command that draws nothing should not wait for matplotlib.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "fedmx", "font.size": 9}):
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.patch.set_visible(False)
        yield figure


def frame(axes: Axes, across: str, up: str) -> None:
    """Name the axes, and leave of their frame the two sides that say something."""
    axes.patch.set_visible(False)
    axes.set_xlabel(across, color=INK)
    axes.set_ylabel(up, color=INK)
    axes.tick_params(colors=INK, length=3)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)


def fitting(units: Sequence[Unit], furthest: float) -> Unit:
    """The largest unit of which an axis to `furthest` has at least 3, or the first."""
    large = [unit for unit in units if furthest >= 3 * unit[1]]
    return large[-1] if large else units[0]


def clock_units(name: str) -> tuple[Unit, ...]:
    """The units of a time that is called `name` on its axis."""
    return ((f"{name}, s", 1), (f"{name}, min", 60), (f"{name}, h", 3600))


def html_of(figure: Figure, title: str) -> Html:
    """Matplotlib's file as a part of a page: no prologue, no metadata, no colours of its own."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
    svg = re.sub(r"font: ([0-9.]+px)[^;\"]*", r"font-size: \1; font-family: inherit", svg)
    # A hundredth of a point is less than anybody sees, and half of the file.
    svg = re.sub(r'\bd="[^"]*"', lambda d: re.sub(r"(\.\d\d)\d+", r"\1", d[0]), svg)
    names = {INK: "ink", GRID: "grid", PANEL: "panel", QUIET: "quiet"}
    names |= {colour: f"run-{index}" for index, colour in enumerate(RUN)}
    for colour, name in names.items():
        svg = svg.replace(colour, f"var(--{name})")
    return Html(svg)
