"""The names of lines at their ends, so that no reader has to look from a legend to a line."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 18  # characters of a line of a name
_LINE_POINTS = 1.15  # the height of a line of text, in font sizes
_NEAR = 0.9  # of the axes' width
_AXES_SHARE = 0.75  # of a figure's height


class LineEnd(NamedTuple):
    """Where a line ends, in the data's coordinates, and what it is called."""

    x: float
    y: float
    name: str
    colour: str


def label_lines(axes: Axes, ends: Sequence[LineEnd], ink: str, points: float = 8) -> bool:
    """Write the name of each line beside its end, or none if there is no room for all.

    Call it when the limits and scales of the axes are set.

    Args:
        axes: with the lines.
        ends: of the lines.
        ink: the colour of the names.
        points: the size of the font.
    """
    texts = ["\n".join(textwrap.wrap(_printable(end.name), _WIDTH)) for end in ends]
    figure = axes.get_figure(root=True)
    assert figure is not None
    unit = _LINE_POINTS * points / (72 * figure.get_figheight() * _AXES_SHARE)
    heights = [unit * (text.count("\n") + 1) for text in texts]
    if not ends or sum(heights) > 1:
        return False
    to_axes = axes.transScale + axes.transLimits
    tips = [to_axes.transform((end.x, end.y)) for end in ends]
    places = spread([float(tip[1]) for tip in tips], heights)
    for end, tip, text, place in zip(ends, tips, texts, places, strict=True):
        axes.annotate(
            text,
            xy=(float(tip[0]), float(tip[1])),
            xycoords="axes fraction",
            xytext=(1.03, place),
            textcoords="axes fraction",
            va="center",
            ha="left",
            color=ink,
            fontsize=points,
            linespacing=1.0,
            annotation_clip=False,
            parse_math=False,
            arrowprops={
                "arrowstyle": "-",
                "color": end.colour,
                "linewidth": 0.8,
                # From afar it would look like a part of the line.
                "linestyle": "-" if tip[0] > _NEAR else ":",
                "shrinkA": 1,
                "shrinkB": 3,
                "relpos": (0, 0.5),
            },
        )
    return True


def spread(wanted: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Return places from 0 to 1 near those that are wanted, so far apart that no names overlap.

    Args:
        wanted: the middles of the names, from 0 (below) to 1.
        heights: of the names; their sum is at most 1.
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
