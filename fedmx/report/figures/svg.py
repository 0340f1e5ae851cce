"""Figures of matplotlib as parts of a page: SVG in the colours of the page."""

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

COLOURS = 8  # the number of --run-N in style.css
# Placeholders for the page's variables: one figure serves light, dark and print.
INK, GRID, PANEL, QUIET = "#010203", "#010204", "#010205", "#010206"
RUN = [f"#0102{240 + index:02x}" for index in range(COLOURS)]
STEPS = (1, 2, 2.5, 5, 10)  # of the ticks on an axis

Unit = tuple[str, float]
"""The name of a unit on an axis, and its size in the smallest unit."""


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """Return a context manager with an empty figure; call `html_of` before it ends.

    Args:
        width: in inches.
        height: in inches.
    """
    # Not at the top: a command that draws nothing does not need matplotlib.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "fedmx", "font.size": 9}):
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.patch.set_visible(False)
        yield figure


def style_axes(axes: Axes, x_label: str, y_label: str) -> None:
    """Label the axes, and draw only the left and the lower side of the frame."""
    axes.patch.set_visible(False)
    axes.set_xlabel(x_label, color=INK)
    axes.set_ylabel(y_label, color=INK)
    axes.tick_params(colors=INK, length=3)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)


def fitting_unit(units: Sequence[Unit], largest: float) -> Unit:
    """Return the largest unit of which the largest value has 3 or more, or the first unit."""
    large = [unit for unit in units if largest >= 3 * unit[1]]
    return large[-1] if large else units[0]


def clock_units(name: str) -> tuple[Unit, ...]:
    """Return the units of a time whose name on the axis is `name`."""
    return ((f"{name}, s", 1), (f"{name}, min", 60), (f"{name}, h", 3600))


def html_of(figure: Figure, title: str) -> Html:
    """Return a figure as SVG for a page: without prologue and metadata, in the page's colours."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
    svg = re.sub(r"font: ([0-9.]+px)[^;\"]*", r"font-size: \1; font-family: inherit", svg)
    # Differences below a hundredth of a point are invisible, and their digits are half of the file.
    svg = re.sub(r'\bd="[^"]*"', lambda d: re.sub(r"(\.\d\d)\d+", r"\1", d[0]), svg)
    names = {INK: "ink", GRID: "grid", PANEL: "panel", QUIET: "quiet"}
    names |= {colour: f"run-{index}" for index, colour in enumerate(RUN)}
    for colour, name in names.items():
        svg = svg.replace(colour, f"var(--{name})")
    return Html(svg)
