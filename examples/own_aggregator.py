"""Your own aggregator: centered clipping (Karimireddy, He and Jaggi 2021, section 4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from annotated_types import Gt

from fedmx import AGGREGATE, Aggregator, BufferMedian, Need, ServerState, Trait


class Total:
    def __init__(self, state: ServerState) -> None:
        zero = np.zeros_like(state.weights)
        self.centre = state.memory.get(AGGREGATE, {}).get("centre", zero)  # the last round's step
        self.clipped = zero.astype(np.float64)
        self.clients = 0
        self.buffers = BufferMedian()


@dataclass(frozen=True)
class CenteredClip(Aggregator):
    """v <- v + mean_k (delta_k - v) min(1, radius / ||delta_k - v||), w <- w + v."""

    radius: Annotated[float, Gt(0)] = 1.0
    requires = frozenset({Need.EACH_CLIENT})  # a lane of several clients would only give their sum
    provides = frozenset({Trait.ROBUST})  # hooks that would undo it, such as scaffold, are refused

    def init(self, state: ServerState) -> Total:
        return Total(state)

    def add(self, total, contribution):
        away = contribution.delta - total.centre
        total.clipped += away * min(1.0, self.radius / max(float(np.linalg.norm(away)), 1e-12))
        total.clients += 1
        total.buffers.add(contribution)
        return total

    def finish(self, total: Total, state: ServerState) -> ServerState:
        step = total.centre + (total.clipped / total.clients).astype(np.float32)
        memory = {**state.memory, AGGREGATE: {"centre": step}}
        weights, buffers = state.weights + step, total.buffers.median()
        return replace(state, weights=weights, buffers=buffers, memory=memory)
