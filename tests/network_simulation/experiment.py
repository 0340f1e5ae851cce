"""The experiments of simulated deployments: tiny models, and algorithms with memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from layers.compute.data.targets import Targets
from layers.compute.engines.engine import Compute
from layers.compute.losses import Softmax
from layers.compute.scores import Scores
from layers.logic import Contribution, Hook, Logic, Question, ServerState, Training
from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.scaffold import Scaffold
from layers.logic.core.aggregator import Aggregator
from layers.logic.core.round import OpenRound, Run
from layers.logic.core.selector import Selector
from layers.logic.hooks.compressors import Stc, TopK
from layers.logic.hooks.server_optimisers import FedAvgM
from layers.logic.selectors.uniform import Uniform
from tests.fedmx.scripted import Least
from tests.logic.quadratic import (
    Measured,
    Quadratic,
    QuadraticBatches,
    QuadraticEngine,
    Tensor,
    layout,
)

SMALL, LARGE = 24, 280_000  # parameters; only messages with a large model are continued
LOSSES = ("plain", "top-k", "scaffold", "momentum", "stc")  # algorithms that tolerate lost clients
ALGORITHMS = (*LOSSES, "offers", "in turn", "survey", "chain")


@dataclass
class Engine(QuadraticEngine):
    """A numpy engine; `busy` simulates the duration of training."""

    busy: Callable[[], None] = field(default=lambda: None)

    def batches(
        self, samples: Quadratic, plan: Training, seed: int, **_given: object
    ) -> QuadraticBatches:
        self.busy()
        return super().batches(samples, plan, seed)

    def gradient(self, samples: Quadratic) -> np.ndarray:
        return (self.weights - samples.b).astype(np.float32)

    def evaluate(self, samples: Quadratic) -> Measured:
        away = self.weights - samples.b
        return Measured(float(0.5 * away @ away), 0.0, samples.n)

    def initial(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(self.size, np.float32), np.zeros(self.buffer_size, np.float32)

    @property
    def buffers_layout(self) -> Sequence[Any]:
        return (Tensor("steps", (self.buffer_size,), 0, self.buffer_size),)

    own_loss, targets = Softmax(), Targets("classes", 2)

    def scores(self, samples: Quadratic, batch_size: int, *, outputs: bool = False) -> Scores:
        loss = self.evaluate(samples).loss
        return Scores(np.zeros(1, bool), np.array([loss]), batch_size)


@dataclass(frozen=True)
class InTurn(Selector):
    """Lanes of two clients; the second starts from the first one's weights."""

    def run(self, round: OpenRound) -> Run[None]:
        for place in range(0, len(round.clients), 2):
            round.train_lane(round.clients[place : place + 2])
        yield from round.until_all()


@dataclass(frozen=True)
class Chain(Aggregator):
    """The next model is drawn from a hash of all contributions, in the order in which they came.

    A sum in float64 hides their order, since it mostly rounds to the same float32 values.
    """

    def init(self, state: ServerState) -> bytes:
        return b""

    def add(self, total: bytes, contribution: Contribution) -> bytes:
        return hashlib.sha256(total + np.asarray(contribution.delta).tobytes()).digest()

    def finish(self, total: bytes, state: ServerState) -> ServerState:
        drawn = np.random.default_rng(list(total)).normal(size=state.weights.size)
        return replace(state, weights=drawn.astype(np.float32))


@dataclass(frozen=True)
class Asking(Uniform):
    """Asks all clients for labels first."""

    asks = (Question("labels", classes=3),)

    def run(self, round: OpenRound) -> Run[None]:
        yield from round.ask(*self.asks, once=True)
        yield from super().run(round)


@cache
def samples_of(client: int, size: int) -> Quadratic:
    """Return a client's samples, which pull the weights to its own point."""
    target = np.random.default_rng(client).normal(size=size)
    number = 10 + 3 * client
    labels = [label % 3 for label in range(number)]
    return Quadratic(np.ones((1, 1)), target, number, noise=0.1, labels=labels)


def compute(client: int, size: int, busy: Callable[[], None] = lambda: None) -> Compute:
    """Return a client's engine and samples."""
    return Compute(Engine(size, busy=busy), samples_of(client, size))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Experiment:
    """The settings that server and clients share.

    Attributes:
        algorithm: one of `ALGORITHMS`.
        clients: their number.
        rounds: their number.
        fraction: of the clients in a round.
        deadline_s: of a round.
        seed: of the experiment.
        size: parameters of the model.
        min_updates: of a round.
    """

    algorithm: str
    clients: int
    rounds: int
    fraction: float = 1.0
    deadline_s: float | None = None
    seed: int = 11
    size: int = SMALL
    min_updates: int = 1

    def logic(self) -> Logic:
        """Return the logic of the server or a client."""
        hooks: dict[str, list[Hook]] = {
            "top-k": [TopK(0.34)],
            "scaffold": [Scaffold()],
            "momentum": [FedAvgM(), TopK(0.5)],
            "stc": [Stc(0.2, 0.2)],
        }
        selectors: dict[str, Selector] = {
            "offers": Least(grants=max(self.clients // 2, 1)),
            "in turn": InTurn(),
            "survey": Asking(self.fraction),
        }
        return Logic(
            layout(self.size),
            selector=selectors.get(self.algorithm, Uniform(self.fraction)),
            aggregator=Chain() if self.algorithm == "chain" else Mean(),
            hooks=hooks.get(self.algorithm, []),
            training=Training(steps=2, batch_size=4, learning_rate=0.1),
            seed=self.seed,
            min_updates=self.min_updates,
            deadline_s=self.deadline_s,
        )
