"""The median of each coordinate (Yin et al. 2018, definition 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layers.logic.aggregators.stored_updates import StoredUpdates, blocks
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.parts import Parts
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError
from layers.logic.storage import Vector


@dataclass(frozen=True)
class Median(Aggregator):
    """w + the coordinate-wise median of the updates; all clients have the same weight.

    While fewer than half of the clients are arbitrary, every coordinate lies between those of two
    honest clients. This holds for buffers, too. A round has `logic.min_updates` updates at least,
    and f arbitrary clients need 2 f + 1. All updates are held, in memory or on disk, and buffers in
    memory. Numbers of samples, which a client may invent, do not count.

    Attributes:
        sparse: whether hooks that send less than half of an update's values are meant. A coordinate
            that most clients do not send is 0 for them, and so is its median: the model stands
            still there.
    """

    sparse: bool = False

    each_client = True
    by_slices = True
    robust = True

    def check(self, logic: Parts) -> None:
        """Refuse updates of which most values are 0, unless `sparse` says that they are meant."""
        if not self.sparse:
            check_values_sent("Median", logic)

    def init(self, state: ServerState) -> StoredUpdates:
        """Start with nothing."""
        return StoredUpdates()

    def add(self, total: StoredUpdates, contribution: Contribution) -> StoredUpdates:
        """Keep one update."""
        return total.add(contribution)

    def finish(self, total: StoredUpdates, state: ServerState) -> ServerState:
        """Return the state with the median applied."""
        delta = coordinate_median(total.deltas)
        return total.applied(delta, coordinate_median(total.buffers), state)


def check_values_sent(rule: str, logic: Parts) -> None:
    """Check that a rule that looks at each coordinate gets most values of each update.

    Raises:
        LogicError: a hook sends less than half of them.
    """
    for hook in logic.hooks:
        if hook.share_sent < 0.5:
            name = type(hook).__name__
            raise LogicError(
                f"{name} sends less than half of an update's values, and where most clients send "
                f"none, {rule} finds 0 and leaves the model as it is; use a rule that compares "
                "whole updates, such as geometric-median or norm-clip, or set sparse: true in the "
                "aggregator if that is meant"
            )


def coordinate_median(vectors: Sequence[Vector]) -> np.ndarray:
    """Return float64 (d,), the median of each coordinate of float32 (d,) vectors."""
    return mean_of_sorted(vectors, (len(vectors) - 1) // 2)


def mean_of_sorted(vectors: Sequence[Vector], cut: int) -> np.ndarray:
    """Return float64 (d,): the mean of each coordinate without `cut` lowest and highest values."""
    mean = np.empty(vectors[0].size)
    for part, block in blocks(vectors):
        block.sort(axis=0)  # so the sum does not depend on the order of the clients either
        mean[part] = np.mean(block[cut : len(vectors) - cut], axis=0, dtype=np.float64)
    return mean
