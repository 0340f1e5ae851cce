"""FedDF (Lin et al. 2020, algorithm 3): the mean model learns what the clients' models say."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedmx import Asset, Hook, Need, ServerSide
from fedmx.parts import Distillation

UNLABELLED = "unlabelled"  # samples whose labels are not read


@dataclass(frozen=True)
class FedDF(Hook):
    share: float = 0.1  # of the training samples
    steps: int = 50
    batch_size: int = 32
    learning_rate: float = 0.05
    requires = frozenset({Need.EACH_CLIENT})

    @property
    def assets(self):
        return {UNLABELLED: Asset(self.share)}

    class Server(ServerSide):
        def __init__(self, hook):
            super().__init__(hook)
            self.logits = []  # of each client's model, (n, classes)

        def on_accepted(self, update, context):
            weights = context.start + update.delta
            self.logits.append(context.outputs_on_asset(UNLABELLED, weights, update.buffers))

        def conclude(self, state, context):  # the state has the mean of the clients' models
            if not self.logits:
                return state
            mean = np.mean(self.logits, axis=0, dtype=np.float64)
            likely = np.exp(mean - mean.max(axis=1, keepdims=True))
            soft = likely / likely.sum(axis=1, keepdims=True)
            training = replace(
                context.training,
                steps=self.hook.steps,
                batch_size=self.hook.batch_size,
                learning_rate=self.hook.learning_rate,
            )
            weights, buffers = context.train_on_asset(
                UNLABELLED,
                state.weights,
                state.buffers,
                training,
                context.seed,
                loss=Distillation(reference=None, weight=1.0),
                arrays={"soft_labels": soft},
            )
            return replace(state, weights=weights, buffers=buffers)
