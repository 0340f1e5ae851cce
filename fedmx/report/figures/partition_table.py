"""A partition as a table: a row a client, a column a class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rich import box
from rich.table import Table
from rich.text import Text

from fedmx.report.figures.partition_counts import count, summary

_MOST_CLIENTS = 20
_SHOWN_CLIENTS = 15
_MOST_CLASSES = 12
_SHOWN_CLASSES = 5


def table(
    labels: npt.NDArray[np.integer[Any]],
    parts: Sequence[npt.NDArray[np.integer[Any]]],
    classes: int,
    *,
    title: str | None = None,
) -> Table:
    """Make a table of the samples by client and class, with a summary below it.

    ``labels`` (n,) are from 0 to ``classes`` - 1, ``parts`` each client's indices into them. Of
    more than 20 clients the first 15 are shown; of more than 12 classes, each client's commonest.
    """
    counts = count(labels, parts, classes)
    made = Table(
        title=title,
        caption=summary(counts),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=0,  # So that ten classes of four-figure counts fit into 80 columns.
    )
    for heading in ("client", "samples", "classes"):
        made.add_column(heading, justify="right", min_width=len(heading))
    wide = classes <= _MOST_CLASSES
    if wide:
        for label in range(classes):
            made.add_column(str(label), justify="right")
    else:
        made.add_column("the commonest classes: samples", overflow="fold")
    shown = len(counts) if len(counts) <= _MOST_CLIENTS else _SHOWN_CLIENTS
    for client, row in enumerate(counts[:shown]):
        cells = [_number(int(value)) for value in row] if wide else [_commonest(row)]
        kinds = int(np.count_nonzero(row))
        made.add_row(str(client), f"{int(row.sum()):,}", str(kinds), *cells)
    if shown < len(counts):
        made.add_row("…", *[""] * (len(made.columns) - 1))
    return made


def _number(value: int) -> Text:
    return Text(str(value)) if value else Text("·", style="dim")


def _commonest(row: npt.NDArray[np.int64]) -> Text:
    order = np.argsort(-row, kind="stable")[: int(np.count_nonzero(row))]
    text = ", ".join(f"{label}: {row[label]}" for label in order[:_SHOWN_CLASSES])
    return Text(text + (", …" if len(order) > _SHOWN_CLASSES else ""))
