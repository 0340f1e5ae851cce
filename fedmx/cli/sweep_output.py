"""The output of fedmx sweep: progress lines and result tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedmx.cli.output import is_live, printable, say, show_table, show_text
from fedmx.cli.rounds import BAR_COLUMNS, time_left
from fedmx.report.formats import NOTHING, SHOW, value_text
from fedmx.report.metrics import Show
from fedmx.report.statistics import FEWEST_PAIRS, FEWEST_SEEDS
from fedmx.report.summary import as_text, read_settings
from fedmx.sweeps.cells import Cell
from fedmx.sweeps.processes import RunProgress, SweepProgress
from fedmx.sweeps.result import SweepResult

WIDE = 100  # columns from which the bar is shown
MEDIUM = 70  # columns from which the best value is shown


class SweepLines:
    """Shows the runs of a sweep on stderr."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._cells: CellLines | None = None
        self._live: Live | None = None
        self._is_live = is_live(self._console)

    def __enter__(self) -> SweepLines:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: SweepProgress, ended: RunProgress | None) -> None:
        """Show the progress of the runs; the signature is `fedmx.sweeps.processes.Show`."""
        if self._is_live and self._live is None:
            self._cells = CellLines(progress)
            # Without a refresh thread: `show` is called often enough.
            self._live = Live(
                self._cells, console=self._console, auto_refresh=False, transient=True
            )
            self._live.start()
        if self._live is not None:
            self._live.refresh()
        if ended is not None and ended.state == "failed" and self._live is not None:
            self._console.print(_ended_text(ended), soft_wrap=True, markup=False)
        elif ended is not None and self._live is None:
            say(
                "sweep_run",
                f"{_ended_text(ended)}; {total_text(progress)}",
                cell=ended.run.cell.settings,
                seed=ended.run.seed,
                state=ended.state,
                metric=ended.metric and ended.metric.key,
                best=ended.best,
                rounds=ended.rounds,
                runs=len(progress.runs),
                done=sum(one.state == "done" for one in progress.runs),
            )


class CellLines:
    """A line for each cell that fits the terminal, and one for the whole sweep."""

    def __init__(self, progress: SweepProgress) -> None:
        self._progress = progress
        runs = {one.run.cell.number: one.run.cell for one in progress.runs}
        self._cells = [runs[number] for number in sorted(runs)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = self._shown(max(options.size.height - 3, 1))
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, overflow="ellipsis")
        for _ in range(4):
            table.add_column(no_wrap=True)
        for cell in cells:
            table.add_row(*self._row(cell, options.max_width))
        total = total_text(self._progress)
        hidden = len(self._cells) - len(cells)
        if hidden:
            total = f"and {hidden} more cells; {total}"
        yield Group(table, Text(total, no_wrap=True, overflow="ellipsis"))

    def _shown(self, most: int) -> list[Cell]:
        """Return the cells to show, in order; running cells have priority."""
        if len(self._cells) <= most:
            return self._cells
        order = {"running": 0, "failed": 1, "waiting": 2, "interrupted": 2, "done": 3}

        def rank(cell: Cell) -> int:
            return min(order[one.state] for one in self._progress.of(cell))

        chosen = sorted(self._cells, key=lambda cell: (rank(cell), cell.number))[:most]
        return sorted(chosen, key=lambda cell: cell.number)

    def _row(self, cell: Cell, width: int) -> list[Text | ProgressBar]:
        runs = self._progress.of(cell)
        done = sum(one.state == "done" for one in runs)
        failed = sum(one.state == "failed" for one in runs)
        row: list[Text | ProgressBar] = [Text(printable(str(cell)))]
        row.append(Text(f"{done}/{len(runs)}" + (f", {failed} failed" if failed else "")))
        if width >= WIDE:
            planned = sum(one.planned for one in runs)
            rounds = sum(one.planned if one.state == "done" else one.rounds for one in runs)
            row.append(ProgressBar(max(planned, 1), rounds, width=BAR_COLUMNS))
        if width >= MEDIUM:
            row.append(Text(_best_text(runs)))
        row.append(Text(_cell_text(self._progress, cell, runs)))
        return row


def total_text(progress: SweepProgress) -> str:
    """Return the number of finished runs, and the remaining time."""
    states = [one.state for one in progress.runs]
    parts = [f"{states.count('done')} of {len(states)} runs done"]
    parts += [f"{states.count(one)} {one}" for one in ("failed", "running") if one in states]
    left_s = progress.left_s()
    if left_s:
        parts.append(time_left(left_s, at_most=progress.may_end_early))
    return ", ".join(parts)


def _cell_text(progress: SweepProgress, cell: Cell, runs: list[RunProgress]) -> str:
    """Return the rounds of a cell's active runs, or the cell's state."""
    states = {one.state for one in runs}
    running = [f"{one.rounds}/{one.planned}" for one in runs if one.state == "running"]
    if running:
        return f"round {', '.join(running)}"
    if states <= {"done", "failed"}:
        return "done" if "failed" not in states else "ended"
    return "waiting"


def _best_text(runs: list[RunProgress]) -> str:
    """Return the best value of a cell's runs; empty: there is none yet."""
    metric = next((one.metric for one in runs if one.metric is not None), None)
    best = None if metric is None else metric.best(one.best for one in runs)
    return "" if metric is None or best is None else f"best {value_text(metric, best)}"


