"""A proximal term that holds clients near the received model (FedProx: Li et al. 2020, eq. 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from layers.logic.core.hook import ClientSide, Context, Hook
from layers.logic.core.parts import Parts
from layers.logic.errors import LogicError


@dataclass(frozen=True)
class FedProx(Hook):
    """Each local step follows g + mu (w - w_t), the gradient of f_k(w) + mu/2 ||w - w_t||^2.

    The term is a part of the gradient, so momentum applies to it, too. The server has nothing to
    do, neither end keeps anything, and nothing more crosses the wire.

    Attributes:
        mu: weight of the proximal term; with 0 the result is FedAvg's, bit for bit.
    """

    mu: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.mu < math.inf:
            raise LogicError(f"mu must be 0 or more, not {self.mu}")

    def check(self, logic: Parts) -> None:
        """Check that no step goes beyond the received model, near which it holds the client.

        Raises:
            LogicError: learning rate times mu is 1 or more.
        """
        if logic.training.learning_rate * self.mu >= 1:
            raise LogicError(
                f"FedProx: learning_rate {logic.training.learning_rate} times mu {self.mu} is 1 or "
                "more: each step would overshoot the received model; lower one of them"
            )

    def client(self) -> ClientSide:
        """Return the half that adds the term to each gradient."""
        return _Proximal(self.mu) if self.mu else ClientSide()


class _Proximal(ClientSide):
    def __init__(self, mu: float) -> None:
        self._mu = np.float32(mu)
        self._term: np.ndarray | None = None

    def gradient(self, gradient: np.ndarray, weights: np.ndarray, context: Context) -> None:
        if self._term is None:
            self._term = np.empty_like(gradient)
        np.subtract(weights, context.start, out=self._term)
        self._term *= self._mu
        gradient += self._term
