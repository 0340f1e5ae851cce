"""All updates of a round, for rules that must see every one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from layers.logic.aggregators.sums import stepped
from layers.logic.core.aggregator import Contribution
from layers.logic.core.state import ServerState
from layers.logic.storage import StoredVector, Vector

BLOCK = 1 << 12  # values of each update at a time, so that some dozens stay in the cache
WORK_BYTES = 24 * BLOCK  # what a rule takes for each update while it works on a block, at most


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

    def applied(self, delta: np.ndarray, buffers: np.ndarray, state: ServerState) -> ServerState:
        """Return the state moved by `delta` (d,), with the `buffers` (b,) in float32."""
        return stepped(state, delta, buffers.astype(np.float32))


def blocks(vectors: Sequence[Vector]) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield parts of the vectors side by side, float32 (m, at most BLOCK), each after its place.

    The parts are the same whether the vectors are in memory or on disk, and so are sums over them.
    """
    values = _values_at_once(vectors)
    for start in range(0, vectors[0].size, values):
        slices = [vector[start : start + values] for vector in vectors]
        for inner in range(0, slices[0].size, BLOCK):
            part = slice(start + inner, start + inner + BLOCK)
            yield part, np.stack([one[inner : inner + BLOCK] for one in slices])
        del slices  # before the next ones are read


def _values_at_once(vectors: Sequence[Vector]) -> int:
    """Return how many values of each vector are read at a time, a multiple of BLOCK."""
    stored = next((one for one in vectors if isinstance(one, StoredVector)), None)
    if stored is None:
        return max(vectors[0].size, 1)
    left = stored.memory_bytes // len(vectors) - WORK_BYTES
    fitting = left // stored.dtype.itemsize
    return max(fitting // BLOCK, 1) * BLOCK
