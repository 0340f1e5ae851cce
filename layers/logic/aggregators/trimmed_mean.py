"""The mean of each coordinate without its extreme values (Yin et al. 2018, definition 2)."""

from __future__ import annotations

from dataclasses import dataclass

from layers.logic.aggregators.median import mean_of_sorted
from layers.logic.aggregators.stored_updates import StoredUpdates
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError


@dataclass(frozen=True)
class TrimmedMean(Aggregator):
    """w + the mean of each coordinate without the share `trim` of lowest and of highest values.

    Of m updates floor(trim m) are left out at each end. While no more clients than that are
    arbitrary, every coordinate lies between those of two honest clients. All updates are held, in
    memory or on disk. Numbers of samples, which a client may invent, do not count; buffers are
    averaged as in FedAvg.

    Attributes:
        trim: beta, at least 0 (the plain mean) and below 0.5.
    """

    trim: float = 0.1

    each_client = True
    by_slices = True

    def __post_init__(self) -> None:
        if not 0 <= self.trim < 0.5:
            raise LogicError(f"trim must be at least 0 and below 0.5, not {self.trim}")

    def init(self, state: ServerState) -> StoredUpdates:
        """Start with nothing."""
        return StoredUpdates.of(state)

    def add(self, total: StoredUpdates, contribution: Contribution) -> StoredUpdates:
        """Keep one update."""
        return total.add(contribution)

    def finish(self, total: StoredUpdates, state: ServerState) -> ServerState:
        """Return the state with the trimmed mean applied."""
        number = len(total.deltas)
        cut = min(int(self.trim * number + 1e-9), (number - 1) // 2)  # 0.29 * 100 is 28.999...
        return total.applied(mean_of_sorted(total.deltas, cut), state)
