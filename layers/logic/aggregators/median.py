"""The median and the trimmed mean of each coordinate (Yin et al. 2018, definitions 1 and 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

import numpy as np
from annotated_types import Ge, Lt

from layers.logic.aggregators.collected import (
    Combination,
    StoredUpdates,
    coordinate_median,
    mean_of_sorted,
)
from layers.logic.core.declaration import Need, Trait
from layers.logic.core.messages import EMPTY
from layers.logic.core.state import ServerState

ROUNDING = 1e-9  # added to trim m, since 0.29 * 100 is 28.999...


@dataclass(frozen=True)
class Median(Combination):
    """w + the coordinate-wise median of the updates; all clients have the same weight.

    Source: Yin et al. 2018, definition 1.

    While fewer than half of the clients are arbitrary, every coordinate lies between those of two
    honest clients. This holds for buffers, too. A round has `logic.min_updates` updates at least,
    and f arbitrary clients need 2 f + 1. All updates are held, in memory or on disk, and buffers in
    memory. Numbers of samples, which a client may invent, do not count.

    Attributes:
        sparse: whether hooks that send less than half of an update's values are allowed. A
            coordinate that most clients do not send has the median 0: the model does not change
            there.
    """

    name = "median"

    sparse: bool = False

    provides = frozenset({Trait.BY_SLICES, Trait.ROBUST})

    @property
    def requires(self) -> frozenset[Need]:
        """Single clients, and updates that send most values unless `sparse` is set."""
        return frozenset({Need.EACH_CLIENT, *(() if self.sparse else (Need.DENSE,))})

    def combine(self, updates: StoredUpdates, state: ServerState) -> tuple[np.ndarray, np.ndarray]:
        return coordinate_median(updates.deltas), EMPTY


@dataclass(frozen=True)
class TrimmedMean(Combination):
    """w + the mean of each coordinate without the share `trim` of lowest and of highest values.

    Source: Yin et al. 2018, definition 2.

    Of m updates floor(trim m) are left out at each end. While no more clients than that are
    arbitrary, every coordinate lies between those of two honest clients. This holds for buffers,
    too. All updates are held, in memory or on disk, and buffers in memory. Numbers of samples,
    which a client may invent, do not count.

    Attributes:
        trim: beta, at least 0 (the plain mean) and below 0.5; unless it is 0,
            `logic.min_updates` must be large enough to leave out one update at each end.
        sparse: whether hooks that send less than half of an update's values are allowed, as in
            `median`.
    """

    name = "trimmed-mean"

    trim: Annotated[float, Ge(0), Lt(0.5)] = 0.1
    sparse: bool = False

    @property
    def requires(self) -> frozenset[Need]:
        """Single clients, and updates that send most values if it compares them."""
        compares = self.trim > 0 and not self.sparse
        return frozenset({Need.EACH_CLIENT, *((Need.DENSE,) if compares else ())})

    @property
    def provides(self) -> frozenset[Trait]:
        """Robust if it leaves any update out."""
        return frozenset({Trait.BY_SLICES, *((Trait.ROBUST,) if self.trim else ())})

    @property
    def least_updates(self) -> int:
        """The number at which one update is left out at each end; 1 if `trim` is 0."""
        if not self.trim:
            return 0
        return max(3, math.ceil((1 - Fraction(ROUNDING)) / Fraction(self.trim)))

    def combine(self, updates: StoredUpdates, state: ServerState) -> tuple[np.ndarray, np.ndarray]:
        return mean_of_sorted(updates.deltas, self._cut(len(updates.deltas))), EMPTY

    def buffers(self, updates: StoredUpdates) -> np.ndarray:
        """Return the trimmed mean of the buffers."""
        return mean_of_sorted(updates.buffers, self._cut(len(updates.buffers)))

    def _cut(self, number: int) -> int:
        """Return how many of these updates are left out at each end."""
        return min(int(self.trim * number + ROUNDING), (number - 1) // 2)
