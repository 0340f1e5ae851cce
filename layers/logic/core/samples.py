"""ArrayData that were put together, or drawn, from those of a client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class ArrayData:
    """`layers.logic.core.engine.Data` of two arrays: x (n, ...), and labels y (n,)."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)
