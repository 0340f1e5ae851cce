"""Centered clipping: updates count in full only near the last round's step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from layers.logic.aggregators.collected import Combination, StoredUpdates
from layers.logic.aggregators.mean import add_scaled
from layers.logic.core.aggregator import AGGREGATE
from layers.logic.core.declaration import Need, Trait
from layers.logic.core.state import ServerState, frozen
from layers.logic.numeric.vectors import distance
from layers.settings import Count, Positive


@dataclass(frozen=True)
class CenteredClipping(Combination):
    """w + v, where v <- v + mean_k (delta_k - v) min(1, radius / ||delta_k - v||), repeated.

    Source: Karimireddy, He and Jaggi 2021, "Learning from history", algorithm 2.

    v starts from the step of the last round, which the server keeps; in round 1 from zero. So a
    client moves v by at most radius / m in an iteration, wherever its update lies. All updates are
    held, in memory or on disk. All clients have the same weight. Buffers are the coordinate-wise
    median of all.

    Attributes:
        radius: tau, the largest distance from v at which an update counts in full.
        iterations: L, how many times v moves.
    """

    name = "centered-clipping"

    radius: Positive = 1.0
    iterations: Count = 1

    requires = frozenset({Need.EACH_CLIENT})
    provides = frozenset({Trait.BY_SLICES, Trait.ROBUST})

    def combine(self, updates: StoredUpdates, state: ServerState) -> tuple[np.ndarray, np.ndarray]:
        """Return v; a share is the last iteration's clipping."""
        kept = state.memory.get(AGGREGATE, {}).get("step")
        v = np.zeros(state.weights.size) if kept is None else kept.astype(np.float64)
        clips = np.ones(len(updates.deltas))
        for _ in range(self.iterations):
            for place, delta in enumerate(updates.deltas):
                away = distance(delta, v)
                clips[place] = min(1.0, self.radius / away) if away else 1.0
            weights = clips / len(clips)
            after = v * (1 - np.add.reduce(weights))
            for delta, weight in zip(updates.deltas, weights.tolist(), strict=True):
                add_scaled(after, delta, weight)
            v = after
        return v, clips / np.add.reduce(clips)

    def finish(self, total: StoredUpdates, state: ServerState) -> ServerState:
        moved = super().finish(total, state)
        memory = {**moved.memory, AGGREGATE: {"step": frozen(moved.change.copy())}}
        return replace(moved, memory=memory)
