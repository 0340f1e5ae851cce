"""The 0/1 knapsack: the items to take within a capacity, solved exactly or by a table.

The exact solver is the algorithm of Nemhauser and Ullmann 1969 with the bounds of Dantzig 1957. It
adds the items one by one. It keeps a choice of the items so far if no other choice has both as
little weight and as much value, and if it can still be completed to the value of a known choice.
`Table` is dynamic programming over whole cells of capacity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from layers.arithmetic import total
from layers.logic.errors import LogicError


@dataclass(frozen=True)
class Choice:
    """Some of the items.

    Attributes:
        items: their indices, in ascending order.
        value: sum of their values, rounded once, so that the same items give the same sum.
        weight: sum of their weights, rounded once.
    """

    items: tuple[int, ...] = ()
    value: float = 0.0
    weight: float = 0.0

    @classmethod
    def of(cls, items: Iterable[int], values: np.ndarray, weights: np.ndarray) -> Choice:
        """Return these items with their sums."""
        chosen = tuple(sorted(int(item) for item in items))
        places = list(chosen)
        return cls(chosen, math.fsum(values[places]), math.fsum(weights[places]))


def worth_taking(values: np.ndarray, weights: np.ndarray, capacity: float) -> np.ndarray:
    """Return the indices of the items that a best choice can contain, in ascending order.

    Raises:
        LogicError: the lengths differ, a weight is negative, or a number is not finite.
    """
    if values.shape != weights.shape or values.ndim != 1:
        raise LogicError(
            f"a knapsack needs one weight for each value, not {weights.shape} weights for "
            f"{values.shape} values"
        )
    if not (np.isfinite(values).all() and np.isfinite(weights).all() and np.isfinite(capacity)):
        raise LogicError("a knapsack needs finite values, weights and capacity")
    if (weights < 0).any():
        raise LogicError(f"the weights of a knapsack must be 0 or more, not {weights.min()}")
    return np.flatnonzero((values > 0) & (weights <= capacity))


BITS = 61  # of the sum; int64 has room for the sum and one more item


def scale_of(total: float) -> int:
    """Return the exponent of the unit that makes `total` less than 2**BITS.

    Integer multiples of one unit have exact sums, in any order.
    """
    return BITS - int(np.frexp(total)[1])


def rounded_up(numbers: np.ndarray, scale: int) -> np.ndarray:
    """Return the numbers as multiples of 2**-scale, int64, rounded up.

    A number above a 256th of the total is exact. Any other becomes larger by less than 2**-61 of
    the total.
    """
    multiples: np.ndarray = np.ceil(np.ldexp(numbers, scale)).astype(np.int64)
    return multiples


def rounded_down(number: float, scale: int) -> int:
    """Return the number as a multiple of 2**-scale, rounded down; 2**62 at the most."""
    with np.errstate(over="ignore"):  # the total may be tiny beside this number
        return int(min(np.floor(np.ldexp(number, scale)), 2.0**62))


SLACK = 1e-9  # added to a bound: more than the error of float64, so no best choice is cut off
WORD = 64


def solve_exact(values: np.ndarray, weights: np.ndarray, capacity: float) -> Choice:
    """Return the choice of the highest value whose weight is `capacity` or less.

    Of choices of equal value it is the lightest. Of those of equal weight it is the first in
    lexicographic order of the ascending items. The result is exact, because sums are of integers.

    In the worst case 2**n choices are kept, but only contrived values and weights reach it; for 20
    measured items a few hundred are kept.

    Args:
        values: float64 (n,); items without value are never taken.
        weights: float64 (n,), 0 or more.
        capacity: in the unit of the weights.

    Raises:
        LogicError: the lengths differ, a weight is negative, or a number is not finite.
    """
    values, weights = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    usable = worth_taking(values, weights, capacity)
    if not usable.size:
        return Choice()
    scale = scale_of(total(weights[usable]))
    weight, room = rounded_up(weights[usable], scale), rounded_down(capacity, scale)
    if int(weight.sum()) <= room:
        return Choice.of(usable, values, weights)
    value = rounded_up(values[usable], scale_of(total(values[usable])))
    kept = _Bounds(value, weight, room).worth_a_look()
    best = _best(value[kept], weight[kept], room)
    return Choice.of(usable[kept][best], values, weights)


def _best(value: np.ndarray, weight: np.ndarray, room: int) -> np.ndarray:
    """Return the indices of the best choice.

    Args:
        value: int64 (n,), above 0.
        weight: int64 (n,), 0 or more.
        room: the capacity.
    """
    bounds = _Bounds(value, weight, room)
    words = -(-value.size // WORD)
    # A choice has a weight, a value, and a bit for each of its items. The first item has the
    # highest bit, so the first choice in lexicographic order has the larger number.
    held_w, held_v = np.zeros(1, np.int64), np.zeros(1, np.int64)
    held_s = np.zeros((1, words), np.uint64)
    for place, item in enumerate(bounds.order):
        fits = held_w <= room - weight[item]
        added_s = held_s[fits]
        added_s[:, item // WORD] |= np.uint64(1 << (WORD - 1 - int(item) % WORD))
        held_w = np.concatenate([held_w, held_w[fits] + weight[item]])
        held_v = np.concatenate([held_v, held_v[fits] + value[item]])
        held_s = np.concatenate([held_s, added_s])
        by_weight = np.lexsort((*(~held_s.T[::-1]), -held_v, held_w))
        sorted_v = held_v[by_weight]
        unbeaten = np.ones(by_weight.size, bool)
        unbeaten[1:] = sorted_v[1:] > np.maximum.accumulate(sorted_v)[:-1]
        kept = by_weight[unbeaten]
        kept = kept[bounds.hopeful(held_w[kept], held_v[kept], place + 1)]
        held_w, held_v, held_s = held_w[kept], held_v[kept], held_s[kept]
    # The last choice has the highest value.
    bits = np.unpackbits(held_s[-1].astype(">u8").view(np.uint8))
    return np.flatnonzero(bits)


class _Bounds:
    """The least and the highest value of the completions of a choice.

    The bounds add the remaining items by descending density, which is value divided by weight.
    """

    def __init__(self, value: np.ndarray, weight: np.ndarray, room: int) -> None:
        with np.errstate(divide="ignore"):
            density = value / weight
        self.order = np.lexsort((np.arange(value.size), -density))
        # After the last item comes one of density 0, so that a part of it adds nothing.
        self._density = np.append(density[self.order], 0.0)
        self._value = np.concatenate([[0], np.cumsum(value[self.order])])
        self._weight = np.concatenate([[0], np.cumsum(weight[self.order])])
        self._items = value, weight
        self._room = room
        self._known = 0  # the value of a choice that exists

    def worth_a_look(self) -> np.ndarray:
        """Return the indices of the items that a best choice can contain, in ascending order."""
        value, weight = self._items
        nothing = np.zeros(1, np.int64)
        (least,), _, (end,) = self._with_the_next(nothing, nothing, 0)
        others = self.order[end:]
        fitting = value[others][weight[others] <= self._room - self._weight[end]]
        self._known = int(least) + int(fitting.max(initial=0))
        # The bound of a single item may add that item again, and is then only higher.
        _, most, _ = self._with_the_next(weight, value, 0)
        return np.flatnonzero(most >= self._known)

    def hopeful(self, weight: np.ndarray, value: np.ndarray, first: int) -> np.ndarray:
        """Return which choices can reach the best known value with the items from `first` on."""
        least, most, _ = self._with_the_next(weight, value, first)
        self._known = max(self._known, int(least.max()))
        return np.asarray(most >= self._known)

    def _with_the_next(
        self, weight: np.ndarray, value: np.ndarray, first: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return bounds on the value that choices can reach with the items from `first` on.

        Args:
            weight: int64 (k,), of the choices.
            value: int64 (k,), of the choices.
            first: the start of the remaining items, by descending density.

        Returns:
            For each choice: its value plus the next items that fit; that value plus the part of the
            following item that fills the capacity, rounded up, which no completion exceeds; and the
            index of that following item.
        """
        start = self._room - weight + self._weight[first]
        end = np.searchsorted(self._weight, start, side="right") - 1
        least = value + self._value[end] - self._value[first]
        left = start - self._weight[end]
        with np.errstate(invalid="ignore"):  # no room is left, and the item weighs nothing
            part = np.where(left > 0, left * self._density[end], 0.0)
        return least, (least + part) * (1 + SLACK), end


