"""A choice by dynamic programming over whole cells of capacity; grows by an item at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


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
