"""FedShare (Zhao et al. 2018): every client also trains on a small balanced set of samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from layers.logic.aggregators.mean import Mean
from layers.logic.core.asset import Asset
from layers.logic.core.engine import ArrayData, Data
from layers.logic.core.hook import ClientContext, ClientSide, Hook, ServerContext, ServerSide
from layers.logic.core.messages import MOST_SAMPLES
from layers.logic.core.preset import Preset, settings_of_parts
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError
from layers.logic.seeds import derive
from layers.logic.selectors.uniform import Uniform
from layers.settings import Fraction, PositiveShare, WholeNumber

ASSET = "shared"


@dataclass(frozen=True)
class FedShare(Hook):
    """Each client trains on its own samples and on a random part of a set G that every client gets.

    Zhao et al. 2018, "Federated Learning with Non-IID Data", section 4: G is balanced over the
    classes, has the share beta of all training samples, and is taken out of them, so that nothing
    counts twice. The number of samples n_k, by which models are averaged, counts the shared ones.
    Neither side keeps anything. G is an asset: each client receives it once.

    With `warm_up` the server first trains the initial model on the whole of G, in batches and at
    the learning rate of a client's first round, and the rounds begin from that (section 4.2).

    Attributes:
        shared: beta, the size of G as a share of all training samples.
        part: the share of G that a client trains on, the same samples in every round.
        warm_up: epochs that the server trains on G before round 1; 0: none.
    """

    name = "fedshare"

    shared: Fraction = 0.05
    part: PositiveShare = 1.0
    warm_up: WholeNumber = 0

    @property
    def assets(self) -> Mapping[str, Asset]:
        return {ASSET: Asset(self.shared)}

    def taken(self, shared: int) -> int:
        """Return how many of the shared samples a client trains on."""
        return max(round(self.part * shared), 1)

    class Server(ServerSide["FedShare"]):
        def warm_up(self, state: ServerState, context: ServerContext) -> ServerState:
            if not self.hook.warm_up:
                return state
            if context.train_on_asset is None:
                raise LogicError(
                    "fedshare: this server has no samples to warm up on; give its Logic a "
                    "train_on_asset, or set warm_up to 0"
                )
            epochs = self.hook.warm_up
            training = replace(context.training, epochs=epochs, steps=None, loss="running")
            seed = derive(context.seed, "warm-up")
            weights, buffers = context.train_on_asset(
                ASSET, state.weights, state.buffers, training, seed
            )
            return replace(state, weights=weights, buffers=buffers)

        def most_samples(self, samples: int, context: ServerContext) -> int:
            if ASSET not in context.asset_sizes:  # a logic that was built by hand has no asset
                return MOST_SAMPLES
            return samples + self.hook.taken(context.asset_sizes[ASSET])

    class Client(ClientSide["FedShare"]):
        def samples(self, data: Data, context: ClientContext) -> Data:
            shared = context.assets[ASSET]
            number = self.hook.taken(len(shared))
            rows = context.run_rng().permutation(len(shared))[:number]  # the same in every round
            return ArrayData(
                np.concatenate([data.x, shared.x[np.sort(rows)]]),
                np.concatenate([data.y, shared.y[np.sort(rows)]]),
            )


@settings_of_parts()
def fedshare() -> Preset:
    """FedShare (Zhao et al. 2018): FedAvg, and a small balanced set that all clients train on."""
    return Preset(Uniform(), Mean(), (FedShare(),))
