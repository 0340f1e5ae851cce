"""Several runs side by side: as tables, frames, figures, and JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from fedmx.display import csv_text, frame, same_keys
from fedmx.errors import FedmxError
from fedmx.quantities import figures
from fedmx.report.curves import has_values, named, plot
from fedmx.report.grid import Grid
from fedmx.report.groups import (
    Group,
    common_client_target,
    common_target,
    compare_groups,
    grouped,
)
from fedmx.report.metrics import Pairs
from fedmx.report.paper import Columns, latex_table, write_figures, write_output
from fedmx.report.results import group_verdict, verdict
from fedmx.report.summary import ABSENT, Point, RunSummary, by_common_metric
from fedmx.report.svg import PAPER
from fedmx.run import RunError, RunFolder

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

_MOST_COLUMNS = 4  # more groups have a row each instead of a column


@dataclass(frozen=True)
class Comparison:
    """Runs side by side; runs that differ only in their seed are one group.

    Attributes:
        groups: the runs.
        target: the value of their metric to which rounds, bytes and time are counted; None: none.
        client_target: the same of the accuracy in the mean over clients.
        pairs: the groups that are compared, seed by seed.
        title: what all runs together are; empty: nothing in particular.
        notes: what else is known of all runs together, a line each.
        grid: the cells of a sweep of two axes; None: the runs are not of one.
    """

    groups: Sequence[Group]
    target: float | None = None
    client_target: float | None = None
    pairs: Pairs = ()
    title: str = ""
    notes: Sequence[str] = ()
    grid: Grid | None = None

    @classmethod
    def of(cls, folders: Sequence[RunFolder], target: float | None = None) -> Comparison:
        """Return the comparison of run folders.

        Args:
            folders: one or more.
            target: a value of their metric, of an accuracy also in the mean over clients. None: the
                easiest one in ``stop`` of the experiments.

        Raises:
            RunError: a run cannot be read, or there is none.
            FedmxError: the runs have no metric in common.
        """
        if not folders:
            raise RunError("a report needs at least one run; give the folder of one")
        labels = [run.name for run in folders]
        if len(set(labels)) < len(labels):
            labels = [str(run.path) for run in folders]
        runs = by_common_metric([RunSummary.of(run) for run in folders])
        targets = common_target(runs, target), common_client_target(runs, target)
        groups = grouped(runs, labels)
        pairs = [(later, earlier) for earlier, later in combinations(groups, 2)]
        return cls(groups, *targets, pairs)

    @classmethod
    def read(
        cls, paths: Sequence[str | os.PathLike[str]], target: float | None = None
    ) -> Comparison:
        """Return the comparison of the runs in these folders; see `of`."""
        return cls.of([RunFolder.open(Path(path), salvage=True) for path in paths], target)

    @property
    def runs(self) -> list[RunSummary]:
        """The figures of all runs, group by group."""
        return [run for group in self.groups for run in group.runs]

    @property
    def folders(self) -> list[RunFolder]:
        """The folders of all runs, group by group."""
        return [run.folder for run in self.runs]

    @property
    def names(self) -> list[str]:
        """A name for each run."""
        return [name for group in self.groups for name in group.names]

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each run, with the same keys in all rows.

        Shares are from 0 to 1, sizes in bytes, times in seconds; None: not measured or reached.
        """
        return same_keys(
            [{**which, **_run_row(run, self.target)} for run, which in self._runs_and_settings()]
        )

    def curves(self) -> list[dict[str, Any]]:
        """Return one row for each run and round; units as in `table`, totals since the start."""
        return same_keys(
            [
                {**which, **_point_row(run, point)}
                for run, which in self._runs_and_settings()
                for point in run.points
            ]
        )

    def text(self) -> Table:
        """Return a rich table with a column for each group, or a row if there are many.

        Print it with ``rich.console.Console``. Markup and control sequences in a run's texts have
        no effect.
        """
        groups, targets = self.groups, (self.target, self.client_target)
        verdicts = [group_verdict(group, self.target).words for group in groups]
        rows = [
            (label, ["\n".join(filter(None, cell)) for cell in cells])
            for label, cells in compare_groups(groups, *targets)
        ]
        table = Table(show_edge=False, pad_edge=False)
        table.add_column("", overflow="fold")
        if len(groups) <= _MOST_COLUMNS:
            for group in groups:
                table.add_column(_literal(group.title), justify="right", overflow="fold")
            for label, cells in [("Verdict", verdicts), *rows]:
                table.add_row(label, *map(_literal, cells))
            return table
        words = self.runs[0].metric.words
        chosen = (f"Final {words}", f"Best {words}", "Final loss")
        shown = [(label, cells) for label, cells in rows if label in chosen]
        for label, _ in shown:
            table.add_column(label, justify="right")
        table.add_column("Verdict", overflow="fold")
        for place, group in enumerate(groups):
            texts = [group.title, *(cells[place] for _, cells in shown), verdicts[place]]
            table.add_row(*map(_literal, texts))
        return table

    def to_pandas(self) -> pandas.DataFrame:
        """Return `table` as a pandas frame.

        Raises:
            FedmxError: pandas is not installed.
        """
        return frame(self.table())

    def curves_to_pandas(self) -> pandas.DataFrame:
        """Return `curves` as a pandas frame.

        Raises:
            FedmxError: pandas is not installed.
        """
        return frame(self.curves())

    def plot(
        self, measure: str | None = None, against: str = "rounds", axes: Axes | None = None
    ) -> Axes:
        """Draw a line for each group, with its name at the end.

        For several seeds, the line is the mean, and the range is shaded.

        Args:
            measure: a metric by its key, ``loss`` or ``accuracy by client``; None: the first metric
                that all runs have.
            against: ``rounds``, ``local steps``, ``bytes``, ``machine time`` or ``virtual time``.
            axes: axes of matplotlib to draw on; None: those of a new figure of pyplot.

        Returns:
            The axes.

        Raises:
            FedmxError: there is no such measure or axis, or no run has two values of it.
        """
        chosen, axis = named(self.runs, measure, against)
        if not has_values(self.groups, chosen, axis):
            raise FedmxError(f"no run has two values of {chosen.key} against {against}")
        if axes is None:
            from matplotlib import pyplot

            axes = pyplot.subplots(layout="constrained")[1]
        level = chosen.level((self.target, self.client_target))
        plot(axes, self.groups, chosen, axis, level, look=PAPER)
        return axes

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Write `table` as CSV; see `write_latex` for errors."""
        write_output(Path(path), csv_text(self.table()), "a table is CSV", (".csv",))

    def write_latex(self, path: str | os.PathLike[str], columns: Columns = "single") -> None:
        """Write a table of the groups for LaTeX, with the rules of booktabs.

        Args:
            path: the file.
            columns: ``single``: the table fits one column of a page of two; ``double``: both.

        Raises:
            FedmxError: the name has another ending, the file exists and is not fedmx's, or it
                cannot be written.
        """
        text = latex_table(self.groups, self.target, self.pairs, columns)
        write_output(Path(path), text, "a table for LaTeX", (".tex",))

    def write_figures(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write each figure as PDF and SVG, one column wide, and their data as ``curves.csv``.

        Returns:
            The files.

        Raises:
            FedmxError: see `write_latex`; then no file is written.
        """
        targets = (self.target, self.client_target)
        return write_figures(Path(folder), self.groups, targets, csv_text(self.curves()))

    def _runs_and_settings(self) -> Iterator[tuple[RunSummary, dict[str, Any]]]:
        """Yield each run, with its group, its seed and the settings that differ."""
        paths = dict.fromkeys(path for group in self.groups for path in group.settings)
        for group in self.groups:
            texts = {path: group.settings.get(path, ABSENT) for path in paths}
            settings = {path: None if text == ABSENT else text for path, text in texts.items()}
            for run in group.runs:
                seed = int(run.seed) if run.seed.isdigit() else run.seed
                yield run, {"fedmx_group": group.name, "seed": seed, **settings}


