"""The solver by dynamic programming: a table over whole cells of capacity, item by item."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class _Row:
    """A row of the table.

    Attributes:
        item: the item that it was made for.
        cells: weight of the item.
        taken: bits, packed: whether the best choice takes the item, for each capacity from `cells`
            on.
        before: the row of the item before.
    """

    item: int
    cells: int
    taken: np.ndarray
    before: _Row | None


@dataclass(frozen=True, eq=False)
class Table:
    """V[T][k], the best value for every whole capacity T among the k items so far.

    A table does not change: `with_item` makes another one, with one pass over the cells.

    Attributes:
        best: float64 (cells + 1,), the best value by capacity.
        rows: the row of the newest item, which leads to those before; None without items.
    """

    best: np.ndarray
    rows: _Row | None = field(default=None, repr=False)

    @classmethod
    def of(cls, cells: int) -> Table:
        """Return the table without items for the capacities from 0 to `cells`."""
        return cls(np.zeros(cells + 1))

    def with_item(self, item: int, value: float, cells: int) -> Table:
        """Return the table with one item more.

        Of choices of equal value it keeps the one with the newer item.

        Args:
            item: its number, which `choose` gives back.
            value: of the item; one without value is never taken.
            cells: weight of the item.
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
        """Return the value of the best choice within a capacity in cells."""
        return float(self.best[min(capacity, self.best.size - 1)]) if capacity >= 0 else 0.0

    def choose(self, capacity: int) -> tuple[int, ...]:
        """Return the items of the lightest best choice, in ascending order."""
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
    """Return the weight in cells, rounded up: a choice that fits in cells also fits in seconds."""
    return int(np.ceil(weight / resolution))


def cells_down(capacity: float, resolution: float) -> int:
    """Return the capacity in cells, rounded down."""
    return int(np.floor(capacity / resolution))
