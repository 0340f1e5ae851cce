"""The result of a sweep as tables for a terminal."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from fedmx.cli.terminal.error_text import printable
from fedmx.cli.terminal.tables import show_table, show_text
from fedmx.report.quantities import MIB, NOTHING, plain, target_percent
from fedmx.report.summary import as_text
from fedmx.sweeps.result import SweepResult
from fedmx.sweeps.statistics import FEWEST_SEEDS

MOST_SEEDS = 10_000  # which nobody runs
WIDE = 72  # columns from which a table has all of its columns
Row = Mapping[str, Any]
Number = Callable[[float], str]
"""How a metric's value is written."""

TITLES: dict[str, tuple[str, Number, Number]] = {
    "best_accuracy": (
        "best accuracy, %",
        lambda value: f"{100 * value:.2f}",
        lambda value: f"{100 * value:+.2f}",
    ),
    "rounds_to_target": (
        "rounds to {target}",
        lambda value: plain(value, 4),
        lambda value: f"{value:+.2f}",
    ),
    "bytes_to_target": (
        "MiB to {target}",
        lambda value: plain(value / MIB, 4),
        lambda value: plain(value / MIB, 3, "+"),
    ),
}
"""The metrics that are shown: title, a value, and a difference. The others are in the table."""


def show_result(result: SweepResult) -> None:
    """Print what is known of the cells, and of the pairs of arms."""
    found = result.statistics()
    target = "" if result.target is None else target_percent(result.target)
    for metric, (title, value, difference) in TITLES.items():
        if metric not in result.metrics:
            continue
        name = title.format(target=target)
        cells = [row for row in found["cells"] if row["metric"] == metric]
        pairs = [row for row in found["comparisons"] if row["metric"] == metric]
        typer.echo(f"{name}: each cell over its seeds")
        show_table(_cells_table(cells, [axis.path for axis in _axes(result)], value))
        typer.echo(f"\n{name}: each pair of arms, seed by seed")
        show_table(_pairs_table(pairs, [axis.path for axis in _axes(result)[1:]], difference))
        typer.echo()
    show_text(_notes(found))


def _axes(result: SweepResult) -> Any:
    return result.folder.manifest.axes


def _table(paths: list[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for path in paths:
        table.add_column(path.rpartition(".")[2], overflow="fold")
    return table


def _cells_table(rows: Sequence[Row], paths: list[str], write: Number) -> Table:
    table = _table(paths)
    table.add_column("seeds", justify="right")
    table.add_column("median")
    table.add_column("IQM")
    for row in rows:
        seeds = str(row["seeds"])
        if row["reached"] < row["seeds"]:
            seeds = f"{row['reached']} of {seeds}"
        table.add_row(
            *(_literal(as_text(row[path])) for path in paths),
            seeds,
            _with_interval(row, "median", write),
            _with_interval(row, "iqm", write),
        )
    return table


def _pairs_table(rows: Sequence[Row], paths: list[str], write: Number) -> Table:
    table = _table(paths)
    table.add_column("arm", overflow="fold")
    table.add_column("minus", overflow="fold")
    table.add_column("seeds", justify="right")
    table.add_column("difference")
    table.add_column("better", justify="right")
    if _is_wide():
        table.add_column("unpaired", justify="right")
    for row in rows:
        better, unpaired = row["improvement"], row["unpaired_seeds"]
        table.add_row(
            *(_literal(as_text(row[path])) for path in paths),
            _literal(row["arm"]),
            _literal(row["against"]),
            str(row["seeds"]),
            _with_interval(row, "difference", write),
            NOTHING if better is None else f"{100 * better:.0f} %",
            *([_count(unpaired)] if _is_wide() else []),
        )
    return table


def _with_interval(row: Row, name: str, write: Number) -> str:
    if row[name] is None:
        return NOTHING
    if row[f"{name}_low"] is None:
        return write(row[name])
    between = " " if _is_wide() else "\n"
    return f"{write(row[name])}{between}[{write(row[f'{name}_low'])}, {write(row[f'{name}_high'])}]"


def _is_wide() -> bool:
    """Return whether there is room for the column that matters least."""
    return shutil.get_terminal_size().columns >= WIDE


def _count(seeds: int | None) -> str:
    if seeds is None:
        return NOTHING
    return f"{seeds:,}" if seeds <= MOST_SEEDS else f"> {MOST_SEEDS:,}"


def _notes(found: Mapping[str, Sequence[Row]]) -> list[str]:
    """Return what a reader needs to understand the tables."""
    notes = ["in brackets: 95 % intervals; IQM: the mean without a quarter at each end"]
    if any(row["seeds"] < FEWEST_SEEDS for row in found["cells"]):
        notes.append(f"the intervals of median and IQM need {FEWEST_SEEDS} seeds")
    notes.append("better: how probable it is that a run of the arm is better than one of the other")
    if _is_wide():
        notes.append(
            "unpaired: the seeds of each arm that as narrow an interval would need without pairs"
        )
    return notes


def _literal(text: str) -> Text:
    return Text(printable(text))
