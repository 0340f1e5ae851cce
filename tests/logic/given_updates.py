"""Hooks by which a test decides what clients send, and sees what they receive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from layers.logic import ClientSide, Hook, Logic, ServerSide, Update
from tests.logic.memory_carrier import MemoryCarrier, alone
from tests.logic.quadratic import Quadratic, Tensor


class Identity:
    """The identity matrix of any size, in no memory."""

    __array_ufunc__ = None

    def __matmul__(self, vector: np.ndarray) -> np.ndarray:
        return vector

    __rmatmul__ = __matmul__


@dataclass(frozen=True)
class Given(Hook):
    """In place of what client k trained in round r, `deltas[r, k]` goes on to the next hook.

    Where that is not finite, the client's training diverges.
    """

    deltas: Mapping[tuple[int, int], np.ndarray]

    class Client(ClientSide):
        def samples(self, data: Quadratic, context) -> Quadratic:
            given = self.hook.deltas.get((context.round, context.client))
            if given is None or np.isfinite(given).all():
                return data
            return replace(data, b=np.full_like(data.b, np.nan))

        def send(self, update: Update, context) -> Update:
            return replace(update, delta=self.hook.deltas[update.round, update.client])


@dataclass(frozen=True)
class Witness(Hook):
    """First in the list: sees what the others made of models and updates.

    Attributes:
        models: what the server sent, and what the client had when it had received it.
        updates: what the client trained, and what came out on the server.
    """

    models: list = field(default_factory=list, compare=False)
    updates: list = field(default_factory=list, compare=False)
    sent: dict = field(default_factory=dict, compare=False)

    class Server(ServerSide):
        def send(self, task, context):
            self.hook.sent["model", task.round, task.client] = task.weights
            return task

        def receive(self, update, context):
            trained = self.hook.sent["update", update.round, update.client]
            self.hook.updates.append((trained, update.delta))
            return update

    class Client(ClientSide):
        def receive(self, task, context):
            model = self.hook.sent["model", task.round, task.client]
            self.hook.models.append((model, task.weights.copy()))
            return task

        def send(self, update, context):
            self.hook.sent["update", update.round, update.client] = update.delta.copy()
            return update


def idle(size: int) -> Quadratic:
    """Return a client that has nothing to learn."""
    return Quadratic(Identity(), np.zeros(size), 10)


def tensors(*sizes: int) -> Sequence[Tensor]:
    """Return a layout of tensors of these sizes."""
    stops = np.cumsum(sizes).tolist()
    return [
        Tensor(f"t{i}", (n,), stop - n, stop)
        for i, (n, stop) in enumerate(zip(sizes, stops, strict=True))
    ]


def peers_of(hook: Hook, deltas: Mapping[tuple[int, int], np.ndarray], sizes, **settings):
    """Return peers whose clients send `deltas` through `hook`, all of them in every round."""
    clients = sorted({client for _, client in deltas})
    settings = {"selector": alone(*clients), **settings}
    logic = Logic(layout=tensors(*sizes), hooks=[Given(deltas), hook], **settings)
    return MemoryCarrier(logic, {client: idle(sum(sizes)) for client in clients})


def kept(peers: MemoryCarrier, client: int, state, hook: str) -> dict:
    """Return what the client's side of a hook keeps."""
    return dict(peers.memory(client, state).memory[hook])
