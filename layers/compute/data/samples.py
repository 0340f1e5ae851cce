"""Samples as a model takes them: inputs and labels, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from layers.compute.data.errors import DataError


@dataclass(frozen=True)
class Samples:
    """Inputs `x` of shape (n, ...) and labels `y` of shape (n,), int64, in the same order."""

    x: npt.NDArray[Any]
    y: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.y.ndim != 1 or self.x.ndim < 1 or len(self.x) != len(self.y):
            raise DataError(
                f"samples: x of shape {self.x.shape} and y of shape {self.y.shape} do not go "
                "together; give one label for each row"
            )

    def __len__(self) -> int:
        return len(self.y)
