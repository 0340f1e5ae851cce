"""A model whose loss is a parabola for each client: every step can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    def train(
        self,
        samples: Quadratic,
        plan: Training,
        seed: int,
        gradient: Callable[[np.ndarray, np.ndarray], None] | None = None,
    ) -> Trained:
        rng = np.random.default_rng(seed)
        steps = plan.epochs * samples.steps_per_epoch if plan.steps is None else plan.steps
        velocity = np.zeros(self.size, np.float32)
        losses = []
        for _ in range(steps):
            losses.append(self.evaluate(samples).loss)
            g = self.gradient(samples)
            if samples.noise:
                g += (samples.noise * rng.normal(size=self.size)).astype(np.float32)
            if gradient is not None:
                self.gradient_calls += 1
                gradient(g, self.weights)
            g += np.float32(plan.weight_decay) * self.weights
            velocity = np.float32(plan.momentum) * velocity + g
            self.weights -= np.float32(plan.learning_rate) * velocity
            self.buffers += 1
        if not losses:
            return Trained(steps, float("nan"))
        return Trained(steps, float(np.mean(losses)), float(np.sqrt(np.mean(np.square(losses)))))

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
