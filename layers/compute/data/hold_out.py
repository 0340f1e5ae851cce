"""Test samples that are held out of a training split, instead of the published test samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from layers.compute.data.errors import DataError


def check_share(share: float, what: str) -> None:
    """Check that a share is 0 or more and less than 1.

    Raises:
        DataError: it is not; `what` names the data set.
    """
    if not 0 <= share < 1:
        raise DataError(f"{what}: hold_out must be from 0 to less than 1, not {share}")


def held_out(groups: npt.NDArray[np.integer[Any]], share: float) -> npt.NDArray[np.bool_]:
    """Return which samples, bool (n,), are held out: the last `share` of each group, rounded.

    A group of two or more gives at least one sample and keeps at least one.
    """
    held = np.zeros(len(groups), bool)
    order = np.argsort(groups, kind="stable")
    _, starts, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    for start, size in zip(starts, sizes, strict=True):
        number = min(max(round(share * size), 1), size - 1)
        held[order[start + size - number : start + size]] = True
    return held
