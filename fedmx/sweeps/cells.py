"""The cells of a sweep: each combination of the axes' values, run once for each seed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedmx.errors import ExperimentError
from fedmx.sweeps.axes import Axis

MOST_RUNS = 100_000
_NAME_LENGTH = 80  # of a run's name, before its seed and its time


@dataclass(frozen=True)
class Cell:
    """One combination of values.

    Attributes:
        number: from 1, in the order of the axes.
        axes: of the sweep.
        values: one for each axis.
    """

    number: int
    axes: tuple[Axis, ...]
    values: tuple[Any, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The values as short texts."""
        return tuple(axis.label(one) for axis, one in zip(self.axes, self.values, strict=True))

    @property
    def arm(self) -> str:
        """The value of the first axis: what is compared with the other arms."""
        return self.labels[0]

    @property
    def condition(self) -> tuple[str, ...]:
        """The values of the other axes: under which arms are compared."""
        return self.labels[1:]

    @property
    def overrides(self) -> list[str]:
        """What makes this cell of the experiment, as after ``fedmx run --set``."""
        return [axis.override(one) for axis, one in zip(self.axes, self.values, strict=True)]

    @property
    def settings(self) -> dict[str, Any]:
        """The values by the path of the setting; lists and mappings as short texts."""
        given = zip(self.axes, self.values, self.labels, strict=True)
        return {
            axis.path: label if isinstance(value, list | dict) else value
            for axis, value, label in given
        }

    def __str__(self) -> str:
        return ", ".join(self.labels)


@dataclass(frozen=True)
class CellRun:
    """The run of a cell with one seed."""

    cell: Cell
    seed: int

    @property
    def name(self) -> str:
        """The name of its run folder, without the time; no two runs of a sweep have the same."""
        words = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(self.cell.labels)).strip("-.")
        return f"{self.cell.number}-{words[:_NAME_LENGTH]}-s{self.seed}"

    @property
    def overrides(self) -> list[str]:
        """What makes this run of the experiment, as after ``fedmx run --set``."""
        return [*self.cell.overrides, f"seed={self.seed}"]

    def __str__(self) -> str:
        return f"{self.cell}, seed {self.seed}"


def cells_of(axes: Sequence[Axis]) -> list[Cell]:
    """Return all cells; the last axis changes first."""
    combinations = itertools.product(*(axis.values for axis in axes))
    return [Cell(number, tuple(axes), values) for number, values in enumerate(combinations, 1)]


def runs_of(cells: Sequence[Cell], seeds: Sequence[int]) -> list[CellRun]:
    """Return all runs: those with the first seed come first, so that arms can be compared early.

    Raises:
        ExperimentError: they are too many.
    """
    if len(cells) * len(seeds) > MOST_RUNS:
        raise ExperimentError(
            f"{len(cells)} cells with {len(seeds)} seeds are {len(cells) * len(seeds):,} runs; "
            f"a sweep has {MOST_RUNS:,} at most"
        )
    return [CellRun(cell, seed) for seed in seeds for cell in cells]
