"""What the logic layer asks of the compute layer, and no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from layers.logic.core.messages import Layout


class Data(Protocol):
    """A client's samples: x of shape (n, ...) and integer labels y of shape (n,)."""

    @property
    def x(self) -> np.ndarray: ...  # noqa: D102
    @property
    def y(self) -> np.ndarray: ...  # noqa: D102
    def __len__(self) -> int: ...


@dataclass(frozen=True, eq=False)
class ArrayData:
    """`Data` of two arrays: x (n, ...), and labels y (n,)."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)


class TrainReport(Protocol):
    """What training tells: local steps taken and the mean mini-batch loss.

    `rms_loss` is the root of the mini-batches' mean squared losses of single samples; it is asked
    for only where a selector needs it (`Selector.rms_loss`).
    """

    @property
    def steps(self) -> int: ...  # noqa: D102
    @property
    def loss(self) -> float: ...  # noqa: D102
    @property
    def rms_loss(self) -> float: ...  # noqa: D102


class Metrics(Protocol):
    """What evaluation tells: mean loss, share of right answers, number of samples."""

    @property
    def loss(self) -> float: ...  # noqa: D102
    @property
    def accuracy(self) -> float: ...  # noqa: D102
    @property
    def samples(self) -> int: ...  # noqa: D102


class Engine(Protocol):
    """A model whose trainable parameters are one flat float32 vector."""

    @property
    def layout(self) -> Layout:
        """Where each tensor lies in the vector."""

    @property
    def weights(self) -> np.ndarray:
        """The vector as it is now, float32 (d,); copy it to keep it."""

    @property
    def buffers(self) -> np.ndarray:
        """The non-trainable state as it is now, float32 (b,)."""

    def load(self, weights: np.ndarray, buffers: np.ndarray) -> None:
        """Copy both vectors in."""

    def train(
        self,
        samples: Any,
        plan: Any,
        seed: int,
        gradient: Callable[[np.ndarray, np.ndarray], None] | None = None,
    ) -> TrainReport:
        """Take local steps from the loaded vector."""

    def gradient(self, samples: Any) -> np.ndarray:
        """Return the mean gradient over all samples, float32 (d,); changes nothing."""

    def evaluate(self, samples: Any) -> Metrics:
        """Return loss and accuracy of the loaded vector."""
