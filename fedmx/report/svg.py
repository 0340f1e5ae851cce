"""SVG figures for the page: colours, dashes, markers, and line names."""

from __future__ import annotations

import base64
import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from fedmx.report.html import Html, element

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


COLOURS = 8  # the number of --run-N in style.css

Dash = str | tuple[int, tuple[float, ...]]
"""A line style of matplotlib."""

_DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.2, 1.6), (5, 1.6, 1.2, 1.6))
_MARKERS = "os^DvPX*"


class Look(NamedTuple):
    """The colours of a figure: texts and axes, the grid, what is less important, lines in turn."""

    ink: str
    grid: str
    quiet: str
    lines: tuple[str, ...]


# The first six are from Okabe and Ito (2008). A test checks the distance between all eight for
# readers with protanopia, deuteranopia and tritanopia.
PAPER = Look(
    "#20242a",
    "#dfe2e7",
    "#5c6470",
    ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5c6068", "#7a2e00"),
)


def dashes(index: int) -> tuple[float, ...]:
    """Return the lengths of dashes and gaps, in line widths; (): no gaps."""
    return _DASHES[(index + index // COLOURS) % len(_DASHES)]


def line_style(index: int) -> Dash:
    """Return the dashes as a line style of matplotlib."""
    lengths = dashes(index)
    return (0, lengths) if lengths else "-"


def marker(index: int) -> str:
    """Return the marker of a line."""
    return _MARKERS[index % len(_MARKERS)]


# Placeholders for the page's variables: one figure serves light, dark and print.
INK, GRID, PANEL, QUIET = "#010203", "#010204", "#010205", "#010206"
RUN = [f"#0102{240 + index:02x}" for index in range(COLOURS)]
PAGE = Look(INK, GRID, QUIET, tuple(RUN))
STEPS = (1, 2, 2.5, 5, 10)  # of the ticks on an axis
_VARIABLES = {INK: "ink", GRID: "grid", PANEL: "panel", QUIET: "quiet"}
_VARIABLES |= {colour: f"run-{index}" for index, colour in enumerate(RUN)}
_ON_PAPER = {"ink": PAPER.ink, "grid": PAPER.grid, "panel": "#ffffff", "quiet": PAPER.quiet}
_ON_PAPER |= {f"run-{index}": colour for index, colour in enumerate(PAPER.lines)}
_POINTS_PER_INCH = 72
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
    # Not at the top: a command without figures does not need matplotlib.
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
    """Return the largest unit in which the value is 3 or more, or the first unit."""
    large = [unit for unit in units if largest >= 3 * unit[1]]
    return large[-1] if large else units[0]


def clock_units(name: str) -> tuple[Unit, ...]:
    """Return the units of a time named `name` on the axis."""
    return ((f"{name}, s", 1), (f"{name}, min", 60), (f"{name}, h", 3600))


class Spot(NamedTuple):
    """A point in the data's coordinates, the text that it shows to a pointer, and its curve."""

    x: float
    y: float
    text: str
    curve: int | None = None


def curve_id(index: int) -> str:
    """Return the group id of all that belongs to a curve; `html_of` makes it ``data-curve``."""
    return f"curve-{index}"


def html_of(
    figure: Figure, title: str, axes: Axes | None = None, spots: Sequence[Spot] = ()
) -> Html:
    """Return a figure as SVG for a page: without prologue and metadata, in the page's colours.

    Args:
        figure: from `new_figure`.
        title: what the figure shows, for readers that do not see it.
        axes: the axes that have the spots.
        spots: points with texts.
    """
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # The browser has the characters that matplotlib's font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
    svg = re.sub(rf'id="{curve_id(0)[:-1]}(\d+)"', r'data-curve="\1"', svg)
    svg = re.sub(r"font: ([0-9.]+px)[^;\"]*", r"font-size: \1; font-family: inherit", svg)
    # Digits below a hundredth of a point are invisible, and make up half of the file.
    svg = re.sub(r'\bd="[^"]*"', lambda d: re.sub(r"(\.\d\d)\d+", r"\1", d[0]), svg)
    for colour, name in _VARIABLES.items():
        svg = svg.replace(colour, f"var(--{name})")
    if axes is not None and spots:
        svg = svg.replace("</svg>", f"{_titled(figure, axes, spots)}</svg>")
    return Html(svg)


def _titled(figure: Figure, axes: Axes, spots: Sequence[Spot]) -> Html:
    """Return a circle that is not drawn for each spot, with its text."""
    width, height = (_POINTS_PER_INCH * inches for inches in figure.get_size_inches())
    to_figure = axes.transData + figure.transFigure.inverted()
    circles = []
    for spot in spots:
        across, up = to_figure.transform((spot.x, spot.y))
        circles.append(
            element(
                "circle",
                element("title", spot.text),
                cx=f"{across * width:.1f}",
                cy=f"{(1 - up) * height:.1f}",
                r="5",
                data_curve=None if spot.curve is None else str(spot.curve),
            )
        )
    inside = axes.get_position()
    box = (inside.x0 * width, (1 - inside.y1) * height, inside.x1 * width, (1 - inside.y0) * height)
    return element(
        "g",
        *circles,
        class_="spots",
        fill="none",
        pointer_events="all",
        data_box=" ".join(f"{edge:.1f}" for edge in box),
    )


def captioned(caption: str, svg: Html, name: str | None = None, *, wide: bool = False) -> Html:
    """Return a figure with its caption and a link that saves it as a file.

    Args:
        caption: the caption.
        svg: from `html_of`.
        name: the file's name without its ending; None: the words of the caption.
        wide: whether it scrolls on a phone, instead of shrinking.
    """
    words = re.sub(r"[^a-z0-9]+", "-", (name or caption).lower()).strip("-")[:60].strip("-")
    without = Html(re.sub(r'<g class="spots".*?</g>', "", svg, flags=re.DOTALL))
    content = base64.b64encode(standalone(without).encode()).decode()
    link = element(
        "a",
        "SVG",
        href=f"data:image/svg+xml;base64,{content}",
        download=f"{words}.svg",
        title="save this figure as a file",
    )
    head = element("figcaption", element("span", caption), link)
    return element("figure", head, svg, class_="wide" if wide else None)


def standalone(svg: Html) -> str:
    """Return a figure as a separate file: on white, in the colours of paper."""
    text = re.sub(r"var\(--([a-z0-9-]+)\)", lambda found: _ON_PAPER[found[1]], svg)
    text = text.replace("font-family: inherit", f"font-family: {_FONTS}")
    box = re.search(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', text)
    assert box is not None, "matplotlib gives each figure a viewBox"
    size = f'width="{box[1]}pt" height="{box[2]}pt"'
    white = f'<rect width="{box[1]}" height="{box[2]}" fill="#ffffff"/>'
    text = re.sub(r"<svg([^>]*)>", rf"<svg\1 {size}>{white}", text, count=1)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}'


def sample(index: int) -> Html:
    """Return a short sample of the line with this index, for a legend."""
    gaps = " ".join(f"{2.5 * length:g}" for length in dashes(index))
    line = element(
        "path",
        d="M0 4H34",
        style=f"fill: none; stroke: var(--run-{index % COLOURS}); stroke-width: 2.5",
        stroke_dasharray=gaps or None,
    )
    return element("svg", line, class_="key", viewBox="0 0 34 8", aria_hidden="true")


_NAME_CHARACTERS = 18  # in one line of a name
_LINE_POINTS = 1.15  # the height of a line of text, in font sizes
_AT_THE_EDGE = 0.97  # a share of the axes' width
_LEADER_POINTS = (6.0, 8.5)  # across, and the most up or down: 15 px on a page
_AXES_SHARE = 0.75  # of a figure's height


class LineEnd(NamedTuple):
    """The end of a line in the data's coordinates, the line's name, and its index."""

    x: float
    y: float
    name: str
    curve: int


def label_lines(axes: Axes, ends: Sequence[LineEnd], look: Look, points: float = 8) -> None:
    """Write the name of each line at its end, right of the axes, or all names in a legend there.

    It is a legend if a line ends before the right edge, or if its name would be far from its end.
    Call it after the limits and scales of the axes are set.

    Args:
        axes: the axes with the lines.
        ends: the ends of the lines.
        look: the colours.
        points: the font size.
    """
    texts = ["\n".join(textwrap.wrap(_printable(end.name), _NAME_CHARACTERS)) for end in ends]
    figure = axes.get_figure(root=True)
    assert figure is not None
    height = _POINTS_PER_INCH * figure.get_figheight() * _AXES_SHARE
    heights = [_LINE_POINTS * points * (text.count("\n") + 1) / height for text in texts]
    to_axes = axes.transScale + axes.transLimits
    tips = [to_axes.transform((end.x, end.y)) for end in ends]
    ups = [float(tip[1]) for tip in tips]
    places = spread(ups, heights) if sum(heights) <= 1 else [math.inf] * len(ends)
    moves = [height * (place - up) for up, place in zip(ups, places, strict=True)]
    across, most = _LEADER_POINTS
    if any(tip[0] < _AT_THE_EDGE for tip in tips) or max(map(abs, moves), default=0) > most:
        _add_legend(axes, ends, texts, look, points, columns=math.ceil(sum(heights)))
        return
    for end, up, text, move in zip(ends, ups, texts, moves, strict=True):
        name = axes.annotate(
            text,
            xy=(1.0, up),
            xycoords="axes fraction",
            xytext=(across, move),
            textcoords="offset points",
            va="center",
            ha="left",
            color=look.ink,
            fontsize=points,
            linespacing=1.0,
            annotation_clip=False,
            parse_math=False,
            arrowprops={
                "arrowstyle": "-",
                "color": look.quiet,
                "linewidth": 0.8,
                "shrinkA": 0,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
        )
        assert name.arrow_patch is not None
        for part in (name, name.arrow_patch):
            part.set_gid(curve_id(end.curve))


def _add_legend(
    axes: Axes,
    ends: Sequence[LineEnd],
    texts: Sequence[str],
    look: Look,
    points: float,
    *,
    columns: int,
) -> None:
    from matplotlib.lines import Line2D

    samples = [
        Line2D(
            [],
            [],
            color=look.lines[end.curve % COLOURS],
            linestyle=line_style(end.curve),
            linewidth=1.6,
            marker=marker(end.curve),
            markersize=3,
        )
        for end in ends
    ]
    legend = axes.legend(
        samples,
        texts,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        ncols=columns,
        frameon=False,
        fontsize=points,
        labelcolor=look.ink,
        handlelength=2.4,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def spread(wanted: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Return positions from 0 to 1 near the wanted ones, so that no names overlap.

    Args:
        wanted: the middles of the names, from 0 (bottom) to 1.
        heights: the heights of the names; their sum is at most 1.
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    places = list(wanted)
    floor = 0.0
    for index in order:
        places[index] = max(wanted[index], floor + heights[index] / 2)
        floor = places[index] + heights[index] / 2
    ceiling = 1.0
    for index in reversed(order):
        places[index] = min(places[index], ceiling - heights[index] / 2)
        ceiling = places[index] - heights[index] / 2
    return places


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "�" for character in text)
