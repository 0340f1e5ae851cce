"""Stochastic gradient descent on a flat vector, in place."""

from __future__ import annotations

import numpy as np


class Sgd:
    """`g += decay w; v = momentum v + g; w -= eta v`, with a velocity that starts at zero.

    A step needs no memory of its own: it overwrites the gradient with its product with `eta`.
    """

    def __init__(
        self, dimension: int, learning_rate: float, momentum: float = 0, weight_decay: float = 0
    ):
        self._rate = np.float32(learning_rate)
        self._momentum = np.float32(momentum)
        self._decay = np.float32(weight_decay)
        self._velocity = np.zeros(dimension, np.float32) if momentum else None

    def step(self, weights: np.ndarray, gradient: np.ndarray) -> None:
        """Move the weights by one step, and overwrite the gradient."""
        if self._decay:
            gradient += self._decay * weights
        if self._velocity is not None:
            self._velocity *= self._momentum
            self._velocity += gradient
            np.multiply(self._velocity, self._rate, out=gradient)
        else:
            gradient *= self._rate
        weights -= gradient
