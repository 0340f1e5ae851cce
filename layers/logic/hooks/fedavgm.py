"""Momentum on the server (FedAvgM: Hsu, Qi, Brown 2019, section 4.3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from layers.logic.core.hook import Context, Hook, ServerHalf
from layers.logic.core.messages import Update
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError

if TYPE_CHECKING:
    from layers.logic.round.logic import Logic


@dataclass(frozen=True)
class FedAvgM(Hook):
    """v <- beta v + Delta, w <- w + eta v, where Delta is what aggregation would add to w.

    The server keeps v. The client has nothing to do, and nothing more crosses the wire. It goes
    with any aggregator: Delta is what that makes of the updates. A round in which nobody returned
    moves nothing.

    Attributes:
        server_learning_rate: eta, the server's learning rate.
        momentum: beta; 0 with learning rate 1 is aggregation as it is.
    """

    server_learning_rate: float = 1.0
    momentum: float = 0.9

    def __post_init__(self) -> None:
        if not 0 < self.server_learning_rate < math.inf:
            raise LogicError(
                f"server_learning_rate must be greater than 0, not {self.server_learning_rate}"
            )
        if not 0 <= self.momentum < 1:
            raise LogicError(f"momentum must be at least 0 and below 1, not {self.momentum}")

    def check(self, logic: Logic) -> None:
        """Refuse to move a model that has been encoded already."""
        check_before_encoding(self, logic)

    def server(self) -> ServerHalf:
        """Return the half that keeps v."""
        return _Momentum(self.server_learning_rate, self.momentum)


def check_before_encoding(hook: Hook, logic: Logic) -> None:
    """Raise `LogicError` for a hook that changes the model after another one has encoded it."""
    name = type(hook).__name__
    before = [type(h).__name__ for h in logic.hooks[: logic.hooks.index(hook)] if h.encodes_model]
    if before:
        raise LogicError(
            f"{name} changes the model after {before[0]} has encoded it for clients; put {name} "
            f"before {before[0]} in logic.hooks (a preset's hooks come last)"
        )


class _Momentum(ServerHalf):
    def __init__(self, rate: float, momentum: float) -> None:
        self._rate = np.float32(rate)
        self._momentum = np.float32(momentum)
        self._counted = False

    def on_accepted(self, update: Update, context: Context) -> None:
        self._counted = True

    def conclude(self, state: ServerState, context: Context) -> ServerState:
        if not self._counted:
            return state
        velocity = state.weights - context.start
        if "velocity" in context.memory:
            velocity += self._momentum * context.memory["velocity"]
        context.keep(velocity=velocity)
        return replace(state, weights=context.start + self._rate * velocity)
