"""The loss: what local training minimises, written once for a compiled graph and for autograd."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from layers.compute.errors import ComputeError
from layers.settings import Settings

A = TypeVar("A")

LAST = ""
"""The name of the representation: the input of the model's last layer that has parameters."""


@dataclass(frozen=True)
class Outputs(Generic[A]):
    """What a model computes for n samples.

    Attributes:
        logits: the model's outputs, (n, ...).
        layers: the outputs of single layers, flattened to (n, values), by their names.
    """

    logits: A
    layers: Mapping[str, A]


@dataclass(frozen=True)
class Given:
    """What a loss gets for a mini-batch of n samples, as symbols or as arrays of MXNet.

    Attributes:
        outputs: of the model that is trained.
        label: the targets, (n, ...).
        references: the outputs of the reference models, by name; they have no gradient.
        arrays: the arrays of `Loss.inputs`, by name; those of `Loss.rows` have this batch's rows.
        classes: how many classes, labels or values there are, or different tokens.
        own: the model's own loss, for a loss that adds to it.
    """

    outputs: Outputs[Any]
    label: Any
    references: Mapping[str, Outputs[Any]]
    arrays: Mapping[str, Any]
    classes: int
    own: Loss

    def cross_entropy(self, F: Any) -> Any:
        """Return each sample's loss by the model's own loss, (n,)."""
        return self.own.losses(F, self)


class Loss(Settings, ABC):
    """A loss; its settings are the fields of a frozen dataclass.

    The engine compiles it into the training graph, with the model. Evaluation does not use it: test
    losses are the model's own (see `OwnLoss`), so runs with different losses can be compared.

    Attributes:
        FITS: the names of the models' own losses that the loss can go with; empty: all.
    """

    refusal = ComputeError

    FITS: ClassVar[tuple[str, ...]] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """The names of the reference models that the loss reads; a trainer gives them."""
        return ()

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers whose outputs the loss reads, such as "features.3"; see `LAST`."""
        return ()

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays that the loss reads; a trainer gives them."""
        return ()

    @property
    def rows(self) -> tuple[str, ...]:
        """Those of `arrays` that have a row for each sample; a batch gets its own rows."""
        return ()

    def inputs(
        self, y: np.ndarray, classes: int, arrays: Mapping[str, np.ndarray]
    ) -> Mapping[str, np.ndarray]:
        """Return the arrays that enter the graph in one training: the given ones, unless changed.

        Args:
            y: the targets of the samples, (n, ...).
            classes: how many classes, labels or values there are, or different tokens.
            arrays: the given arrays.
        """
        return arrays

    @abstractmethod
    def losses(self, F: Any, given: Given) -> Any:
        """Return each sample's loss, (n,); the training minimises its mean over the mini-batch.

        Args:
            F: `mx.sym` or `mx.nd`, whose operators compute the loss.
            given: the outputs, labels, references and arrays.
        """

    def head(self, F: Any, given: Given, batch: int) -> Any:
        """Return an output whose backward pass is the gradient of the batch's mean loss.

        The engine on PyTorch differentiates `losses` instead.

        Args:
            F: as for `losses`.
            given: as for `losses`.
            batch: the number of samples.
        """
        return F.MakeLoss(self.losses(F, given), grad_scale=1.0 / batch)

    def reported(self, head: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return each sample's loss, float64 (n,), from the value of the head and the labels."""
        return head.astype(np.float64)


def name_of(loss: Loss) -> str:
    """Return what messages call a loss: its name in an experiment file, or that of its class."""
    return getattr(loss, "name", type(loss).__name__)


def check_array(loss: Loss, name: str, array: np.ndarray, shape: tuple[int | None, ...]) -> None:
    """Check the shape of an array that a trainer gave; None stands for any length.

    Raises:
        ComputeError: it has another shape.
    """
    fits = len(array.shape) == len(shape) and all(
        own is None or own == given for own, given in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if one is None else str(one) for one in shape)
        raise ComputeError(
            f"loss {name_of(loss)}: the array {name} has shape {array.shape}, not ({wanted})"
        )
