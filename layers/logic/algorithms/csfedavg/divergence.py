"""How far each client's model is from one that was trained on balanced data (CSFedAvg)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layers.logic.core.hook import Context, Hook, ServerSide
from layers.logic.core.messages import Task, Training, Update
from layers.logic.errors import LogicError
from layers.logic.numeric.vectors import norm

METRIC = "divergence"
LEAST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Divergence(Hook):
    """The metric d_k = ||w_k - w_aux|| / ||w_aux|| of every update, which a selector can use.

    Zhang et al. 2021, "Client Selection for Federated Learning With Non-IID Data in Mobile Edge
    Computing": in each round the server trains w_aux from the global model, as a client would, on a
    small balanced set of its own. The set is taken out of the training samples. This costs the
    server one client's training in each round. Neither end keeps anything, and nothing more crosses
    the wire.

    Attributes:
        held_out: the server's set as a share of all training samples.
    """

    held_out: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise LogicError(f"held_out must lie between 0 and 1, not {self.held_out}")

    def server(self) -> ServerSide:
        """Return the half that trains and compares."""
        return _Comparing()


class _Comparing(ServerSide):
    """The server's side, for one round; it trains w_aux when the first update has come."""

    def __init__(self) -> None:
        self._training = Training()
        self._first: tuple[np.ndarray, int] | None = None
        self._starts: dict[int, np.ndarray] = {}  # of clients that did not get the global model
        self._model: np.ndarray | None = None

    def leave_out(self, clients: Sequence[int], context: Context) -> Mapping[int, str]:
        """Note how the round trains, which the task of a straggler does not say; leave out none."""
        self._training = context.training
        return {}

    def send(self, task: Task, context: Context) -> Task:
        if context.auxiliary is None:
            raise LogicError(
                "divergence: this server has no samples of its own to train on; give its Logic "
                "an auxiliary"
            )
        if self._first is None:
            # Of the plan's first client, so that w_aux does not depend on who answers first.
            self._first = (task.buffers, context.seed)
        if task.weights.size and task.weights is not context.start:
            self._starts[task.client] = task.weights
        return task

    def receive(self, update: Update, context: Context) -> Update:
        auxiliary = self._trained(context)
        if update.delta.shape != auxiliary.shape:
            return update  # the server's next check rejects it
        away = self._starts.get(update.client, context.start) + update.delta
        away -= auxiliary
        metrics = {**update.metrics, METRIC: norm(away) / max(norm(auxiliary), LEAST)}
        return replace(update, metrics=metrics)

    def _trained(self, context: Context) -> np.ndarray:
        if self._model is None:
            assert context.auxiliary is not None, "send has seen to that"
            assert self._first is not None, "a task comes before its update"
            buffers, seed = self._first
            self._model = context.auxiliary(context.start, buffers, self._training, seed)
        return self._model
