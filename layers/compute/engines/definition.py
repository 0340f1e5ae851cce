"""A model without its weights, as files of weights and exporters need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Definition:
    """A model without its weights.

    Attributes:
        shapes: the shape of each parameter, buffer and constant, by its name.
        constants: the value of each constant, float32, by its name.
        example_shape: the shape of one input, without the batch.
        outputs: the shape of the model's outputs for one input.
    """

    shapes: Mapping[str, tuple[int, ...]]
    constants: Mapping[str, np.ndarray]
    example_shape: tuple[int, ...]
    outputs: tuple[int, ...]