def _run_row(run: RunSummary, target: float | None) -> dict[str, Any]:
    return {
        "run": str(run.folder.path),
        "state": run.status,
        "verdict": verdict(run, target).words,
        **figures(run, target),
    }


def _point_row(run: RunSummary, point: Point) -> dict[str, Any]:
    names = ("round", "accuracy", "loss", "train_loss", "client_accuracy_mean")
    metrics = (one for one in run.metrics if one.optional and one.unit != "text")
    return {
        **{name: getattr(point, name) for name in names},
        **{one.key: point.value(one) for one in metrics},
        "bytes": int(point.bytes),
        "time_s": point.time_s,
        "virtual_s": point.virtual_s,
    }


def document(compared: Comparison) -> dict[str, Any]:
    """Return ``target`` and ``runs``: the figures of each run, and its points, for scripts.

    Shares are from 0 to 1, times in seconds, sizes in bytes; None: not measured.
    """
    target = compared.target
    return {"target": target, "runs": [_record(run, target) for run in compared.runs]}


def _record(run: RunSummary, target: float | None) -> dict[str, Any]:
    return {
        **_run_row(run, target),
        "reason": run.reason,
        "rounds": run.planned_rounds,
        "settings": dict(run.settings),
        "damage": list(run.folder.damage),
        "points": [asdict(point) for point in run.points],
    }


def _literal(text: str) -> Text:
    """Return a text without markup and control characters."""
    return Text("".join(c if c.isprintable() or c == "\n" else "�" for c in text))
