"""The sample of a line that stands before its name in a text."""

from __future__ import annotations

from fedmx.report.figures.html import Html, element
from fedmx.report.figures.look import COLOURS, dashes


def key(index: int) -> Html:
    """Return a short line in the colour and with the dashes of the line with this index."""
    gaps = " ".join(f"{2.5 * length:g}" for length in dashes(index))
    line = element(
        "path",
        d="M0 4H34",
        style=f"fill: none; stroke: var(--run-{index % COLOURS}); stroke-width: 2.5",
        stroke_dasharray=gaps or None,
    )
    return element("svg", line, class_="key", viewBox="0 0 34 8", aria_hidden="true")
