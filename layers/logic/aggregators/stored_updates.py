"""All updates of a round, for rules that must see every one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from layers.logic.aggregators.buffers import BufferMean
from layers.logic.aggregators.sums import stepped
from layers.logic.core.aggregator import Contribution
from layers.logic.core.state import ServerState

BLOCK = 1 << 12  # values of each update at a time, so that some dozens stay in the cache


@dataclass
class StoredUpdates:
    """The fold of a rule that cannot work on a sum: it holds all updates in memory.

    Attributes:
        buffers: the mean of the non-trainable state.
        deltas: float32 (d,) each, in the order of the plan.
        samples: of each.
    """

    buffers: BufferMean
    deltas: list[np.ndarray] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, state: ServerState) -> StoredUpdates:
        """Return the fold before the first update."""
        return cls(BufferMean(state))

    def add(self, contribution: Contribution) -> StoredUpdates:
        """Keep one more update."""
        self.buffers.add(contribution)
        self.deltas.append(contribution.delta)
        self.samples.append(contribution.samples)
        return self

    def applied(self, delta: np.ndarray, state: ServerState) -> ServerState:
        """Return the state moved by `delta` (d,), with the mean of the buffers."""
        return stepped(state, delta, self.buffers.mean())


def blocks(vectors: Sequence[np.ndarray]) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield parts of the vectors side by side, float32 (m, at most BLOCK), each after its place."""
    for start in range(0, vectors[0].size, BLOCK):
        part = slice(start, start + BLOCK)
        yield part, np.stack([vector[part] for vector in vectors])
