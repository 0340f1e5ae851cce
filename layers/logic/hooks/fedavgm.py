"""Momentum on the server (FedAvgM: Hsu, Qi, Brown 2019, section 4.3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from layers.logic.core.hook import Context, Hook, ServerSide
from layers.logic.core.messages import Update
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError


@dataclass(frozen=True)
class FedAvgM(Hook):
    """v <- beta v + Delta, w <- w + eta v, where Delta is what aggregation would add to w.

    The server keeps v. The client has nothing to do, and nothing more crosses the wire. The hook
    works with every aggregator. A round without an accepted update leaves w and v as they are.

    Attributes:
        server_learning_rate: eta, the server's learning rate.
        momentum: beta; with beta 0 and eta 1 the hook changes nothing.
    """

    server_learning_rate: float = 1.0
    momentum: float = 0.9

    memory_outlives_settings = True

    def __post_init__(self) -> None:
        if not 0 < self.server_learning_rate < math.inf:
            raise LogicError(
                f"server_learning_rate must be greater than 0, not {self.server_learning_rate}"
            )
        if not 0 <= self.momentum < 1:
            raise LogicError(f"momentum must be at least 0 and below 1, not {self.momentum}")

    def server(self) -> ServerSide:
        """Return the half that keeps v."""
        return _Momentum(self.server_learning_rate, self.momentum)


class _Momentum(ServerSide):
    def __init__(self, rate: float, momentum: float) -> None:
        self._rate = np.float32(rate)
        self._momentum = np.float32(momentum)
        self._accepted = False

    def on_accepted(self, update: Update, context: Context) -> None:
        self._accepted = True

    def conclude(self, state: ServerState, context: Context) -> ServerState:
        if not self._accepted:
            return state
        velocity = state.weights - context.start
        if "velocity" in context.memory:
            velocity += self._momentum * context.memory["velocity"]
        context.keep(velocity=velocity)
        change = self._rate * velocity
        return replace(state, weights=context.start + change, change=change)
