"""Clipping of the gradient of each local step to a norm (Pascanu et al. 2013, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layers.logic.core.hook import ClientSide, Context, Hook
from layers.logic.errors import LogicError
from layers.logic.numeric.vectors import norm


@dataclass(frozen=True)
class Clip(Hook):
    """Each gradient g that is longer than `norm` is scaled down to that length.

    Attributes:
        norm: the largest Euclidean norm of a gradient, over all trainable parameters.
    """

    norm: float = 1.0

    def __post_init__(self) -> None:
        if not self.norm > 0:
            raise LogicError(f"norm must be greater than 0, not {self.norm}")

    def client(self) -> ClientSide:
        """Return the half that clips each gradient; the server has nothing to undo."""
        return _ClipClient(self.norm)


class _ClipClient(ClientSide):
    def __init__(self, norm: float) -> None:
        self._norm = norm

    def gradient(self, gradient: np.ndarray, weights: np.ndarray, context: Context) -> None:
        length = norm(gradient)
        if length > self._norm:
            gradient *= np.float32(self._norm / length)
