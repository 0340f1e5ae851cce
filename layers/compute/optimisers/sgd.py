"""Stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layers.compute.optimisers.optimiser import Optimiser, State, Step, Vector


@dataclass(frozen=True)
class Sgd(Optimiser):
    """SGD with heavy-ball momentum: v = momentum v + g; w -= rate v."""

    name = "sgd"
    has_momentum = True

    def begin(self, dimension: int, momentum: float) -> State:
        return {"velocity": np.zeros(dimension, np.float32)} if momentum else {}

    def change(self, gradient: Vector, state: State, step: Step) -> None:
        if step.momentum:
            velocity = state["velocity"]
            velocity *= np.float32(step.momentum)
            velocity += gradient
            step.ops.multiply(velocity, np.float32(step.rate), out=gradient)
        else:
            gradient *= np.float32(step.rate)
