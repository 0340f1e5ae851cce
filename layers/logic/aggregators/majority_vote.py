"""The majority of the updates' signs (signSGD with majority vote: Bernstein et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from layers.logic.aggregators.collected import BufferMedian
from layers.logic.aggregators.mean import BLOCK
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.declaration import Trait
from layers.logic.core.state import ServerState
from layers.settings import Bound


@dataclass
class _Votes:
    sign: np.ndarray
    size: np.ndarray
    buffers: BufferMedian
    voters: int


@dataclass(frozen=True)
class MajorityVote(Aggregator):
    """w + s sign(sum_k sign(delta_k)): each client has one vote a parameter, a tie changes nothing.

    Buffers are the coordinate-wise median of all, with equal weights; they are held in memory.

    Attributes:
        step: s, the same for each parameter. None: for each parameter the mean of the clients'
            |delta_k|, which for sign-coded updates is the mean of their scales; one client can
            make it as large as `logic.max_update` allows.
    """

    name = "majority-vote"

    step: Bound | None = None

    @property
    def provides(self) -> frozenset[Trait]:
        """Robust if `step` is set; without it one client decides how far the model moves."""
        return frozenset({Trait.BY_SLICES, *(() if self.step is None else (Trait.ROBUST,))})

    def init(self, state: ServerState) -> _Votes:
        size = state.weights.size
        return _Votes(np.zeros(size, np.int32), np.zeros(size), BufferMedian(), 0)

    def add(self, total: _Votes, contribution: Contribution) -> _Votes:
        for start in range(0, total.sign.size, BLOCK):
            part = slice(start, start + BLOCK)
            values = contribution.delta[part]
            total.sign[part] += np.sign(values).astype(np.int8)
            if self.step is None:
                total.size[part] += np.abs(values)
        total.buffers.add(contribution)
        total.voters += 1
        return total

    def finish(self, total: _Votes, state: ServerState) -> ServerState:
        change = np.sign(total.sign).astype(np.float32)
        if self.step is None:
            change *= (total.size / total.voters).astype(np.float32)
        else:
            change *= np.float32(self.step)
        return replace(state, weights=state.weights + change, buffers=total.buffers.median())
