"""A partition as a table: the samples of each client and label."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from rich import box
from rich.table import Table
from rich.text import Text

from fedmx.assembly.label_counts import Counts

_MAX_CLIENTS = 20
_SHOWN_CLIENTS = 15
_MAX_CLASSES = 12
_SHOWN_CLASSES = 5


def summary(counts: Counts) -> str:
    """Return a line about the samples and classes of the clients: range and median."""
    sizes = counts.sum(axis=1)
    kinds = (counts > 0).sum(axis=1)
    return (
        f"{_many(len(counts), 'client')}, {_many(int(sizes.sum()), 'sample')}; "
        f"samples a client: {_range(sizes)}; classes a client: {_range(kinds)}"
    )


def _many(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _range(values: npt.NDArray[np.int64]) -> str:
    if len(values) == 0:
        return "0"
    least, most = int(values.min()), int(values.max())
    if least == most:
        return f"{least:,}"
    return f"{least:,} to {most:,} (median {np.median(values):,.0f})"


def table(counts: Counts, *, title: str | None = None) -> Table:
    """Return a table of the samples by client and class, with a summary below it.

    Shows the first 15 clients if there are more than 20, and the most frequent classes of each
    client if there are more than 12.
    """
    classes = counts.shape[1]
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
        cells = [_count_text(int(value)) for value in row] if wide else [_most_frequent(row)]
        kinds = int(np.count_nonzero(row))
        made.add_row(str(client), f"{int(row.sum()):,}", str(kinds), *cells)
    if shown < len(counts):
        made.add_row("…", *[""] * (len(made.columns) - 1))
    return made


def _count_text(value: int) -> Text:
    return Text(str(value)) if value else Text("·", style="dim")


def _most_frequent(row: npt.NDArray[np.int64]) -> Text:
    order = np.argsort(-row, kind="stable")[: int(np.count_nonzero(row))]
    text = ", ".join(f"{label}: {row[label]}" for label in order[:_SHOWN_CLASSES])
    return Text(text + (", …" if len(order) > _SHOWN_CLASSES else ""))
