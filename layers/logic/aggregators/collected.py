"""Rules that cannot work on a sum: they keep all updates, and combine them at the end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from layers.logic.aggregators.mean import stepped
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.state import ServerState
from layers.logic.storage import StoredVector, Vector

VALUES = 1 << 12  # values of each update at a time, so that some dozens stay in the cache
WORK_BYTES = 24 * VALUES  # what a rule takes for each update while it works on a block, at most


@dataclass
class StoredUpdates:
    """All updates of a round, in memory or on disk.

    Attributes:
        deltas: float32 (d,) each, in the order of the plan.
        buffers: float32 (b,) each, in memory.
        samples: of each.
    """

    deltas: list[Vector] = field(default_factory=list)
    buffers: list[np.ndarray] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)

    def add(self, contribution: Contribution) -> StoredUpdates:
        """Keep one more update."""
        self.deltas.append(contribution.delta)
        # A view of the message, however small, would keep all of its memory.
        self.buffers.append(contribution.buffers.copy())
        self.samples.append(contribution.samples)
        return self


class Combination(Aggregator):
    """w + a combination of all updates, with the coordinate-wise median of all buffers.

    Updates are on disk only for a rule with `Trait.BY_SLICES`.
    """

    def init(self, state: ServerState) -> StoredUpdates:
        return StoredUpdates()

    def add(self, total: Any, contribution: Contribution) -> Any:
        return total.add(contribution)

    @abstractmethod
    def combine(self, updates: Any, state: ServerState) -> tuple[np.ndarray, np.ndarray]:
        """Return the step (d,), and how much each update counted (see `ServerState.shares`)."""

    def buffers(self, updates: StoredUpdates) -> np.ndarray:
        """Return the next buffers (b,)."""
        return coordinate_median(updates.buffers)

    def finish(self, total: Any, state: ServerState) -> ServerState:
        step, shares = self.combine(total, state)
        moved = stepped(state, step, self.buffers(total).astype(np.float32))
        return replace(moved, shares=shares)


def blocks(vectors: Sequence[Vector]) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield parts of the vectors side by side, float32 (m, at most VALUES), each after its place.

    The parts are the same whether the vectors are in memory or on disk, and so are sums over them.
    """
    values = _values_at_once(vectors)
    for start in range(0, vectors[0].size, values):
        slices = [vector[start : start + values] for vector in vectors]
        for inner in range(0, slices[0].size, VALUES):
            part = slice(start + inner, start + inner + VALUES)
            yield part, np.stack([one[inner : inner + VALUES] for one in slices])
        del slices  # before the next ones are read


def _values_at_once(vectors: Sequence[Vector]) -> int:
    """Return how many values of each vector are read at a time, a multiple of VALUES."""
    stored = next((one for one in vectors if isinstance(one, StoredVector)), None)
    if stored is None:
        return max(vectors[0].size, 1)
    left = stored.memory_bytes // len(vectors) - WORK_BYTES
    fitting = left // stored.dtype.itemsize
    return max(fitting // VALUES, 1) * VALUES


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


class BufferMedian:
    """A fold: the median of each coordinate of the buffers; numbers of samples do not count.

    While fewer than half of the clients are arbitrary, every coordinate lies between those of two
    honest clients. The buffers of all clients are held in memory.
    """

    def __init__(self) -> None:
        self._buffers: list[np.ndarray] = []

    def add(self, contribution: Contribution) -> None:
        """Add one contribution."""
        # A view of the message, however small, would keep all of its memory.
        self._buffers.append(contribution.buffers.copy())

    def median(self) -> np.ndarray:
        """Return the median, float32 (b,); there must be one contribution or more."""
        return coordinate_median(self._buffers).astype(np.float32)
