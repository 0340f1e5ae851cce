"""FLTrust (Cao et al. 2021, equations 1 to 4): the server trusts updates that agree with it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fedmx import Aggregator, Need, Trait


@dataclass
class Updates:
    root: np.ndarray  # g, of the server's own samples
    deltas: list = field(default_factory=list)
    buffers: list = field(default_factory=list)


@dataclass(frozen=True)
class Trusted(Aggregator):
    held_out: float = 0.02  # share of the samples that the server keeps
    requires = frozenset({Need.EACH_CLIENT})
    provides = frozenset({Trait.ROBUST})

    def begin(self, state, context):
        plan = replace(context.training, loss="running")
        after = context.auxiliary(state.weights, state.buffers, plan, context.seed)
        return Updates(after - state.weights)

    def add(self, total, contribution):
        total.deltas.append(contribution.delta)
        total.buffers.append(contribution.buffers)
        return total

    def finish(self, total, state):
        size = np.linalg.norm(total.root)
        trust, scaled = [], []
        for delta in total.deltas:
            length = np.linalg.norm(delta) or np.float32(1)
            trust.append(max(np.dot(delta, total.root) / (length * size or 1), 0))
            scaled.append(delta * (size / length))
        shares = np.array(trust) / (sum(trust) or 1)
        step = sum(share * delta for share, delta in zip(shares, scaled, strict=True))
        buffers = np.median(total.buffers, axis=0).astype(np.float32)
        weights = (state.weights + step).astype(np.float32)
        return replace(state, weights=weights, buffers=buffers, shares=shares)
