"""A choice by dynamic programming over whole cells of capacity; grows by an item at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from layers.logic.errors import LogicError
from layers.logic.numeric.knapsack.choice import Choice, worth_taking


@dataclass(frozen=True, eq=False)
class _Row:
    """One item, and for each capacity from its own weight on whether the best choice takes it."""

    item: int
    cells: int
    taken: np.ndarray
    before: _Row | None


@dataclass(frozen=True, eq=False)
class Table:
    """V[T][k]: the best value for every whole capacity T of the k items so far.

    A value: `with_item` makes another one, at the cost of one pass over the cells.

    Attributes:
        best: float64 (cells + 1,), by capacity.
        rows: what was taken, newest first.
    """

    best: np.ndarray
    rows: _Row | None = field(default=None, repr=False)

    @classmethod
    def of(cls, cells: int) -> Table:
        """Return the table without items, for capacities of 0 to `cells`."""
        return cls(np.zeros(cells + 1))

    def with_item(self, item: int, value: float, cells: int) -> Table:
        """Return the table with one item more, of this value and a weight in cells.

        Of equal values the choice with the newer item is kept.
        """
        if value <= 0 or cells >= self.best.size:
            return self
        with_it = self.best[: self.best.size - cells] + value
        taken = with_it >= self.best[cells:]
        if not taken.any():
            return self
        best = self.best.copy()
        best[cells:][taken] = with_it[taken]
        return Table(best, _Row(item, cells, np.packbits(taken), self.rows))

    def value(self, capacity: int) -> float:
        """Return the value of the best choice."""
        return float(self.best[min(capacity, self.best.size - 1)]) if capacity >= 0 else 0.0

    def choose(self, capacity: int) -> tuple[int, ...]:
        """Return the items of the best choice, the lightest of those, in ascending order."""
        if capacity < 0:
            return ()
        room = min(capacity, self.best.size - 1)
        left = int(np.searchsorted(self.best[: room + 1], self.best[room]))
        items, row = [], self.rows
        while row is not None:
            place = left - row.cells
            if place >= 0 and row.taken[place >> 3] >> (7 - (place & 7)) & 1:
                items.append(row.item)
                left = place
            row = row.before
        return tuple(sorted(items))


def cells_up(weight: float, resolution: float) -> int:
    """Return the weight in cells, rounded up, so that what fits by cells does fit."""
    return int(np.ceil(weight / resolution))


def cells_down(capacity: float, resolution: float) -> int:
    """Return the capacity in cells, rounded down."""
    return int(np.floor(capacity / resolution))


def solve_by_table(
    values: np.ndarray, weights: np.ndarray, capacity: float, resolution: float = 1.0
) -> Choice:
    """Return the best choice for weights rounded up to whole cells, and capacity down.

    It always fits. It is a best one if weights and capacity are whole numbers of cells, and else is
    worth at least the best choice within `capacity - (n + 1) * resolution`. Ties as in
    `solve_exact`, by the rounded weights.

    Args:
        values: float64 (n,); an item of no value is not taken.
        weights: float64 (n,), 0 or more.
        capacity: in the unit of the weights.
        resolution: of a cell, in the same unit.

    Raises:
        LogicError: for a negative weight, what is not finite, or no resolution.
    """
    if not resolution > 0:
        raise LogicError(f"resolution must be above 0, not {resolution}")
    values, weights = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    usable = worth_taking(values, weights, capacity)
    if not usable.size:
        return Choice()
    room = cells_down(capacity, resolution)
    table = Table.of(room)
    for item in usable[::-1]:  # the newest is kept on a tie: the one that comes first
        table = table.with_item(
            int(item), float(values[item]), cells_up(float(weights[item]), resolution)
        )
    return Choice.of(table.choose(room), values, weights)
