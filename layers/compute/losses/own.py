"""A loss that a model can have of its own: it also evaluates the model's outputs."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from layers.compute.data.targets import Targets
from layers.compute.errors import ComputeError
from layers.compute.losses.loss import Loss


class OwnLoss(Loss):
    """A loss of a model's outputs and the targets alone.

    Attributes:
        name: its name in an experiment file.
        meaning: what the outputs of a model are, in words.
        TARGETS: the kinds of targets that it is for; see `Targets`.
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    TARGETS: ClassVar[tuple[str, ...]]

    def check(self, targets: Targets) -> None:
        """Check that the loss is for these targets.

        Raises:
            ComputeError: it is not.
        """
        if targets.kind not in self.TARGETS:
            raise ComputeError(
                f"loss {self.name} is for targets of the kind {' or '.join(self.TARGETS)}, and the "
                f"data have {targets}"
            )

    def outputs(self, targets: Targets) -> tuple[int, ...]:
        """Return the shape of a model's outputs for one sample."""
        return targets.shape

    @abstractmethod
    def loss(self, outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return each sample's loss, float64 (n,), of a model's outputs (n, ...)."""

    @abstractmethod
    def predict(self, outputs: np.ndarray) -> np.ndarray:
        """Return the targets that the outputs predict, (n, ...)."""

    def scores(self, outputs: np.ndarray) -> np.ndarray:
        """Return what metrics compare: probabilities, or real values.

        They are float64 (n, classes), (n, labels), (n, places, tokens) or (n, values).
        """
        return self.predict(outputs)
