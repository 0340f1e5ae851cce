"""What the last evaluated model did on the samples of each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedmx.report.formats import NOTHING, finite, percent
from fedmx.report.html import Child, Html, element, table
from fedmx.report.summary import RunSummary
from fedmx.report.svg import INK, Spot, captioned, html_of, new_figure, style_axes
from layers.compute.metrics.classes import ConfusionMatrix, PerClassAccuracy

ACCURACIES, MATRIX = PerClassAccuracy().key, ConfusionMatrix().key
_OPEN_UP_TO = 20  # classes; the table of more is folded
_NUMBERED_UP_TO = 12  # classes; a heat map of more has no numbers in its cells


def classes_section(run: RunSummary, label: str | None) -> Html | None:
    """Return the accuracy by class and the confusion matrix; None: neither is recorded.

    Args:
        run: the run.
        label: the run's name on a page with several runs.
    """
    records = run.folder.rounds()
    accuracies, matrix = _last(records, ACCURACIES), _last(records, MATRIX)
    if accuracies is None and matrix is None:
        return None
    title = "Classes" if label is None else f"Classes of {label}"
    figures: list[Child] = []
    counts = None
    if matrix is not None:
        counts = np.array(matrix[1], dtype=np.int64)
        caption = f"Samples by class and prediction, after round {matrix[0]}"
        figures.append(captioned(caption, _heat_map(counts)))
    if accuracies is not None:
        figures.append(_by_class(*accuracies, counts))
    return element("section", element("h2", title), element("div", *figures, class_="figures"))


def _last(records: Sequence[Mapping[str, Any]], key: str) -> tuple[int, list[Any]] | None:
    """Return the last recorded table of a metric, with its round."""
    found = (one for one in reversed(records) if isinstance(one.get(key), list) and one[key])
    last = next(found, None)
    return None if last is None else (last["round"], last[key])


def _by_class(round: int, accuracies: Sequence[Any], counts: np.ndarray | None) -> Html:
    samples = [NOTHING] * len(accuracies) if counts is None else [f"{n:,}" for n in counts.sum(1)]
    rows: list[list[Child]] = [
        [number, count, percent(finite(share))]
        for number, (share, count) in enumerate(zip(accuracies, samples, strict=True))
    ]
    return element(
        "details",
        element("summary", f"accuracy of {len(rows):,} classes, after round {round}"),
        table(["class", "samples", "accuracy"], rows, class_="numbers"),
        open="" if len(rows) <= _OPEN_UP_TO else None,
    )


def _heat_map(counts: np.ndarray) -> Html:
    """Return a square for each pair of class and prediction, darker for a larger share."""
    from matplotlib.ticker import MaxNLocator

    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    with new_figure(5.0, 4.2) as figure:
        axes = figure.add_subplot()
        style_axes(axes, "predicted class", "class")
        axes.grid(visible=False)
        drawn = axes.imshow(100 * shares, cmap="Blues", vmin=0, vmax=100, interpolation="nearest")
        for one in (axes.xaxis, axes.yaxis):
            one.set_major_locator(MaxNLocator(nbins=12, integer=True))
        spots = []
        for row, column in np.argwhere(counts):
            number, share = f"{counts[row, column]:,}", shares[row, column]
            if len(counts) <= _NUMBERED_UP_TO:
                ink = "#ffffff" if share > 0.5 else "#20242a"
                axes.text(column, row, number, ha="center", va="center", color=ink, fontsize=7)
            text = f"class {row} as {column}: {number} samples, {percent(share)} of the class"
            spots.append(Spot(float(column), float(row), text))
        bar = figure.colorbar(drawn, ax=axes, pad=0.02, aspect=30)
        bar.set_label("samples of the class, %", color=INK)
        bar.ax.tick_params(colors=INK, length=0)
        bar.ax.set_frame_on(False)
        return html_of(figure, "Samples by class and prediction", axes, spots)
