"""The best choice itself: states that nothing beats, item by item, cut off by bounds.

Nemhauser and Ullmann 1969 with the bounds of Dantzig 1957: of the choices among the items so far,
those live on that no other beats or equals in both weight and value, and that could still be
completed to as much as a choice that is known.
"""

from __future__ import annotations

import numpy as np

from layers.logic.numeric.knapsack.choice import Choice, worth_taking
from layers.logic.numeric.knapsack.fixed_point import rounded_down, rounded_up, scale_of

SLACK = 1e-9  # of the bound; more than float64 can be wrong by, so that no best choice is cut off
WORD = 64


def solve_exact(values: np.ndarray, weights: np.ndarray, capacity: float) -> Choice:
    """Return the choice of the highest value whose weight is `capacity` or less.

    Of equal values the lighter choice, of equal weights the one whose items, in ascending order,
    are the smaller in the first place in which they differ. Exact: sums are of integers.

    The states are as many as there are choices worth keeping, 2**n in the worst case, which takes
    values and weights made for it; of measured ones a few hundred for 20 items.

    Args:
        values: float64 (n,); an item of no value is not taken.
        weights: float64 (n,), 0 or more.
        capacity: in the unit of the weights.

    Raises:
        LogicError: for a negative weight, or what is not finite.
    """
    values, weights = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    usable = worth_taking(values, weights, capacity)
    if not usable.size:
        return Choice()
    scale = scale_of(float(weights[usable].sum()))
    weight, room = rounded_up(weights[usable], scale), rounded_down(capacity, scale)
    if int(weight.sum()) <= room:
        return Choice.of(usable, values, weights)
    value = rounded_up(values[usable], scale_of(float(values[usable].sum())))
    kept = _Bounds(value, weight, room).worth_a_look()
    best = _best(value[kept], weight[kept], room)
    return Choice.of(usable[kept][best], values, weights)


def _best(value: np.ndarray, weight: np.ndarray, room: int) -> np.ndarray:
    """Return the places of the best choice; int64 (n,) values above 0, weights, and capacity."""
    bounds = _Bounds(value, weight, room)
    words = -(-value.size // WORD)
    # A state is a choice: its weight, its value, and a bit for each of its items, the first item's
    # the highest, so that of two choices the one that comes first has the larger number.
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
    bits = np.unpackbits(held_s[-1].astype(">u8").view(np.uint8))  # the last is worth the most
    return np.flatnonzero(bits)


class _Bounds:
    """What can become of a choice at the least and at the most; items by value by weight."""

    def __init__(self, value: np.ndarray, weight: np.ndarray, room: int) -> None:
        with np.errstate(divide="ignore"):
            density = value / weight
        self.order = np.lexsort((np.arange(value.size), -density))
        # After the last item there is nothing to take a part of.
        self._density = np.append(density[self.order], 0.0)
        self._value = np.concatenate([[0], np.cumsum(value[self.order])])
        self._weight = np.concatenate([[0], np.cumsum(weight[self.order])])
        self._items = value, weight
        self._room = room
        self._known = 0  # the value of a choice that exists

    def worth_a_look(self) -> np.ndarray:
        """Return the places of the items that a best choice can have, in ascending order."""
        value, weight = self._items
        nothing = np.zeros(1, np.int64)
        (least,), _, (end,) = self._with_the_next(nothing, nothing, 0)
        others = self.order[end:]
        fitting = value[others][weight[others] <= self._room - self._weight[end]]
        self._known = int(least) + int(fitting.max(initial=0))
        # With each item in turn, and then all items, itself once more: no less than is possible.
        _, most, _ = self._with_the_next(weight, value, 0)
        return np.flatnonzero(most >= self._known)

    def hopeful(self, weight: np.ndarray, value: np.ndarray, first: int) -> np.ndarray:
        """Return which states can reach the best known value with the items from `first` on."""
        least, most, _ = self._with_the_next(weight, value, first)
        self._known = max(self._known, int(least.max()))
        return np.asarray(most >= self._known)

    def _with_the_next(
        self, weight: np.ndarray, value: np.ndarray, first: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the value with the next items for as long as they fit, and where that ends.

        And between the two, the value if of the item that does not fit a part could be taken,
        rounded up: no choice has more.
        """
        start = self._room - weight + self._weight[first]
        end = np.searchsorted(self._weight, start, side="right") - 1
        least = value + self._value[end] - self._value[first]
        left = start - self._weight[end]
        with np.errstate(invalid="ignore"):  # nothing left, and an item that weighs nothing
            part = np.where(left > 0, left * self._density[end], 0.0)
        return least, (least + part) * (1 + SLACK), end
