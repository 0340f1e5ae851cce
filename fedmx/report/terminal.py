"""The main figures of runs as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from fedmx.report.comparison import Comparison
from fedmx.report.records.comparison import compare_groups
from fedmx.report.records.verdict import group_verdict
from fedmx.run import RunFolder

_MOST_COLUMNS = 4  # of groups; a table of more has a row for each
_IN_ROWS = ("Final accuracy", "Best accuracy", "Final loss")


def summary_text(runs: Sequence[RunFolder], target_accuracy: float | None = None) -> Table:
    """Return a rich table with a column for each run, or for each group of runs.

    Groups differ in more than the seed; a table of many has a row for each. Print it with
    ``rich.console.Console``. Texts of a run are shown literally: rich's markup and control
    sequences in them have no effect.

    Args:
        runs: the runs.
        target_accuracy: the accuracy (0 to 1) to which rounds, bytes and time are counted; None:
            the lowest ``stop.accuracy`` of the experiments.

    Raises:
        RunError: a run cannot be read.
    """
    return comparison_text(Comparison.of(runs, target_accuracy))


def comparison_text(compared: Comparison) -> Table:
    """Return the table of runs that are compared; see `summary_text`."""
    groups = compared.groups
    verdicts = [group_verdict(group, compared.target).words for group in groups]
    rows = [
        (label, ["\n".join(filter(None, cell)) for cell in cells])
        for label, cells in compare_groups(groups, compared.target, compared.client_target)
    ]
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("", overflow="fold")
    if len(groups) <= _MOST_COLUMNS:
        for group in groups:
            table.add_column(_literal(group.title), justify="right", overflow="fold")
        for label, cells in [("Verdict", verdicts), *rows]:
            table.add_row(label, *(_literal(cell) for cell in cells))
        return table
    shown = [row for row in rows if row[0] in _IN_ROWS]
    for label, _ in shown:
        table.add_column(label, justify="right")
    table.add_column("Verdict", overflow="fold")
    for place, group in enumerate(groups):
        cells = [cells[place] for _, cells in shown]
        texts = [group.title, *cells, verdicts[place]]
        table.add_row(*(_literal(text) for text in texts))
    return table


def _literal(text: str) -> Text:
    """Return a text without markup and without characters that control a terminal."""
    return Text("".join(c if c.isprintable() or c == "\n" else "�" for c in text))
