"""The headline figures of runs as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from fedmx.report.records.summary import common_client_target, common_target, comparison, summarise
from fedmx.run import RunFolder


def summary_text(runs: Sequence[RunFolder], target_accuracy: float | None = None) -> Table:
    """A rich table with a column for each run; print it with ``rich.console.Console``.

    What a run says of itself is shown as it is: neither rich's markup nor the terminal's control
    sequences in it have an effect. Raises RunError when a run cannot be read.
    """
    summaries = [summarise(run) for run in runs]
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("")
    for run in runs:
        table.add_column(_inert(run.name), justify="right", overflow="fold")
    target = common_target(summaries, target_accuracy)
    client_target = common_client_target(summaries, target_accuracy)
    for label, cells in comparison(summaries, target, client_target):
        table.add_row(label, *(_inert(cell) for cell in cells))
    return table


def _inert(text: str) -> Text:
    return Text("".join(character if character.isprintable() else "�" for character in text))
