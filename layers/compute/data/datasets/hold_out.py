"""Holding samples out of a training part for a data set that is tested on its own kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from layers.compute.data.errors import DataError


def check_share(share: float, what: str) -> None:
    """Refuse a share that is not from 0 to less than 1."""
    if not 0 <= share < 1:
        raise DataError(f"{what}: hold_out must be from 0 to less than 1, not {share}")


def held_out(groups: npt.NDArray[np.integer[Any]], share: float) -> npt.NDArray[np.bool_]:
    """Say which samples, (n,), are held out: the last of each group, ``share`` of it, rounded.

    A group of two or more gives at least one sample and keeps at least one.
    """
    held = np.zeros(len(groups), bool)
    order = np.argsort(groups, kind="stable")
    _, starts, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    for start, size in zip(starts, sizes, strict=True):
        number = min(max(round(share * size), 1), size - 1)
        held[order[start + size - number : start + size]] = True
    return held
