"""The number of samples of each class that each client has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def count(
    labels: npt.NDArray[np.integer[Any]],
    parts: Sequence[npt.NDArray[np.integer[Any]]],
    classes: int,
) -> npt.NDArray[np.int64]:
    """Return the number of samples by client and class, shape (clients, classes).

    Args:
        labels: (n,), from 0 to ``classes`` - 1.
        parts: the indices of each client's samples in ``labels``.
        classes: the number of labels.
    """
    rows = [np.bincount(labels[part], minlength=classes) for part in parts]
    return np.array(rows, dtype=np.int64).reshape(len(parts), classes)


def summary(counts: npt.NDArray[np.int64]) -> str:
    """Return a line about the samples and classes of the clients: least, most and median."""
    sizes = counts.sum(axis=1)
    kinds = (counts > 0).sum(axis=1)
    return (
        f"{_many(len(counts), 'client')}, {_many(int(sizes.sum()), 'sample')}; "
        f"samples a client: {_range(sizes)}; classes a client: {_range(kinds)}"
    )


def _many(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _range(values: npt.NDArray[np.int64]) -> str:
    if len(values) == 0:
        return "0"
    least, most = int(values.min()), int(values.max())
    if least == most:
        return f"{least:,}"
    return f"{least:,} to {most:,} (median {np.median(values):,.0f})"
