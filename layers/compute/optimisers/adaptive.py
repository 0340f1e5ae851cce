"""Optimisers with a learning rate for each weight, by the definitions of `torch.optim`.

The powers of the betas are products in float64, because `pow` may differ between machines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from layers.compute.optimisers.optimiser import Optimiser, State, Step, Vector
from layers.settings import Decay, NotNegative, Positive


@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam (Kingma and Ba 2015), with weight decay in the gradient (L2).

    In step t, m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
    w -= rate m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon).

    Attributes:
        beta1: the decay of the mean gradient m.
        beta2: the decay of the mean square v.
        epsilon: is added to the root.
    """

    name = "adam"

    beta1: Decay = 0.9
    beta2: Decay = 0.999
    epsilon: Positive = 1e-8

    def begin(self, dimension: int, momentum: float) -> State:
        return {
            "mean": np.zeros(dimension, np.float32),
            "square": np.zeros(dimension, np.float32),
            "powers": np.ones(2),
        }

    def change(self, gradient: Vector, state: State, step: Step) -> None:
        mean, square, powers = state["mean"], state["square"], state["powers"]
        spare, ops = step.spare, step.ops
        powers *= (self.beta1, self.beta2)
        _average(mean, gradient, self.beta1, step)
        gradient *= gradient
        _average(square, gradient, self.beta2, step)
        ops.sqrt(square, out=spare)
        spare *= np.float32(1 / math.sqrt(1 - powers[1]))
        spare += np.float32(self.epsilon)
        ops.divide(mean, spare, out=gradient)
        gradient *= np.float32(step.rate / (1 - powers[0]))


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam after w *= 1 - rate weight_decay: decoupled decay (Loshchilov and Hutter 2019).

    Attributes:
        beta1: the decay of the mean gradient m.
        beta2: the decay of the mean square v.
        epsilon: is added to the root.
    """

    name = "adamw"
    decoupled = True


@dataclass(frozen=True)
class Adagrad(Optimiser):
    """Adagrad (Duchi et al. 2011): s += g^2; w -= rate g / (sqrt(s) + epsilon).

    Attributes:
        initial: s before the first step.
        epsilon: is added to the root.
    """

    name = "adagrad"

    initial: NotNegative = 0.0
    epsilon: Positive = 1e-10

    def begin(self, dimension: int, momentum: float) -> State:
        return {"sum": np.full(dimension, self.initial, np.float32)}

    def change(self, gradient: Vector, state: State, step: Step) -> None:
        step.ops.multiply(gradient, gradient, out=step.spare)
        state["sum"] += step.spare
        _divide_by_root(gradient, state["sum"], self.epsilon, step)
        gradient *= np.float32(step.rate)


@dataclass(frozen=True)
class RmsProp(Optimiser):
    """RMSprop (Hinton 2012): v = alpha v + (1 - alpha) g^2; w -= rate g / (sqrt(v) + epsilon).

    With momentum, u = momentum u + g / (sqrt(v) + epsilon) and w -= rate u.

    Attributes:
        alpha: the decay of the mean square v.
        epsilon: is added to the root.
    """

    name = "rmsprop"
    has_momentum = True

    alpha: Decay = 0.99
    epsilon: Positive = 1e-8

    def begin(self, dimension: int, momentum: float) -> State:
        names = ("square", "velocity") if momentum else ("square",)
        return {name: np.zeros(dimension, np.float32) for name in names}

    def change(self, gradient: Vector, state: State, step: Step) -> None:
        square = state["square"]
        step.ops.multiply(gradient, gradient, out=step.spare)
        _average(square, step.spare, self.alpha, step)
        _divide_by_root(gradient, square, self.epsilon, step)
        if step.momentum:
            velocity = state["velocity"]
            velocity *= np.float32(step.momentum)
            velocity += gradient
            gradient[...] = velocity
        gradient *= np.float32(step.rate)


def _average(mean: Vector, value: Vector, beta: float, step: Step) -> None:
    """Move a running mean: mean = beta mean + (1 - beta) value."""
    mean *= np.float32(beta)
    step.ops.multiply(value, np.float32(1 - beta), out=step.spare)
    mean += step.spare


def _divide_by_root(gradient: Vector, square: Vector, epsilon: float, step: Step) -> None:
    """Divide the gradient by sqrt(square) + epsilon."""
    root = step.ops.sqrt(square, out=step.spare)
    root += np.float32(epsilon)
    gradient /= root
