"""FedDC (Gao et al. 2022, algorithm 1): clients keep their drift, and the server adds it back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedmx import ClientSide, Hook, Need, ServerSide


@dataclass(frozen=True)
class FedDC(Hook):
    alpha: float = 0.1
    requires = frozenset({Need.EACH_CLIENT})

    class Client(ClientSide):
        def receive(self, task, context):
            self.mean = context.slot.get("mean", np.float32(0))  # g, of the round before
            return task

        def samples(self, data, context):
            training = context.training
            self.path = np.float32(training.learning_rate * training.steps_over(len(data)))  # eta K
            return data

        def gradient(self, gradient, weights, context):
            drift, own = context.memory.get("drift", 0), context.memory.get("own", 0)
            pull = self.hook.alpha * (drift + weights - context.start)
            gradient += pull + (own - self.mean) / self.path

        def send(self, update, context):
            drift = context.memory.get("drift", 0) + update.delta
            context.keep(drift=drift, own=update.delta)
            context.slot["drift"] = drift
            return update

    class Server(ServerSide):
        def __init__(self, hook):
            super().__init__(hook)
            self.drifts = []

        def send(self, task, context):
            if "mean" in context.memory:
                context.slot["mean"] = context.memory["mean"]
            return task

        def on_accepted(self, update, context):
            self.drifts.append(context.slot["drift"])

        def conclude(self, state, context):  # w <- mean_k (w_k + h_k)
            if not self.drifts:
                return state
            context.keep(mean=state.weights - context.start)
            drift = sum(self.drifts) / np.float32(len(self.drifts))
            return replace(state, weights=state.weights + drift)
