"""The interface of the logic layer to the compute layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import numpy as np

from layers.logic.core.messages import Layout

Correct: TypeAlias = "Callable[[np.ndarray, np.ndarray], None]"
"""Changes the gradient of one step in place, given the weights; both are float32 (d,)."""


NONE: Mapping[str, Any] = MappingProxyType({})


class Data(Protocol):
    """A client's samples: x of shape (n, ...) and integer labels y of shape (n,)."""

    @property
    def x(self) -> np.ndarray: ...
    @property
    def y(self) -> np.ndarray: ...
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
    def steps(self) -> int: ...
    @property
    def loss(self) -> float: ...
    @property
    def rms_loss(self) -> float: ...


class Batch(Data, Protocol):
    """A mini-batch of `Engine.batches`."""


class Batches(Protocol):
    """The mini-batches of one local training, with its optimiser and its report.

    Each iteration has the same mini-batches; `next` on one iterator gives them one by one.
    """

    def __len__(self) -> int:
        """Return how many mini-batches there are."""

    def __iter__(self) -> Iterator[Batch]:
        """Return the mini-batches in the order that the seed draws."""

    @property
    def kept(self) -> Mapping[str, np.ndarray]:
        """The optimiser's state for the client's next training; empty: a new one."""

    def report(self) -> TrainReport:
        """Return the report of the steps so far."""


class Metrics(Protocol):
    """The result of an evaluation: mean loss, accuracy from 0 to 1, and number of samples."""

    @property
    def loss(self) -> float: ...
    @property
    def accuracy(self) -> float: ...
    @property
    def samples(self) -> int: ...


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

    def batches(
        self,
        samples: Any,
        plan: Any,
        seed: int,
        *,
        loss: Any = None,
        references: Mapping[str, Any] = NONE,
        arrays: Mapping[str, np.ndarray] = NONE,
        kept: Mapping[str, np.ndarray] = NONE,
    ) -> Batches:
        """Return the mini-batches of a local training; `step` takes its steps.

        Args:
            samples: the samples to train on.
            plan: how to train (see `Training`).
            seed: seed of every random draw.
            loss: what the steps minimise; None: the loss of the experiment.
            references: the reference models that the loss reads, by name, such as "received":
                weights (d,), or weights (d,) and buffers (b,).
            arrays: the arrays that the loss reads, by name.
            kept: the optimiser's state to begin with (see `Batches.kept`); empty: a new one.
        """

    def step(self, batch: Any, correct: Correct | None = None) -> None:
        """Take one local step from the loaded vector, as the plan of the batch says.

        Args:
            batch: a mini-batch of `batches`.
            correct: changes the gradient in place, before weight decay and momentum; None: nothing
                does.
        """

    def batch_gradient(self, batch: Any) -> np.ndarray:
        """Return a mini-batch's mean gradient at the loaded vector, float32 (d,).

        The next call of the engine overwrites it; copy it to keep it. The vector does not change,
        BatchNorm's running statistics do, and no report counts it.
        """

    def train(
        self, samples: Any, plan: Any, seed: int, correct: Correct | None = None
    ) -> TrainReport:
        """Take a step for each of the `batches` of a local training, and return its report."""

    def gradient(self, samples: Any) -> np.ndarray:
        """Return the mean gradient over all samples, float32 (d,), without changing the model."""

    def evaluate(self, samples: Any) -> Metrics:
        """Return loss and accuracy of the loaded vector."""
