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

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from layers.logic.core.hook import Hook, ServerContext, ServerSide
from layers.logic.core.state import ServerState
from layers.settings import Decay, Positive

LARGEST = float(np.finfo(np.float32).max)


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

    memory_fits = True

    class Server(ServerSide["FedAvgM"]):
        def conclude(self, state: ServerState, context: ServerContext) -> ServerState:
            if state.weights is context.start:
                return state
            velocity = state.weights - context.start
            if "velocity" in context.memory:
                velocity += np.float32(self.hook.momentum) * context.memory["velocity"]
            context.keep(velocity=velocity)
            change = np.float32(self.hook.server_learning_rate) * velocity
            return replace(state, weights=context.start + change, change=change)


class Adaptive(Hook, ABC):
    """An adaptive optimiser, algorithm 2: its kinds differ in how v follows Delta^2."""

    server_learning_rate: float
    beta1: float
    tau: float

    memory_fits = True

    @abstractmethod
    def adapt(self, v: np.ndarray, square: np.ndarray) -> None:
        """Change v in place, by Delta^2; both are float64 (d,)."""

    class Server(ServerSide["Adaptive"]):
        def conclude(self, state: ServerState, context: ServerContext) -> ServerState:
            if state.weights is context.start:
                return state
            hook, memory = self.hook, context.memory
            delta = np.subtract(state.weights, context.start, dtype=np.float64)
            m = (1 - hook.beta1) * delta + hook.beta1 * memory.get("m", 0.0)
            v = np.full_like(delta, hook.tau**2)
            if "v" in memory:
                v[:] = memory["v"]
            hook.adapt(v, np.square(delta))
            context.keep(m=m.astype(np.float32), v=np.minimum(v, LARGEST).astype(np.float32))
            step = hook.server_learning_rate * m / (np.sqrt(v) + hook.tau)
            change = step.astype(np.float32)
            return replace(state, weights=context.start + change, change=change)


@dataclass(frozen=True)
class FedAdagrad(Adaptive):
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

    def adapt(self, v: np.ndarray, square: np.ndarray) -> None:
        v += square


@dataclass(frozen=True)
class FedAdam(Adaptive):
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

    def adapt(self, v: np.ndarray, square: np.ndarray) -> None:
        v *= self.beta2
        v += (1 - self.beta2) * square


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """FedYogi: v moves more slowly, v <- v - (1 - beta2) Delta^2 sign(v - Delta^2).

    Attributes:
        server_learning_rate: eta, the server's learning rate.
        beta1: decay of the first moment, m.
        beta2: decay of the second moment, v.
        tau: added to sqrt(v); the smaller it is, the more the steps adapt to v.
    """

    name = "fedyogi"

    def adapt(self, v: np.ndarray, square: np.ndarray) -> None:
        v -= (1 - self.beta2) * square * np.sign(v - square)
