"""The result of a sweep: its table, and what the numbers say of cells and of pairs of arms."""

from __future__ import annotations

import csv
import functools
import io
import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmx.errors import FedmxError
from fedmx.run.durable import write_text_durably
from fedmx.sweeps.cells import Cell
from fedmx.sweeps.folder import RunState, SweepFolder, state_of

if TYPE_CHECKING:
    import pandas

LARGER_IS_BETTER = {
    "best_accuracy": True,
    "final_accuracy": True,
    "rounds_to_target": False,
    "bytes_to_target": False,
}
"""The metrics of a sweep; whether a larger value is a better one."""


@dataclass(frozen=True)
class SweepResult:
    """What a sweep has come to.

    Attributes:
        folder: of the sweep.
        states: of all its runs.
        target: the accuracy (0 to 1) to which rounds and bytes are counted; None: there is none.
    """

    folder: SweepFolder
    states: Sequence[RunState]
    target: float | None = None

    @classmethod
    def of(cls, folder: SweepFolder, target: float | None = None) -> SweepResult:
        """Return the result as the run folders have it now.

        Args:
            folder: of the sweep.
            target: an accuracy, 0 to 1; None: the manifest's.
        """
        target = folder.manifest.target if target is None else target
        return cls(folder, [state_of(folder, run) for run in folder.runs], target)

    @classmethod
    def read(cls, path: str | os.PathLike[str], target: float | None = None) -> SweepResult:
        """Return the result that is in a sweep's folder now; nothing is run. See `of`.

        Raises:
            RunError: it is no such folder, or is damaged.
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
    def metrics(self) -> list[str]:
        """The metrics that there are: those up to the target only if there is one."""
        return [name for name in LARGER_IS_BETTER if self.target or not name.endswith("target")]

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each cell and seed, with the same keys in all rows.

        The rows are in the order of the cells, then of the seeds.
        """
        order = sorted(self.states, key=lambda one: (one.run.cell.number, one.run.seed))
        return [state.row(self.target) for state in order]

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table as a pandas frame.

        Raises:
            FedmxError: pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError:
            raise FedmxError(
                'a frame needs pandas; pip install "fedmx[pandas]", or take table()'
            ) from None
        return pandas.DataFrame(self.table())

    def statistics(self) -> dict[str, list[dict[str, Any]]]:
        """Return ``cells``, a row for each metric and cell, and ``comparisons`` of pairs of arms.

        Only runs that are done count, and in a comparison the seeds that are done in both arms. The
        names of an interval's ends end with ``_low`` and ``_high``; they are None where there is no
        interval. A seed that never reached the target counts as infinitely many rounds and bytes.
        """
        cells = [
            self._of_cell(metric, cell) for metric in self.metrics for cell in self.folder.cells
        ]
        comparisons = [
            self._of_pair(metric, *pair) for metric in self.metrics for pair in self._pairs()
        ]
        return {"cells": cells, "comparisons": comparisons}

    def save_table(self) -> None:
        """Write the table to table.csv, whole or not at all, if it has changed.

        Raises:
            OSError: the disk refuses.
        """
        rows = self.table()
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        path = self.folder.table_path
        if not path.exists() or path.read_text("utf-8") != text.getvalue():
            write_text_durably(path, text.getvalue())

    @functools.cached_property
    def _done(self) -> dict[int, dict[int, dict[str, Any]]]:
        """The rows of the runs that are done, by the number of the cell and the seed."""
        rows: dict[int, dict[int, dict[str, Any]]] = {}
        for state in self.states:
            if state.state == "done":
                rows.setdefault(state.run.cell.number, {})[state.run.seed] = state.row(self.target)
        return rows

    def _values(self, metric: str, cell: Cell) -> dict[int, float]:
        """Return a metric of a cell by seed; infinity: the target was not reached."""
        found = {}
        for seed, row in self._done.get(cell.number, {}).items():
            value = row[metric]
            if value is not None:
                found[seed] = float(value)
            elif not LARGER_IS_BETTER[metric]:
                found[seed] = math.inf  # an accuracy is None if it was never evaluated
        return found

    def _pairs(self) -> list[tuple[Cell, Cell]]:
        """Return the pairs of arms under each condition; the later arm is compared to the earlier.

        With one axis, all its values are compared.
        """
        conditions: dict[tuple[str, ...], list[Cell]] = {}
        for cell in self.folder.cells:
            conditions.setdefault(cell.condition, []).append(cell)
        return [
            (later, earlier)
            for cells in conditions.values()
            for earlier, later in itertools.combinations(cells, 2)
        ]

    def _of_cell(self, metric: str, cell: Cell) -> dict[str, Any]:
        from fedmx.sweeps.statistics import summarise

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
        from fedmx.sweeps.statistics import compare

        one, two = self._values(metric, first), self._values(metric, second)
        both = sorted(one.keys() & two.keys())
        found = compare(
            [one[seed] for seed in both],
            [two[seed] for seed in both],
            larger=LARGER_IS_BETTER[metric],
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
