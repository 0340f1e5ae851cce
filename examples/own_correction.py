"""Your own correction: FedDyn (Acar et al. 2021, algorithm 1), with a memory on each side."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedmx import ClientContext, ClientSide, Hook, ServerContext, ServerSide, ServerState, Update

ZERO = np.float32(0)


@dataclass(frozen=True)
class FedDyn(Hook):
    alpha: float = 0.1

    def client(self) -> ClientSide:
        return Dynamic(np.float32(self.alpha))

    def server(self) -> ServerSide:
        return Drift()


class Dynamic(ClientSide):  # g - h_k + alpha (w' - w), then h_k <- h_k - alpha (w_k - w)
    def __init__(self, alpha: np.float32) -> None:
        self.alpha = alpha

    def gradient(self, gradient: np.ndarray, weights: np.ndarray, context: ClientContext) -> None:
        gradient += self.alpha * (weights - context.start) - context.memory.get("h", ZERO)

    def send(self, update: Update, context: ClientContext) -> Update:
        context.keep(h=context.memory.get("h", ZERO) - self.alpha * update.delta)
        return update


class Drift(ServerSide):  # s <- s + (m / N) mean_k delta_k, then w <- w + mean_k delta_k + s
    def on_accepted(self, update: Update, context: ServerContext) -> None:
        context.keep(m=context.memory.get("m", 0) + 1)

    def conclude(self, state: ServerState, context: ServerContext) -> ServerState:
        mean = state.weights - context.start
        share = np.float32(context.memory.get("m", 0) / context.clients)
        drift = context.memory.get("s", ZERO) + share * mean
        context.keep(s=drift, m=0)
        return replace(state, weights=state.weights + drift)
