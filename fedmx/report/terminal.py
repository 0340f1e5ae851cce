"""The main figures of runs as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from fedmx.report.records.summary import common_client_target, common_target, comparison, summarise
from fedmx.run import RunFolder


def summary_text(runs: Sequence[RunFolder], target_accuracy: float | None = None) -> Table:
    """Return a rich table with a column for each run; print it with ``rich.console.Console``.

    Texts of a run are shown literally: rich's markup and control sequences in them have no effect.

    Args:
        runs: the runs.
        target_accuracy: the accuracy (0 to 1) to which rounds, bytes and time are counted; None:
            the lowest ``stop.accuracy`` of the experiments.

    Raises:
        RunError: a run cannot be read.
    """
    summaries = [summarise(run) for run in runs]
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("")
    for run in runs:
        table.add_column(_literal(run.name), justify="right", overflow="fold")
    target = common_target(summaries, target_accuracy)
    client_target = common_client_target(summaries, target_accuracy)
    for label, cells in comparison(summaries, target, client_target):
        table.add_row(label, *(_literal(cell) for cell in cells))
    return table


def _literal(text: str) -> Text:
    """Return a text without markup and without characters that control a terminal."""
    return Text("".join(character if character.isprintable() else "�" for character in text))
