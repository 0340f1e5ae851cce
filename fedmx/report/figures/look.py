"""How the lines of a figure look: colours that colour-blind readers tell apart, dashes, markers."""

from __future__ import annotations

from typing import NamedTuple

COLOURS = 8  # the number of --run-N in style.css

Dash = str | tuple[int, tuple[float, ...]]
"""A line style of matplotlib: lengths of lines and gaps in line widths."""

_DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.2, 1.6), (5, 1.6, 1.2, 1.6))
_MARKERS = "os^DvPX*"


class Look(NamedTuple):
    """The colours of a figure: of its texts and axes, its grid, and its lines in turn."""

    ink: str
    grid: str
    lines: tuple[str, ...]


# The first six are those of Okabe and Ito (2008); the test holds how far all eight are apart for
# readers with protanopia, deuteranopia and tritanopia.
PAPER = Look(
    "#20242a",
    "#dfe2e7",
    ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5c6068", "#7a2e00"),
)


def dashes(index: int) -> tuple[float, ...]:
    """Return the lengths of lines and gaps of a line, in line widths; (): it has no gaps."""
    return _DASHES[(index + index // COLOURS) % len(_DASHES)]


def line_style(index: int) -> Dash:
    """Return the same as matplotlib has it."""
    lengths = dashes(index)
    return (0, lengths) if lengths else "-"


def marker(index: int) -> str:
    """Return the marker of a line."""
    return _MARKERS[index % len(_MARKERS)]
