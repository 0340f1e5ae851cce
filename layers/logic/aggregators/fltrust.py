"""FLTrust: the server trains on a few samples of its own, and trusts updates that agree with it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from layers.logic.aggregators.collected import Combination, StoredUpdates
from layers.logic.aggregators.mean import add_scaled
from layers.logic.core.declaration import Need, Trait
from layers.logic.core.hook import Auxiliary, ServerContext
from layers.logic.core.messages import Training
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError
from layers.logic.numeric.vectors import inner, norm
from layers.logic.seeds import derive
from layers.settings import Fraction


@dataclass(kw_only=True)
class _Trusting(StoredUpdates):
    """The updates, and how the server makes its own."""

    train: Auxiliary
    training: Training
    seed: int

    def root(self, state: ServerState) -> np.ndarray:
        """Return the server's own update (d,)."""
        after = self.train(state.weights, state.buffers, self.training, self.seed)
        return np.asarray(after - state.weights)


@dataclass(frozen=True)
class FLTrust(Combination):
    """w + sum_k t_k (||g|| / ||delta_k||) delta_k / sum_k t_k with t_k = max(0, cos(delta_k, g)).

    Source: Cao et al. 2021, "FLTrust", equations 1 to 4.

    g is the server's own update: in each round it trains on samples of its own as a client does.
    An update of zeros has no trust, and without any trust the model stays as it is. So the rule
    also holds where most clients are arbitrary, as long as the server's samples are like those of
    the honest ones. All updates are held in memory. Buffers are the coordinate-wise median of all.

    Attributes:
        held_out: share of all training samples that the server keeps for itself, balanced over the
            classes (the paper has 100 samples).
    """

    name = "fltrust"

    held_out: Fraction = 0.01

    requires = frozenset({Need.EACH_CLIENT})
    provides = frozenset({Trait.ROBUST})

    def begin(self, state: ServerState, context: ServerContext) -> _Trusting:
        """Return no updates, and how the server trains.

        Raises:
            LogicError: the server has no samples.
        """
        if context.auxiliary is None:
            raise LogicError(
                "fltrust: this server has no samples to train on; give its Logic an auxiliary"
            )
        training = replace(context.training, loss="running")
        seed = derive(context.seed, "root")
        return _Trusting(train=context.auxiliary, training=training, seed=seed)

    def combine(self, updates: _Trusting, state: ServerState) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean of the trusted updates; a share is the update's trust."""
        deltas, root = updates.deltas, updates.root(state)
        length = norm(root)
        lengths = [norm(delta) for delta in deltas]
        trust = np.zeros(len(deltas))
        for place, (delta, own) in enumerate(zip(deltas, lengths, strict=True)):
            if own and length:
                trust[place] = max(0.0, inner(delta, root) / (own * length))
        shares = trust / (np.add.reduce(trust) or 1.0)
        mean = np.zeros(state.weights.size)
        for delta, own, share in zip(deltas, lengths, shares.tolist(), strict=True):
            if share:
                add_scaled(mean, delta, share * length / own)
        return mean, shares
