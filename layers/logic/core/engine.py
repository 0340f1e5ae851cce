"""The interface of the logic layer to the compute layer."""

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
    """`Data` from two arrays: x (n, ...), and labels y (n,)."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)


class TrainReport(Protocol):
    """The report of training: the number of local steps, and the mean mini-batch loss.

    `rms_loss` is the root of the mini-batches' mean squared losses of single samples; it is read
    only if a part needs it (`Need.RMS_LOSS`).
    """

    @property
    def steps(self) -> int: ...  # noqa: D102
    @property
    def loss(self) -> float: ...  # noqa: D102
    @property
    def rms_loss(self) -> float: ...  # noqa: D102


class Metrics(Protocol):
    """The result of an evaluation: mean loss, accuracy from 0 to 1, and number of samples."""

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
        """The current vector, float32 (d,); copy it to keep it."""

    @property
    def buffers(self) -> np.ndarray:
        """The current non-trainable state, float32 (b,)."""

    def load(self, weights: np.ndarray, buffers: np.ndarray) -> None:
        """Copy weights (d,) and buffers (b,) into the model."""

    def train(
        self,
        samples: Any,
        plan: Any,
        seed: int,
        gradient: Callable[[np.ndarray, np.ndarray], None] | None = None,
    ) -> TrainReport:
        """Take local steps from the loaded vector.

        Args:
            samples: the samples to train on.
            plan: how to train (see `Training`).
            seed: seed of every random draw.
            gradient: changes the gradient of each step in place, given gradient and weights, both
                float32 (d,); None: nothing does.
        """

    def gradient(self, samples: Any) -> np.ndarray:
        """Return the mean gradient over all samples, float32 (d,), without changing the model."""

    def evaluate(self, samples: Any) -> Metrics:
        """Return loss and accuracy of the loaded vector."""
