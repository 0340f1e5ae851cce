"""A data set: a training and a test split, sample by sample, in the dtype that is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from layers.compute.data.errors import DataError


@dataclass(frozen=True)
class Raw:
    """One split of a data set, as it is stored: 8-bit pixels stay 8-bit.

    Attributes:
        x: the samples, (n, ...) of any dtype.
        y: their labels, int64 (n,).
        users: the number of the user, such as a writer, whom each sample is from, int64 (n,); None:
            not known.
    """

    x: npt.NDArray[Any]
    y: npt.NDArray[np.int64]
    users: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.x.ndim < 2:
            raise DataError(f"x has shape {self.x.shape}; it must be (samples, ...)")
        if self.y.shape != (len(self.x),):
            raise DataError(
                f"y has shape {self.y.shape}, but x has {len(self.x)} samples; give one label each"
            )
        if self.users is not None and self.users.shape != (len(self.x),):
            raise DataError(
                f"users has shape {self.users.shape}, but x has {len(self.x)} samples; "
                "give one user each"
            )

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Dataset:
    """Both splits of a data set.

    Attributes:
        name: what messages call it.
        train: the training split.
        test: the test split.
        classes: how many classes there are; labels are from 0 to `classes` - 1.
        shape: the shape of a sample as a model gets it, channels first.
        words: the word of each token of a text; empty if the samples are no text.
    """

    name: str
    train: Raw
    test: Raw
    classes: int
    shape: tuple[int, ...]
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for split, raw in (("train", self.train), ("test", self.test)):
            if len(raw) == 0:
                raise DataError(f"{self.name}: the {split} split has no sample")
            if raw.x.shape[1:] != self.shape:
                raise DataError(
                    f"{self.name}: a {split} sample has shape {raw.x.shape[1:]}, not {self.shape}"
                )
            low, high = int(raw.y.min()), int(raw.y.max())
            if low < 0 or high >= self.classes:
                raise DataError(
                    f"{self.name}: the {split} labels go from {low} to {high}, but {self.classes} "
                    f"classes are numbered 0 to {self.classes - 1}"
                )
