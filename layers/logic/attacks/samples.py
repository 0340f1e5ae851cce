"""Attacks on samples: liars train as told, on false labels or on images with a trigger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

from layers.logic.core.attack import Attack
from layers.logic.core.engine import ArrayData, Data
from layers.logic.core.hook import ClientContext
from layers.logic.errors import LogicError
from layers.settings import Count, Positive, PositiveShare, WholeNumber


@dataclass(frozen=True)
class LabelFlipping(Attack):
    """Liars train on the label C - 1 - y in place of y (Fang et al. 2020, section 5.1).

    Attributes:
        classes: C, the number of labels.
    """

    name = "label-flipping"

    classes: Annotated[int, Ge(2)] = 10

    def check_data(self, classes: int, partition: object) -> None:
        if classes != self.classes:
            raise LogicError(
                f"classes: the data have {classes} labels, not {self.classes}; set it to {classes}"
            )

    def lie_in_samples(self, data: Data, context: ClientContext) -> Data:
        return ArrayData(data.x, self.classes - 1 - data.y)


@dataclass(frozen=True)
class BackDoor(Attack):
    """Liars teach the model that images with a trigger are of the class `target`.

    Source: Gu et al. 2017 (BadNets), Bagdasaryan et al. 2020.

    The trigger is a square of bright pixels in the last rows and columns. A part of a liar's
    images has it and the label `target`; the liar multiplies its update by `scale`. The record of
    each evaluated round has `attack_success`: the share of the test images of other classes that
    the model takes for the target once they have the trigger.

    Attributes:
        target: the label that the trigger stands for.
        part: the share of a liar's samples that have the trigger.
        size: pixels along each edge of the trigger.
        value: of its pixels, as the model gets them.
        scale: the factor of the update; 1: the update as it is.
    """

    name = "back-door"

    target: WholeNumber = 0
    part: PositiveShare = 0.5
    size: Count = 3
    value: float = 1.0
    scale: Positive = 1.0

    def check_data(self, classes: int, partition: object) -> None:
        if self.target >= classes:
            raise LogicError(f"target: must be a label from 0 to {classes - 1}, not {self.target}")

    def lie_in_samples(self, data: Data, context: ClientContext) -> Data:
        """Return the samples, some with the trigger: the same ones in every round."""
        number = max(1, int(self.part * len(data)))
        rows = np.sort(context.run_rng("trigger").permutation(len(data))[:number])
        x, y = np.array(data.x), np.array(data.y)
        x[rows], y[rows] = self.triggered(x[rows]), self.target
        return ArrayData(x, y)

    def triggered(self, x: np.ndarray) -> np.ndarray:
        """Return images (n, ..., height, width) with the trigger.

        Raises:
            LogicError: the samples are no images, or smaller than the trigger.
        """
        if x.ndim < 3 or min(x.shape[-2:]) < self.size:
            raise LogicError(
                f"back-door: samples of shape {x.shape[1:]} have no place for a trigger of "
                f"{self.size} x {self.size} pixels; use images, or another attack"
            )
        marked = np.array(x)
        marked[..., -self.size :, -self.size :] = self.value
        return marked

    def measured(self, x: np.ndarray, y: np.ndarray) -> Mapping[str, Data]:
        """Return the samples of other classes with the trigger, and the target as their label."""
        others = y != self.target
        labels = np.full(int(others.sum()), self.target, y.dtype)
        return {"attack_success": ArrayData(self.triggered(x[others]), labels)}

    def lie_in_update(self, delta: np.ndarray, context: ClientContext) -> np.ndarray:
        return delta if self.scale == 1 else delta * np.float32(self.scale)