@dataclass(frozen=True, eq=False)
class _Row:
    """A row of the table.

    Attributes:
        item: its item.
        cells: weight of the item.
        taken: packed bits: whether the best choice takes the item, for each capacity from `cells`.
        before: the row of the previous item.
    """

    item: int
    cells: int
    taken: np.ndarray
    before: _Row | None


@dataclass(frozen=True, eq=False)
class Table:
    """V[T][k], the best value for every whole capacity T among the k items so far.

    A table is immutable: `with_item` returns a new table after one pass over the cells.

    Attributes:
        best: float64 (cells + 1,), the best value by capacity.
        rows: the row of the newest item, which links to the older rows; None without items.
    """

    best: np.ndarray
    rows: _Row | None = field(default=None, repr=False)

    @classmethod
    def of(cls, cells: int) -> Table:
        """Return the empty table for the capacities from 0 to `cells`."""
        return cls(np.zeros(cells + 1))

    def with_item(self, item: int, value: float, cells: int) -> Table:
        """Return the table with one more item.

        Of choices of equal value it keeps the one with the newer item.

        Args:
            item: its number, which `choose` returns.
            value: value of the item; items without value are never taken.
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
    """Return a weight in cells, rounded up: a choice that fits in cells also fits in seconds."""
    return int(np.ceil(weight / resolution))


def cells_down(capacity: float, resolution: float) -> int:
    """Return a capacity in cells, rounded down."""
    return int(np.floor(capacity / resolution))