def _ended_text(one: RunProgress) -> str:
    """Return how a run ended."""
    if one.state == "failed":
        return printable(f"{one.run}: failed: {one.reason}")
    if one.state != "done":
        return printable(f"{one.run}: {one.state} after round {one.rounds}")
    best = "not evaluated"
    if one.metric is not None and one.best is not None:
        best = f"best {one.metric.words} {SHOW[one.metric.unit](one.best)}"
    return printable(f"{one.run}: {best} in {one.rounds} rounds")


MOST_SEEDS = 10_000  # more than anyone runs
MOST_COLUMNS = 10_000  # wider than any table
Row = Mapping[str, Any]


def show_result(result: SweepResult) -> None:
    """Print the statistics of the cells and of the pairs of arms."""
    found = result.statistics()
    paths = [axis.path for axis in _axes(result)]
    any_wide = False
    for metric, of in result.metrics.items():
        name = of.title
        cells = [row for row in found["cells"] if row["metric"] == metric]
        pairs = [row for row in found["comparisons"] if row["metric"] == metric]
        show_text([f"{name}: each cell over its seeds"])
        _show_fitting(partial(_cells_table, cells, paths, of.show))
        show_text(["", f"{name}: each pair of arms, seed by seed"])
        made = partial(_pairs_table, pairs, paths[1:], of.show_difference)
        any_wide = _show_fitting(made) or any_wide
        typer.echo()
    notes = [*_notes(result, found, wide=any_wide), *_chosen_on_test(result)]
    show_text(printable(line) for line in (result.best_cell, *notes) if line)


def _show_fitting(made: Callable[..., Table]) -> bool:
    """Print a wide table, or a narrow one if the terminal is too narrow; return which."""
    whole = made(wide=True)
    columns = shutil.get_terminal_size().columns
    wide = Console(width=MOST_COLUMNS).measure(whole).maximum <= columns
    show_table(whole if wide else made(wide=False))
    return wide


def _axes(result: SweepResult) -> Any:
    return result.folder.manifest.axes


def _table(paths: list[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for path in paths:
        table.add_column(path.rpartition(".")[2], overflow="fold")
    return table


def _cells_table(rows: Sequence[Row], paths: list[str], write: Show, *, wide: bool) -> Table:
    table = _table(paths)
    table.add_column("seeds", justify="right")
    table.add_column("median", no_wrap=True)
    table.add_column("IQM", no_wrap=True)
    for row in rows:
        seeds = str(row["seeds"])
        if row["reached"] < row["seeds"]:
            seeds = f"{row['reached']} of {seeds}"
        table.add_row(
            *(_literal(as_text(row[path])) for path in paths),
            seeds,
            _with_interval(row, "median", write, wide=wide),
            _with_interval(row, "iqm", write, wide=wide),
        )
    return table


def _pairs_table(rows: Sequence[Row], paths: list[str], write: Show, *, wide: bool) -> Table:
    table = _table(paths)
    table.add_column("arm", overflow="fold")
    table.add_column("minus", overflow="fold")
    table.add_column("seeds", justify="right")
    table.add_column("difference", no_wrap=True)
    table.add_column("better", justify="right")
    if wide:
        table.add_column("unpaired", justify="right")
    for row in rows:
        better, unpaired = row["improvement"], row["unpaired_seeds"]
        table.add_row(
            *(_literal(as_text(row[path])) for path in paths),
            _literal(row["arm"]),
            _literal(row["against"]),
            str(row["seeds"]),
            _with_interval(row, "difference", write, wide=wide)
            + (", too few seeds" if 0 < row["seeds"] < FEWEST_PAIRS else ""),
            NOTHING if better is None else f"{100 * better:.0f} %",
            *([_count(unpaired)] if wide else []),
        )
    return table


def _with_interval(row: Row, name: str, write: Show, *, wide: bool) -> str:
    if row[name] is None:
        return NOTHING
    if row[f"{name}_low"] is None:
        return write(row[name])
    between = " " if wide else "\n"
    return f"{write(row[name])}{between}[{write(row[f'{name}_low'])}, {write(row[f'{name}_high'])}]"


def _count(seeds: int | None) -> str:
    if seeds is None:
        return NOTHING
    return f"{seeds:,}" if seeds <= MOST_SEEDS else f"> {MOST_SEEDS:,}"


def _notes(result: SweepResult, found: Mapping[str, Sequence[Row]], *, wide: bool) -> list[str]:
    """Return the notes that explain the tables; wide ones have all their columns."""
    words = result.metric.words
    notes = [
        f"judged by: best {words}, of all rounds; final {words}: of the last one",
        "in brackets: 95 % intervals; IQM: interquartile mean",
    ]
    if any(row["seeds"] < FEWEST_SEEDS for row in found["cells"]):
        notes.append(f"the intervals of median and IQM need {FEWEST_SEEDS} seeds")
    notes.append("better: the probability that a run of the arm beats a run of the other")
    if wide:
        notes.append(
            "unpaired: the seeds per arm needed for an equally narrow interval without pairs"
        )
    return notes


def _chosen_on_test(result: SweepResult) -> list[str]:
    """Return a note if the arms are compared on test data: the best one's result is too good."""
    settings = read_settings(result.folder.experiment_path.read_text("utf-8"))
    manifest = result.folder.manifest
    given = [one.partition("=") for one in manifest.overrides]
    settings |= {path: None if value == "null" else value for path, _, value in given}
    settings |= {axis.path: True for axis in manifest.axes}
    held_out = ("compute.evaluate.validation", "compute.evaluate.clients")
    if any(path.startswith(held_out) and value for path, value in settings.items()):
        return []
    return ["compared on test data; compute.evaluate.validation holds others out for choices"]


def _literal(text: str) -> Text:
    return Text(printable(text))
