"""A choice of items for a knapsack, with its value and its weight."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from layers.logic.errors import LogicError


@dataclass(frozen=True)
class Choice:
    """Some of the items.

    Attributes:
        items: their places among all items, in ascending order.
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
    """Return the places of the items that a best choice can contain, in ascending order.

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
