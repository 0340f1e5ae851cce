"""The cells of a sweep of two axes, as a heat map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedmx.report.formats import NOTHING
from fedmx.report.html import Child, Html, element, join, table
from fedmx.report.metrics import Metric

_DARKEST = 45  # % of the colour: a text on it has enough contrast


class Grid(NamedTuple):
    """One figure of each cell.

    Attributes:
        metric: what is shown.
        axes: the names of the axis down and of the one across.
        down: the values of the first axis.
        across: the values of the second axis.
        values: of a cell by its place down and across, with its number of seeds.
    """

    metric: Metric
    axes: tuple[str, str]
    down: Sequence[str]
    across: Sequence[str]
    values: Mapping[tuple[int, int], tuple[float, int]]


def grid_section(grid: Grid | None) -> Html | None:
    """Return the heat map, stronger where the metric is better; None: no cell has a value."""
    if grid is None or not grid.values:
        return None
    known = [value for value, _ in grid.values.values()]
    least, most = min(known), max(known)
    best = most if grid.metric.larger else least
    seeds = max(number for _, number in grid.values.values())

    def cell(place: tuple[int, int]) -> Html:
        if place not in grid.values:
            return element("span", NOTHING, class_="cell")
        value, number = grid.values[place]
        share = abs(value - (least if grid.metric.larger else most)) / (most - least or 1.0)
        colour = f"color-mix(in srgb, var(--run-0) {_DARKEST * share:.0f}%, var(--panel))"
        few = (
            element("div", f"{number} of {seeds} seeds", class_="range") if number < seeds else None
        )
        text: Child = grid.metric.show(value)
        text = element("strong", text, title="the best") if value == best else text
        return element("div", text, few, class_="cell", style=f"background: {colour}")

    rows: list[list[Child]] = [
        [name, *(cell((down, across)) for across in range(len(grid.across)))]
        for down, name in enumerate(grid.down)
    ]
    corner = join(grid.axes[0], " \\ ", grid.axes[1])
    title = f"{grid.metric.title[:1].upper()}{grid.metric.title[1:]}, of each cell"
    words = "The interquartile mean (IQM) over the seeds. Bold: the best cell."
    return element(
        "section",
        element("h2", title),
        table([corner, *grid.across], rows, class_="numbers heat"),
        element("p", words, class_="quiet"),
    )
