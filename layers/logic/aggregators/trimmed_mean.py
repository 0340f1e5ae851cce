"""The mean of each coordinate without its extreme values (Yin et al. 2018, definition 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from layers.logic.aggregators.median import check_values_sent, mean_of_sorted
from layers.logic.aggregators.stored_updates import StoredUpdates
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.parts import Parts
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError

ROUNDING = 1e-9  # added to trim m, since 0.29 * 100 is 28.999...


@dataclass(frozen=True)
class TrimmedMean(Aggregator):
    """w + the mean of each coordinate without the share `trim` of lowest and of highest values.

    Of m updates floor(trim m) are left out at each end. While no more clients than that are
    arbitrary, every coordinate lies between those of two honest clients. This holds for buffers,
    too. All updates are held, in memory or on disk, and buffers in memory. Numbers of samples,
    which a client may invent, do not count.

    Attributes:
        trim: beta, at least 0 (the plain mean) and below 0.5; unless it is 0,
            `logic.min_updates` must be so large that one update is left out at each end.
        sparse: whether hooks that send less than half of an update's values are meant, as in
            `median`.
    """

    trim: float = 0.1
    sparse: bool = False

    each_client = True
    by_slices = True

    def __post_init__(self) -> None:
        if not 0 <= self.trim < 0.5:
            raise LogicError(f"trim must be at least 0 and below 0.5, not {self.trim}")

    def check(self, logic: Parts) -> None:
        """Refuse rounds that may have so few updates that none is left out, and sparse updates."""
        if not self.trim:
            return
        if not self.sparse:
            check_values_sent("TrimmedMean", logic)
        if self._cut(logic.min_updates) >= 1:
            return
        need = max(3, math.ceil((1 - Fraction(ROUNDING)) / Fraction(self.trim)))
        raise LogicError(
            f"TrimmedMean with trim: {self.trim} leaves none out of {logic.min_updates} updates, "
            "with which min_updates lets a round count, and would be the plain mean; set "
            f"logic.min_updates to {need} or more, or trim to 0 if the plain mean is meant"
        )

    @property
    def robust(self) -> bool:  # type: ignore[override]
        """Whether it leaves any update out."""
        return self.trim > 0

    def init(self, state: ServerState) -> StoredUpdates:
        """Start with nothing."""
        return StoredUpdates()

    def add(self, total: StoredUpdates, contribution: Contribution) -> StoredUpdates:
        """Keep one update."""
        return total.add(contribution)

    def finish(self, total: StoredUpdates, state: ServerState) -> ServerState:
        """Return the state with the trimmed mean applied."""
        cut = self._cut(len(total.deltas))
        delta = mean_of_sorted(total.deltas, cut)
        return total.applied(delta, mean_of_sorted(total.buffers, cut), state)

    def _cut(self, number: int) -> int:
        """Return how many of so many updates are left out at each end."""
        return min(int(self.trim * number + ROUNDING), (number - 1) // 2)
