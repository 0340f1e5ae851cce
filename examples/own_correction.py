"""Your own correction: FedDyn (Acar et al. 2021, algorithm 1), with a memory on each side."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedmx import ClientSide, Hook, Need, ServerSide


@dataclass(frozen=True)
class FedDyn(Hook):
    alpha: float = 0.1
    requires = frozenset({Need.EACH_CLIENT})  # a lane of several clients would only give their sum
    counts_clients = True  # it uses N

    class Client(ClientSide):  # g - h_k + alpha (w' - w), then h_k <- h_k - alpha (w_k - w)
        def gradient(self, gradient, weights, context):
            gradient += self.hook.alpha * (weights - context.start) - context.memory.get("h", 0)

        def send(self, update, context):
            context.keep(h=context.memory.get("h", 0) - self.hook.alpha * update.delta)
            return update

    class Server(ServerSide):  # w <- w + mean_k delta_k + (1 / N) sum_k d_k, d_k = -h_k / alpha
        def __init__(self, hook):
            super().__init__(hook)
            self.anew, self.deltas = set(), {}

        def send(self, task, context):  # a client that is new, or has lost its memory, has h_k = 0
            self.anew |= set() if task.last_accepted_round else {task.client}
            return task

        def on_accepted(self, update, context):
            self.deltas[update.client] = update.delta

        def on_removed(self, clients, context):
            kept = {k: d for k, d in context.memory.get("d", {}).items() if k not in clients}
            context.keep(d=kept)

        def conclude(self, state, context):
            self.on_removed(self.anew, context)
            d = context.memory["d"]
            d |= {k: d.get(k, 0) + delta for k, delta in self.deltas.items()}
            drift = sum(d[k] for k in sorted(d)) / np.float32(context.clients)
            return replace(state, weights=state.weights + drift) if self.deltas else state
