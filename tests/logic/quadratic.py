"""A model whose loss is a parabola for each client: every step can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from layers.logic import Training


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Quadratic:
    """A client's samples: f(w) = 0.5 (w - b)^T A (w - b) + c, and n of them.

    `noise` scales random draws on each step's gradient, so that the task's seed matters.
    """

    A: np.ndarray
    b: np.ndarray
    n: int
    c: float = 0.0
    steps_per_epoch: int = 1
    noise: float = 0.0
    labels: Sequence[int] = ()

    def __len__(self) -> int:
        return self.n

    @property
    def x(self) -> np.ndarray:
        return np.zeros((self.n, 1), np.float32)

    @property
    def y(self) -> np.ndarray:
        return np.array(self.labels, np.int64)


@dataclass(frozen=True)
class Trained:
    steps: int
    loss: float
    rms_loss: float = float("nan")


@dataclass(frozen=True)
class Measured:
    loss: float
    accuracy: float
    samples: int


@dataclass(frozen=True, eq=False)
class QuadraticBatch:
    """All of a client's samples, with the noise (d,) of one step's gradient."""

    batches: QuadraticBatches
    samples: Quadratic
    noise: np.ndarray

    @property
    def x(self) -> np.ndarray:
        return self.samples.x

    @property
    def y(self) -> np.ndarray:
        return self.samples.y

    def __len__(self) -> int:
        return len(self.samples)


@dataclass
class QuadraticBatches:
    samples: Quadratic
    plan: Training
    seed: int
    size: int
    losses: list[float] = field(default_factory=list)
    kept: dict[str, np.ndarray] = field(default_factory=dict)
    velocity: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.velocity = np.zeros(self.size, np.float32)

    def __len__(self) -> int:
        if self.plan.steps is not None:
            return self.plan.steps
        return self.plan.epochs * self.samples.steps_per_epoch

    def __iter__(self) -> Iterator[QuadraticBatch]:
        rng = np.random.default_rng(self.seed)
        for _ in range(len(self)):
            noise = np.zeros(self.size, np.float32)
            if self.samples.noise:
                noise = (self.samples.noise * rng.normal(size=self.size)).astype(np.float32)
            yield QuadraticBatch(self, self.samples, noise)

    def report(self) -> Trained:
        if not self.losses:
            return Trained(0, float("nan"))
        rms = float(np.sqrt(np.mean(np.square(self.losses))))
        return Trained(len(self.losses), float(np.mean(self.losses)), rms)


@dataclass
class QuadraticEngine:
    """An `Engine` in numpy; its buffers count the steps since they were loaded."""

    size: int
    buffer_size: int = 1
    gradient_calls: int = 0
    weights: np.ndarray = field(init=False)
    buffers: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.weights = np.zeros(self.size, np.float32)
        self.buffers = np.zeros(self.buffer_size, np.float32)

    @property
    def layout(self) -> Sequence[Tensor]:
        return layout(self.size)

    def load(self, weights: np.ndarray, buffers: np.ndarray) -> None:
        self.weights[:] = weights
        self.buffers[:] = buffers

    def batches(
        self, samples: Quadratic, plan: Training, seed: int, **_given: object
    ) -> QuadraticBatches:
        return QuadraticBatches(samples, plan, seed, self.size)

    def step(
        self,
        batch: QuadraticBatch,
        correct: Callable[[np.ndarray, np.ndarray], None] | None = None,
    ) -> None:
        of = batch.batches
        of.losses.append(self.evaluate(batch.samples).loss)
        g = self.batch_gradient(batch)
        if correct is not None:
            self.gradient_calls += 1
            correct(g, self.weights)
        g += np.float32(of.plan.weight_decay) * self.weights
        of.velocity = np.float32(of.plan.momentum) * of.velocity + g
        self.weights -= np.float32(of.plan.learning_rate) * of.velocity
        self.buffers += 1

    def batch_gradient(self, batch: QuadraticBatch) -> np.ndarray:
        return self.gradient(batch.samples) + batch.noise

    def train(
        self,
        samples: Quadratic,
        plan: Training,
        seed: int,
        correct: Callable[[np.ndarray, np.ndarray], None] | None = None,
    ) -> Trained:
        batches = self.batches(samples, plan, seed)
        for batch in batches:
            self.step(batch, correct)
        return batches.report()

    def gradient(self, samples: Quadratic) -> np.ndarray:
        return (samples.A @ (self.weights - samples.b)).astype(np.float32)

    def evaluate(self, samples: Quadratic) -> Measured:
        away = self.weights - samples.b
        return Measured(float(0.5 * away @ samples.A @ away + samples.c), 0.0, samples.n)


def layout(size: int) -> Sequence[Tensor]:
    return (Tensor("w", (size,), 0, size),)


def bowl(target: Sequence[float] | float, n: int = 10, **kwargs) -> Quadratic:
    """Return a client that pulls each of the weights towards its target alike."""
    b = np.atleast_1d(np.array(target, np.float64))
    return Quadratic(np.eye(b.size), b, n, **kwargs)


def bowls(number: int, size: int = 3, **kwargs) -> dict[int, Quadratic]:
    """Return clients with different targets and sizes: client k has 10 (k + 1) samples."""
    rng = np.random.default_rng(number)
    return {
        client: bowl(rng.normal(size=size), 10 * (client + 1), **kwargs) for client in range(number)
    }


THREE_BOWLS = {
    client: bowl(np.full(3, float(client + 1)), n=10 * (client + 1)) for client in range(3)
}
"""Three clients of 10, 20 and 30 samples, whose best weights are 1, 2 and 3."""
