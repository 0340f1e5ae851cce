"""Several runs by the settings in which they differ: as tables, as frames, and as figures."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmx.errors import FedmxError
from fedmx.report.figures.curves import plot
from fedmx.report.figures.look import PAPER
from fedmx.report.figures.measures import ALL_AXES, ALL_MEASURES, BY_CLIENT
from fedmx.report.figures.paper import write_figures
from fedmx.report.records.comparison import common_client_target, common_target
from fedmx.report.records.groups import Group, grouped
from fedmx.report.records.summary import RunSummary, summarise
from fedmx.report.tables.latex import latex_table
from fedmx.report.tables.rows import csv_text, curve_rows, run_rows
from fedmx.report.tables.written import write_output
from fedmx.run import RunError, RunFolder

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Comparison:
    """Runs that are compared; those that differ in nothing but their seed are one group.

    Attributes:
        folders: of the runs, group by group.
        groups: the runs, in the same order.
        target: the accuracy, 0 to 1, to which rounds, bytes and time are counted; None: none.
        client_target: the same for the mean over clients.
    """

    folders: Sequence[RunFolder]
    groups: Sequence[Group]
    target: float | None = None
    client_target: float | None = None

    @classmethod
    def of(cls, folders: Sequence[RunFolder], target: float | None = None) -> Comparison:
        """Return the comparison of run folders.

        Args:
            folders: one or more.
            target: an accuracy, 0 to 1, on all test samples and in the mean over clients. None: the
                lowest ``stop.accuracy`` and the lowest ``stop.client_accuracy`` of the experiments.

        Raises:
            RunError: a run cannot be read, or there is none.
        """
        if not folders:
            raise RunError("a report needs at least one run; give the folder of one")
        if any(number > 1 for number in Counter(run.name for run in folders).values()):
            labels = [str(run.path) for run in folders]
        else:
            labels = [run.name for run in folders]
        runs = [summarise(run) for run in folders]
        groups = grouped(runs, labels)
        of_run = {id(run): folder for run, folder in zip(runs, folders, strict=True)}
        return cls(
            [of_run[id(run)] for group in groups for run in group.runs],
            groups,
            common_target(runs, target),
            common_client_target(runs, target),
        )

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
    def names(self) -> list[str]:
        """A name for each run."""
        return [name for group in self.groups for name in group.names]

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each run, with the same keys in all rows.

        Shares are from 0 to 1, sizes in bytes, times in seconds. What was not measured or not
        reached is None.
        """
        return run_rows(self.groups, self.folders, self.target)

    def curves(self) -> list[dict[str, Any]]:
        """Return one row for each run and round; units as in `table`, totals since the begin."""
        return curve_rows(self.groups)

    def to_pandas(self) -> pandas.DataFrame:
        """Return `table` as a pandas frame.

        Raises:
            FedmxError: pandas is not installed.
        """
        return _frame(self.table(), "table")

    def curves_to_pandas(self) -> pandas.DataFrame:
        """Return `curves` as a pandas frame.

        Raises:
            FedmxError: pandas is not installed.
        """
        return _frame(self.curves(), "curves")

    def plot(
        self, measure: str = "accuracy", against: str = "rounds", axes: Axes | None = None
    ) -> Axes:
        """Draw a line for each group, with its name at its end.

        Of several seeds, the line is the mean, and shaded is from the least to the largest.

        Args:
            measure: ``accuracy``, ``loss`` or ``accuracy by client``.
            against: ``rounds``, ``bytes``, ``time`` or ``virtual time``.
            axes: axes of matplotlib to draw on; None: those of a new figure of pyplot.

        Returns:
            The axes.

        Raises:
            FedmxError: there is no such measure or axis, or no run has values of it.
        """
        measures = {one.name.lower(): one for one in ALL_MEASURES}
        against_what = {one.name: one for one in ALL_AXES}
        for given, known in ((measure, measures), (against, against_what)):
            if given not in known:
                raise FedmxError(f"{given!r}: cannot be drawn; there are {', '.join(known)}")
        if axes is None:
            from matplotlib import pyplot

            axes = pyplot.subplots(layout="constrained")[1]
        chosen = measures[measure]
        target = self.client_target if chosen is BY_CLIENT else self.target
        if not plot(axes, self.groups, chosen, against_what[against], target, look=PAPER):
            raise FedmxError(f"no run has values of {measure} against {against}")
        return axes

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Write `table` as CSV; see `write_latex` for errors."""
        write_output(Path(path), csv_text(self.table()), "a table is CSV", (".csv",))

    def write_latex(self, path: str | os.PathLike[str]) -> None:
        """Write a table of the groups for LaTeX, with the rules of booktabs.

        Raises:
            FedmxError: the name ends otherwise, fedmx did not write the file that is there, or it
                cannot be written.
        """
        text = latex_table(self.groups, self.target)
        write_output(Path(path), text, "a table for LaTeX", (".tex",))

    def write_figures(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write each figure as PDF and SVG, one column wide, and ``curves.csv``, what they show.

        Returns:
            The files.

        Raises:
            FedmxError: see `write_latex`; then no file is written.
        """
        targets = (self.target, self.client_target)
        return write_figures(Path(folder), self.groups, targets, csv_text(self.curves()))


def _frame(rows: Sequence[dict[str, Any]], method: str) -> pandas.DataFrame:
    try:
        import pandas
    except ModuleNotFoundError:
        raise FedmxError(
            f'a frame needs pandas; pip install "fedmx[pandas]", or take {method}()'
        ) from None
    return pandas.DataFrame(rows)
