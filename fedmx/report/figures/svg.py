"""Figures of matplotlib as parts of a page: SVG in the colours of the page."""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedmx.report.figures.html import Html, element
from fedmx.report.figures.look import COLOURS as COLOURS
from fedmx.report.figures.look import PAPER, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Placeholders for the page's variables: one figure serves light, dark and print.
INK, GRID, PANEL, QUIET = "#010203", "#010204", "#010205", "#010206"
RUN = [f"#0102{240 + index:02x}" for index in range(COLOURS)]
PAGE = Look(INK, GRID, tuple(RUN))
STEPS = (1, 2, 2.5, 5, 10)  # of the ticks on an axis
_VARIABLES = {INK: "ink", GRID: "grid", PANEL: "panel", QUIET: "quiet"}
_VARIABLES |= {colour: f"run-{index}" for index, colour in enumerate(RUN)}
_ON_PAPER = {"ink": PAPER.ink, "grid": PAPER.grid, "panel": "#ffffff", "quiet": "#5c6470"}
_ON_PAPER |= {f"run-{index}": colour for index, colour in enumerate(PAPER.lines)}
_FONTS = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

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


def style_axes(axes: Axes, x_label: str, y_label: str, look: Look = PAGE) -> None:
    """Label the axes, and draw only the left and the lower side of the frame."""
    axes.patch.set_visible(False)
    axes.set_xlabel(x_label, color=look.ink)
    axes.set_ylabel(y_label, color=look.ink)
    axes.tick_params(colors=look.ink, length=3)
    axes.grid(color=look.grid, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(look.ink)


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
    with warnings.catch_warnings():
        # The browser has the characters that matplotlib's font has not.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
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
    for colour, name in _VARIABLES.items():
        svg = svg.replace(colour, f"var(--{name})")
    return Html(svg)


def captioned(caption: str, svg: Html, name: str | None = None) -> Html:
    """Return a figure of a page with its caption and a link that saves it as a file.

    Args:
        caption: what it shows.
        svg: what `html_of` returned.
        name: of the file, without its ending; None: the words of the caption.
    """
    words = re.sub(r"[^a-z0-9]+", "-", (name or caption).lower()).strip("-")[:60].strip("-")
    content = base64.b64encode(standalone(svg).encode()).decode()
    link = element(
        "a",
        "SVG",
        href=f"data:image/svg+xml;base64,{content}",
        download=f"{words}.svg",
        title="save this figure as a file",
    )
    return element("figure", element("figcaption", element("span", caption), link), svg)


def standalone(svg: Html) -> str:
    """Return a page's figure as a file of its own: on white, in the colours of paper."""
    text = re.sub(r"var\(--([a-z0-9-]+)\)", lambda found: _ON_PAPER[found[1]], svg)
    text = text.replace("font-family: inherit", f"font-family: {_FONTS}")
    box = re.search(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', text)
    assert box is not None, "matplotlib gives each figure a viewBox"
    size = f'width="{box[1]}pt" height="{box[2]}pt"'
    white = f'<rect width="{box[1]}" height="{box[2]}" fill="#ffffff"/>'
    text = re.sub(r"<svg([^>]*)>", rf"<svg\1 {size}>{white}", text, count=1)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}'
