"""The figures of clusters: the clustered points, and the labels of each client's samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedmx.report.figures.html import Html
from fedmx.report.figures.svg import INK, PANEL, QUIET, RUN, html_of, new_figure, style_axes
from fedmx.report.records.strata import NOISE, Strata

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = [colour for index, colour in enumerate(RUN) if index != 6]  # 6 is grey, for noise
_MARKERS = "os^DvP<>"
_MAX_NUMBERED = 40  # more numbers would hide the points
_MAX_BARS = 200
_MAX_SEPARATED = 60  # more bars are too narrow for gaps between them


def draw_points(strata: Strata) -> Html:
    """Return a plot of the principal components; each cluster has a colour, shape and number."""
    placed = np.isfinite(strata.points).all(axis=1)
    with new_figure(5.0, 3.6) as figure:
        axes = figure.add_subplot()
        style_axes(axes, "first principal component", "second principal component")
        for index, label in enumerate([*strata.clusters, NOISE]):
            chosen = strata.points[placed & (strata.labels == label)]
            if not len(chosen):
                continue
            noise = label == NOISE
            turn = index // len(_COLOURS) % len(_MARKERS)
            axes.plot(
                *chosen.T,
                linestyle="",
                marker="x" if noise else _MARKERS[turn],
                markersize=4 if noise else 5,
                markeredgewidth=0.9 if noise else 0.5,
                markeredgecolor=QUIET if noise else PANEL,
                markerfacecolor=_colour(index),
            )
            if not noise and len(strata.clusters) <= _MAX_NUMBERED:
                axes.annotate(
                    str(label),
                    chosen.mean(axis=0),
                    xytext=(5, 5),
                    textcoords="offset points",
                    color=INK,
                    fontsize=8,
                    fontweight="bold",
                )
        axes.margins(0.08)
        axes.ticklabel_format(scilimits=(-3, 4), useOffset=False)
        return html_of(figure, "Clients by cluster, principal components")


def draw_labels(strata: Strata, shares: np.ndarray) -> tuple[Html, int]:
    """Return a plot with a bar for each client, stacked by label, and the number of its bars.

    Args:
        strata: N clients with their clusters; the bars are in the order of the clusters.
        shares: (N, classes), the share of each label in a client's samples.
    """
    order = strata.by_cluster()
    if len(order) > _MAX_BARS:
        order = order[np.linspace(0, len(order) - 1, _MAX_BARS).astype(int)]
    labels = strata.labels[order]
    edges = np.arange(len(order) + 1)
    heights = 100 * np.cumsum(shares[order], axis=1)
    with new_figure(5.0, 3.6) as figure:
        from matplotlib import colormaps
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import BoundaryNorm

        axes = figure.add_subplot()
        style_axes(axes, "clients, by cluster", "samples with a label, %")
        axes.grid(visible=False)
        classes = shares.shape[1]
        # From dark to light in even steps, which shows the order of the labels without colour, too.
        colours = colormaps["viridis"].resampled(max(classes, 2))
        below = np.zeros(len(order))
        for label in range(classes):
            above = heights[:, label]
            axes.stairs(above, edges, baseline=below, fill=True, color=colours(label))
            below = above
        _mark_clusters(axes, labels, strata)
        if len(order) <= _MAX_SEPARATED:
            axes.vlines(edges[1:-1], 0, 100, color=PANEL, linewidth=0.8)
        axes.set_xlim(0, len(order))
        axes.set_ylim(-6, 100)
        norm = BoundaryNorm(np.arange(classes + 1) - 0.5, max(classes, 2))
        bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes, pad=0.02, aspect=30)
        bar.set_ticks(range(0, classes, -(-classes // 12)))
        bar.set_label("label", color=INK)
        bar.ax.tick_params(colors=INK, length=0)
        bar.ax.set_frame_on(False)
        return html_of(figure, "Labels of the clients' samples by cluster"), len(order)


def _mark_clusters(axes: Axes, labels: np.ndarray, strata: Strata) -> None:
    """Draw the colour of each cluster below its bars, and its number if there is room."""
    starts = np.flatnonzero(np.diff(labels, prepend=labels[0] - 1))
    ends = np.append(starts[1:], len(labels))
    index = {label: place for place, label in enumerate([*strata.clusters, NOISE])}
    ticks: dict[float, str] = {}
    for start, end in zip(starts, ends, strict=True):
        label = int(labels[start])
        colour = QUIET if label == NOISE else _colour(index[label])
        axes.bar(start, -4.5, end - start, -1.5, align="edge", color=colour, linewidth=0)
        axes.axvline(end, color=PANEL, linewidth=1.4)
        middle, text = (start + end) / 2, "none" if label == NOISE else str(label)
        room = 0.014 * len(labels) * (len(text) + 1)
        if not ticks or middle - max(ticks) >= room:
            ticks[middle] = text
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.tick_params(axis="x", length=0, labelsize=7.5)


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]
