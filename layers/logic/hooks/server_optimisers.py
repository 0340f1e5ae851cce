"""Optimisers on the server: momentum (FedAvgM) and adaptive steps (Reddi et al. 2021).

Delta is the change that aggregation would add to w. It takes the place of a negative gradient:

    v <- beta v + Delta,  w <- w + eta v                FedAvgM (Hsu, Qi, Brown 2019, section 4.3)

    m <- beta1 m + (1 - beta1) Delta                    Reddi et al. 2021, algorithm 2
    v <- v + Delta^2                                    FedAdagrad
    v <- v - (1 - beta2) Delta^2 sign(v - Delta^2)      FedYogi
    v <- beta2 v + (1 - beta2) Delta^2                  FedAdam
    w <- w + eta m / (sqrt(v) + tau)

In algorithm 2 m starts at 0 and v at tau^2. The server keeps both. Clients do nothing, and nothing
more is sent. The hooks work with every aggregator; algorithm 2 uses the mean with equal weights. A
round that does not change the model leaves w, m and v as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from layers.logic.core.declaration import Trait
from layers.logic.core.hook import Hook, ServerContext, ServerSide
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError
from layers.settings import Decay, Positive


@dataclass(frozen=True)
class FedAvgM(Hook):
    """v <- beta v + Delta, w <- w + eta v, where Delta is what aggregation would add to w.

    The server keeps v. Clients do nothing, and nothing more is sent. The hook
    works with every aggregator. A round without an accepted update leaves w and v as they are.

    Attributes:
        server_learning_rate: eta, the server's learning rate.
        momentum: beta; with beta 0 and eta 1 the hook changes nothing.
    """

    name = "fedavgm"

    server_learning_rate: Positive = 1.0
    momentum: Decay = 0.9

    provides = frozenset({Trait.MEMORY_FITS})

    def server(self) -> ServerSide:
        """Return the side that keeps v."""
        return _Momentum(self.server_learning_rate, self.momentum)


class _Momentum(ServerSide):
    def __init__(self, rate: float, momentum: float) -> None:
        self._rate = np.float32(rate)
        self._momentum = np.float32(momentum)

    def conclude(self, state: ServerState, context: ServerContext) -> ServerState:
        if state.weights is context.start:
            return state
        velocity = state.weights - context.start
        if "velocity" in context.memory:
            velocity += self._momentum * context.memory["velocity"]
        context.keep(velocity=velocity)
        change = self._rate * velocity
        return replace(state, weights=context.start + change, change=change)


LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class FedAdagrad(Hook):
    """FedAdagrad: steps shrink where the updates were large, v <- v + Delta^2.

    Attributes:
        server_learning_rate: eta, the server's learning rate.
        beta1: decay of the first moment, m.
        tau: added to sqrt(v); the smaller it is, the more the steps adapt to v.
    """

    name = "fedadagrad"

    server_learning_rate: Positive = 0.1
    beta1: Decay = 0.0
    tau: Positive = 1e-3

    provides = frozenset({Trait.MEMORY_FITS})

    def server(self) -> ServerSide:
        """Return the side that keeps m and v."""
        return _Adaptive(
            self.server_learning_rate, self.beta1, self.tau, lambda v, square: v + square
        )


@dataclass(frozen=True)
class FedAdam(Hook):
    """FedAdam: v follows the recent updates, v <- beta2 v + (1 - beta2) Delta^2.

    Attributes:
        server_learning_rate: eta, the server's learning rate.
        beta1: decay of the first moment, m.
        beta2: decay of the second moment, v.
        tau: added to sqrt(v); the smaller it is, the more the steps adapt to v.
    """

    name = "fedadam"

    server_learning_rate: Positive = 0.01
    beta1: Decay = 0.9
    beta2: Decay = 0.99
    tau: Positive = 1e-3

    provides = frozenset({Trait.MEMORY_FITS})

    def server(self) -> ServerSide:
        """Return the side that keeps m and v."""
        b = self.beta2
        return _Adaptive(
            self.server_learning_rate, self.beta1, self.tau, lambda v, s: b * v + (1 - b) * s
        )


@dataclass(frozen=True)
class FedYogi(Hook):
    """FedYogi: v moves more slowly, v <- v - (1 - beta2) Delta^2 sign(v - Delta^2).

    Attributes:
        server_learning_rate: eta, the server's learning rate.
        beta1: decay of the first moment, m.
        beta2: decay of the second moment, v.
        tau: added to sqrt(v); the smaller it is, the more the steps adapt to v.
    """

    name = "fedyogi"

    server_learning_rate: Positive = 0.01
    beta1: Decay = 0.9
    beta2: Decay = 0.99
    tau: Positive = 1e-3

    provides = frozenset({Trait.MEMORY_FITS})

    def server(self) -> ServerSide:
        """Return the side that keeps m and v."""
        part = 1 - self.beta2
        return _Adaptive(
            self.server_learning_rate,
            self.beta1,
            self.tau,
            lambda v, s: v - part * s * np.sign(v - s),
        )


def _check(rate: float, tau: float, **betas: float) -> None:
    for name, value in (("server_learning_rate", rate), ("tau", tau)):
        if not 0 < value < math.inf:
            raise LogicError(f"{name} must be greater than 0 and finite, not {value}")
    for name, value in betas.items():
        if not 0 <= value < 1:
            raise LogicError(f"{name} must be at least 0 and below 1, not {value}")


class _Adaptive(ServerSide):
    def __init__(
        self,
        rate: float,
        beta1: float,
        tau: float,
        rule: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ) -> None:
        self._rate, self._beta1, self._tau, self._rule = rate, beta1, tau, rule

    def conclude(self, state: ServerState, context: ServerContext) -> ServerState:
        if state.weights is context.start:
            return state
        delta = np.subtract(state.weights, context.start, dtype=np.float64)
        m = (1 - self._beta1) * delta + self._beta1 * context.memory.get("m", 0.0)
        v = np.full_like(delta, self._tau**2)
        if "v" in context.memory:
            v[:] = context.memory["v"]
        v = self._rule(v, np.square(delta))
        context.keep(m=m.astype(np.float32), v=np.minimum(v, LARGEST).astype(np.float32))
        step = self._rate * m / (np.sqrt(v) + self._tau)
        change = step.astype(np.float32)
        return replace(state, weights=context.start + change, change=change)
