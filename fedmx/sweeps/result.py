"""The result of a sweep: its table, and the statistics of cells and of pairs of arms."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmx.display import csv_text, frame, same_keys
from fedmx.quantities import OF_CLASSES, Quantity
from fedmx.report import Comparison, write_page
from fedmx.report.grid import Grid
from fedmx.report.groups import Group, word
from fedmx.report.metrics import BEST, Metric, metrics_for
from fedmx.report.summary import by_common_metric
from fedmx.run import RunError, RunFolder
from fedmx.run.durable import cannot_write, write_text_durably
from fedmx.sweeps.cells import Cell
from fedmx.sweeps.folder import RunState, SweepFolder, state_of
from layers.arithmetic import sum_in_order

if TYPE_CHECKING:
    import pandas

    from fedmx.report.statistics import Summary


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep.

    Attributes:
        folder: of the sweep.
        states: of all its runs.
        target: the value of their metric to which rounds and bytes are counted; None: none.
    """

    folder: SweepFolder
    states: Sequence[RunState]
    target: float | None = None

    @classmethod
    def of(cls, folder: SweepFolder, target: float | None = None) -> SweepResult:
        """Return the current result from the run folders.

        Args:
            folder: of the sweep.
            target: a value of their metric; None: the manifest's.
        """
        target = folder.manifest.target if target is None else target
        return cls(folder, [state_of(folder, run) for run in folder.runs], target)

    @classmethod
    def read(cls, path: str | os.PathLike[str], target: float | None = None) -> SweepResult:
        """Return the current result of a sweep's folder; nothing is run. See `of`.

        Raises:
            RunError: it is not a sweep folder, or is damaged.
        """
        return cls.of(SweepFolder.open(Path(path)), target)

    @property
    def failed(self) -> list[RunState]:
        """The runs that failed."""
        return [state for state in self.states if state.state == "failed"]

    @property
    def done(self) -> bool:
        """Whether all runs are done."""
        return all(state.state == "done" for state in self.states)

    @property
    def epsilon(self) -> float | None:
        """The privacy that all runs have spent together, as they use the same clients: the sum of
        their epsilons, for the sum of their deltas; None: no run is private.
        """
        spent = [
            one.last_measured["epsilon"] for one in self.states if "epsilon" in one.last_measured
        ]
        return sum_in_order(spent) if spent else None

    @functools.cached_property
    def _begun(self) -> list[RunState]:
        """The runs that have begun, by the metric that they have in common.

        Raises:
            FedmxError: there is none.
        """
        return by_common_metric([one for one in self.states if one.metrics])

    @property
    def metric(self) -> Quantity:
        """The metric that stands for the models.

        Raises:
            FedmxError: the runs have none in common.
        """
        return self._begun[0].metric if self._begun else OF_CLASSES[0]

    @property
    def best(self) -> float | None:
        """The best value of `metric` in any run; None: there is none yet."""
        return self.metric.best(one.best_value for one in self._begun)

    @functools.cached_property
    def metrics(self) -> dict[str, Metric]:
        """What is compared, by name; up to a target only if there is one."""
        return metrics_for(self.metric, self.target)

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each cell and seed, in this order, with the same keys in all rows."""
        order = sorted(self.states, key=lambda one: (one.run.cell.number, one.run.seed))
        return same_keys([state.row(self.target) for state in order])

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table as a pandas frame.

        Raises:
            FedmxError: pandas is not installed.
        """
        return frame(self.table())

    def statistics(self) -> dict[str, list[dict[str, Any]]]:
        """Return ``cells``, a row for each metric and cell, and ``comparisons`` of pairs of arms.

        Only runs that are done count; a comparison uses the seeds that are done in both arms. An
        interval's ends are named ``_low`` and ``_high``; None: there is no interval. A seed that
        never reached the target counts as infinitely many rounds and bytes.
        """
        cells = [
            self._of_cell(metric, cell) for metric in self.metrics for cell in self.folder.cells
        ]
        comparisons = [
            self._of_pair(metric, *pair) for metric in self.metrics for pair in self._pairs()
        ]
        return {"cells": cells, "comparisons": comparisons}

    def comparison(self) -> Comparison:
        """Return its runs side by side, for figures and reports; arms under the same conditions.

        Raises:
            RunError: no run has begun, or a run cannot be read.
        """
        begun = {one.folder: one for one in self.states if one.folder is not None}
        if not begun:
            raise RunError(f"{self.folder.path}: no run has begun; there is nothing to report yet")
        folders = [RunFolder.open(path, salvage=True) for path in begun]
        compared = Comparison.of(folders, self.target)
        conditions: dict[tuple[str, ...], list[Group]] = {}
        for group in compared.groups:
            cell = begun[group.runs[0].folder.path].run.cell
            conditions.setdefault(cell.condition, []).append(group)
        pairs = [
            (later, earlier)
            for groups in conditions.values()
            for earlier, later in itertools.combinations(groups, 2)
        ]
        done = sum(one.state == "done" for one in self.states)
        best = [self.best_cell] if self.best_cell else []
        notes = [*best, f"{done} of {len(self.states)} runs are done"]
        return replace(
            compared, pairs=pairs, title=self.folder.path.name, notes=notes, grid=self._grid
        )

    @property
    def best_cell(self) -> str | None:
        """The cell of two axes or more with the best interquartile mean of its best values, in
        words; None: there is one axis, or no run is done.
        """
        metric, axes = self.metrics[BEST], self.folder.manifest.axes
        found = {
            number: summary
            for number, summary in self._summaries.items()
            if summary.iqm.value is not None
        }
        if len(axes) < 2 or not found:
            return None
        sign = 1 if metric.larger else -1
        best = max(found, key=lambda number: sign * (found[number].iqm.value or 0.0))
        cell, summary = self.folder.cells[best - 1], found[best]
        names = (word(axis.path, one) for axis, one in zip(axes, cell.labels, strict=True))
        value = f"{metric.show(summary.iqm.value or 0.0)}{' %' if metric.percent else ''}"
        seeds = f"{summary.seeds} seed" if summary.seeds == 1 else f"{summary.seeds} seeds"
        return f"best cell: {', '.join(names)}: {metric.words} {value} (IQM of {seeds})"

    @property
    def _grid(self) -> Grid | None:
        """The interquartile means of the best values; None: there are not two axes."""
        axes = self.folder.manifest.axes
        if len(axes) != 2:
            return None
        down, across = ([axis.label(one) for one in axis.values] for axis in axes)
        values = {
            divmod(number - 1, len(across)): (summary.iqm.value, summary.seeds)
            for number, summary in self._summaries.items()
            if summary.iqm.value is not None
        }
        names = (axes[0].path.rpartition(".")[2], axes[1].path.rpartition(".")[2])
        return Grid(self.metrics[BEST], names, down, across, values)

    @functools.cached_property
    def _summaries(self) -> dict[int, Summary]:
        """The best values of each cell over its seeds, by cell number."""
        from fedmx.report.statistics import summarise

        cells = self.folder.cells
        return {one.number: summarise([*self._values(BEST, one).values()]) for one in cells}

    def save_table(self) -> None:
        """Write the table to table.csv, whole or not at all, if it has changed.

        Raises:
            RunError: it cannot be written.
        """
        text, path = csv_text(self.table()), self.folder.table_path
        try:
            if not path.exists() or path.read_text("utf-8") != text:
                write_text_durably(path, text)
        except OSError as error:
            raise RunError(cannot_write(path, error)) from None

    def save_page(self) -> Path | None:
        """Write the page about all runs into the sweep's folder, and return the file.

        None: no run has begun.

        Raises:
            RunError: it cannot be written, or a run cannot be read.
            FedmxError: the file exists and is not fedmx's.
        """
        if not self._begun:
            return None
        write_page(self.comparison(), self.folder.report_path)
        return self.folder.report_path

    def _values(self, metric: str, cell: Cell) -> dict[int, float]:
        """Return a metric of a cell by seed; infinity: the target was not reached."""
        return {
            state.run.seed: value
            for state in self._done.get(cell.number, ())
            if (value := self.metrics[metric].of(state)) is not None
        }

    @functools.cached_property
    def _done(self) -> dict[int, list[RunState]]:
        """The runs that are done, by cell number."""
        found: dict[int, list[RunState]] = {}
        for state in self._begun:
            if state.state == "done":
                found.setdefault(state.run.cell.number, []).append(state)
        return found

    def _pairs(self) -> list[tuple[Cell, Cell]]:
        """Return the pairs of arms under each condition, the later arm first."""
        conditions: dict[tuple[str, ...], list[Cell]] = {}
        for cell in self.folder.cells:
            conditions.setdefault(cell.condition, []).append(cell)
        return [
            (later, earlier)
            for cells in conditions.values()
            for earlier, later in itertools.combinations(cells, 2)
        ]

    def _of_cell(self, metric: str, cell: Cell) -> dict[str, Any]:
        from fedmx.report.statistics import summarise

        found = summarise(list(self._values(metric, cell).values()))
        return {
            "metric": metric,
            **cell.settings,
            "seeds": found.seeds,
            "reached": found.reached,
            **found.median.record("median"),
            **found.iqm.record("iqm"),
        }

    def _of_pair(self, metric: str, first: Cell, second: Cell) -> dict[str, Any]:
        from fedmx.report.statistics import compare

        one, two = self._values(metric, first), self._values(metric, second)
        both = sorted(one.keys() & two.keys())
        found = compare(
            [one[seed] for seed in both],
            [two[seed] for seed in both],
            larger=self.metrics[metric].larger,
        )
        return {
            "metric": metric,
            **dict(list(first.settings.items())[1:]),
            "arm": first.arm,
            "against": second.arm,
            "seeds": found.seeds,
            **found.difference.record("difference"),
            "improvement": found.improvement,
            "unpaired_seeds": found.unpaired_seeds,
        }
