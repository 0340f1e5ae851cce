"""The median and the trimmed mean of each coordinate (Yin et al. 2018, definitions 1 and 2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Annotated

import numpy as np
from annotated_types import Ge, Lt

from layers.logic.aggregators.mean import stepped
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.declaration import Need, Trait
from layers.logic.core.messages import EMPTY
from layers.logic.core.state import ServerState
from layers.logic.storage import StoredVector, Vector

VALUES = 1 << 12  # values of each update at a time, so that some dozens stay in the cache
WORK_BYTES = 24 * VALUES  # what a rule takes for each update while it works on a block, at most


@dataclass
class StoredUpdates:
    """The fold of a rule that cannot work on a sum: it holds all updates, in memory or on disk.

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

    def applied(
        self,
        delta: np.ndarray,
        buffers: np.ndarray,
        state: ServerState,
        shares: np.ndarray = EMPTY,
    ) -> ServerState:
        """Return the state moved by `delta` (d,), with the `buffers` (b,) in float32.

        Args:
            delta: the step.
            buffers: the next ones.
            state: the state after the last round.
            shares: see `ServerState.shares`.
        """
        moved = stepped(state, delta, buffers.astype(np.float32))
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


@dataclass(frozen=True)
class Median(Aggregator):
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


ROUNDING = 1e-9  # added to trim m, since 0.29 * 100 is 28.999...


@dataclass(frozen=True)
class TrimmedMean(Aggregator):
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
        """Return how many of these updates are left out at each end."""
        return min(int(self.trim * number + ROUNDING), (number - 1) // 2)


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
