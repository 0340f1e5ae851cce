"""The table of a partition: a row for each client, a column for each class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rich import box
from rich.table import Table
from rich.text import Text

from fedmx.report.figures.partition_counts import count, summary

_MAX_CLIENTS = 20
_SHOWN_CLIENTS = 15
_MAX_CLASSES = 12
_SHOWN_CLASSES = 5


def table(
    labels: npt.NDArray[np.integer[Any]],
    parts: Sequence[npt.NDArray[np.integer[Any]]],
    classes: int,
    *,
    title: str | None = None,
) -> Table:
    """Return a table of the samples by client and class, with a summary below it.

    Of more than 20 clients the first 15 are shown. Of more than 12 classes the most frequent ones
    of each client are shown.

    Args:
        labels: (n,), from 0 to ``classes`` - 1.
        parts: the indices of each client's samples in ``labels``.
        classes: the number of labels.
        title: the table's title.
    """
    counts = count(labels, parts, classes)
    made = Table(
        title=title,
        caption=summary(counts),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=0,  # ten classes of four-digit counts fit into 80 columns
    )
    for heading in ("client", "samples", "classes"):
        made.add_column(heading, justify="right", min_width=len(heading))
    wide = classes <= _MAX_CLASSES
    if wide:
        for label in range(classes):
            made.add_column(str(label), justify="right")
    else:
        made.add_column("most frequent classes: samples", overflow="fold")
    shown = len(counts) if len(counts) <= _MAX_CLIENTS else _SHOWN_CLIENTS
    for client, row in enumerate(counts[:shown]):
        cells = [_number(int(value)) for value in row] if wide else [_most_frequent(row)]
        kinds = int(np.count_nonzero(row))
        made.add_row(str(client), f"{int(row.sum()):,}", str(kinds), *cells)
    if shown < len(counts):
        made.add_row("…", *[""] * (len(made.columns) - 1))
    return made


def _number(value: int) -> Text:
    return Text(str(value)) if value else Text("·", style="dim")


def _most_frequent(row: npt.NDArray[np.int64]) -> Text:
    order = np.argsort(-row, kind="stable")[: int(np.count_nonzero(row))]
    text = ", ".join(f"{label}: {row[label]}" for label in order[:_SHOWN_CLASSES])
    return Text(text + (", …" if len(order) > _SHOWN_CLASSES else ""))
