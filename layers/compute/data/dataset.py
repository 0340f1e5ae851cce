"""A data set as it is stored, and its samples as the inputs of a model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from layers.compute.data.targets import Targets
from layers.compute.errors import DataError, NormaliseError
from layers.settings import Settings


@dataclass(frozen=True)
class Raw:
    """One split of a data set as it is stored: 8-bit pixels stay 8-bit.

    Attributes:
        x: the samples, (n, ...) of any dtype.
        y: their targets, int64 or float32 (n, ...); see `Targets`.
        users: the number of each sample's user, such as a writer, int64 (n,); None: not known.
    """

    x: npt.NDArray[Any]
    y: npt.NDArray[Any]
    users: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.x.ndim < 2:
            raise DataError(f"x has shape {self.x.shape}; it must be (samples, ...)")
        if self.y.shape[:1] != (len(self.x),):
            raise DataError(
                f"y has shape {self.y.shape}, but x has {len(self.x)} samples; give one target each"
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
        name: its name in messages.
        train: the training split.
        test: the test split.
        targets: what the targets of its samples are.
        shape: the shape of a sample, channels first.
        words: the word of each token; empty if the samples are not text.
        names: the name of each class; empty if they have none.
    """

    name: str
    train: Raw
    test: Raw
    targets: Targets
    shape: tuple[int, ...]
    words: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def has_samples(self) -> bool:
        """Whether there is any sample; if not, clients alone have samples."""
        return len(self.train) + len(self.test) > 0

    def __post_init__(self) -> None:
        for split, raw in (("train", self.train), ("test", self.test)):
            if len(raw) == 0 and self.has_samples:
                raise DataError(f"{self.name}: the {split} split has no sample")
            if raw.x.shape[1:] != self.shape:
                raise DataError(
                    f"{self.name}: a {split} sample has shape {raw.x.shape[1:]}, not {self.shape}"
                )
            self.targets.check(raw.y, f"{self.name}: the {split} labels")


@dataclass(frozen=True)
class Samples:
    """Inputs `x` (n, ...) and targets `y` (n, ...), int64 or float32, in the same order."""

    x: npt.NDArray[Any]
    y: npt.NDArray[Any]

    def __post_init__(self) -> None:
        if self.y.ndim < 1 or self.x.ndim < 1 or len(self.x) != len(self.y):
            raise DataError(
                f"samples: x has shape {self.x.shape} and y has shape {self.y.shape}; "
                "give one target for each row"
            )

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Normalise:
    """`(x / scale - mean) / std` in float32.

    The first axis of a sample is the channel. The defaults only convert to float32.

    Attributes:
        scale: the stored value of one unit of mean and std; 255 for 8-bit pixels whose mean is
            published for the range 0 to 1.
        mean: one number, or one for each channel.
        std: one number, or one for each channel.
    """

    scale: float = 1.0
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            value = getattr(self, name)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
            if value in ((), []):
                raise NormaliseError(f"normalise: {name} is empty; give a number per channel")
        if not math.isfinite(self.scale) or self.scale <= 0:
            raise NormaliseError(
                f"normalise: scale must be greater than 0 and finite, not {self.scale}"
            )
        if not all(math.isfinite(mean) for mean in _values(self.mean)):
            raise NormaliseError(f"normalise: mean must be finite, not {self.mean}")
        if not all(math.isfinite(std) and std > 0 for std in _values(self.std)):
            raise NormaliseError(
                f"normalise: std must be greater than 0 and finite, not {self.std}"
            )

    def apply(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return a normalised copy of `x` (n, channels, ...), float32 and of the same shape.

        Raises:
            NormaliseError: mean or std does not have as many values as `x` has channels.
        """
        out = np.array(x, dtype=np.float32, order="C")
        if self.scale != 1.0:
            out /= np.float32(self.scale)
        if self.mean != 0.0:
            out -= self._channels("mean", out)
        if self.std != 1.0:
            out /= self._channels("std", out)
        return out

    def _channels(self, name: str, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        value: float | tuple[float, ...] = getattr(self, name)
        if not isinstance(value, tuple):
            return np.asarray(value, dtype=np.float32)
        channels = x.shape[1] if x.ndim > 1 else 1
        if len(value) != channels:
            raise NormaliseError(
                f"normalise: {name} has {len(value)} values, but a sample of shape {x.shape[1:]} "
                f"has {channels} channels; give one number, or one per channel"
            )
        return np.asarray(value, dtype=np.float32).reshape((-1,) + (1,) * max(x.ndim - 2, 0))


def materialise(
    raw: Raw, indices: npt.NDArray[np.integer[Any]] | None, normalise: Normalise | None
) -> Samples:
    """Return the rows `indices` of `raw` (None: all) as a model's inputs and labels.

    Only these rows are converted; all others keep their stored dtype. Without `normalise`,
    floating-point values become float32, and integers (tokens) stay integers.

    Raises:
        NormaliseError: the values are 8-bit and `normalise` is None, which would train on pixels
            from 0 to 255; or `normalise` does not fit the channels.
    """
    if normalise is None and raw.x.dtype == np.uint8:
        most = int(raw.x.max(initial=0))
        scale = "scale: 255, mean: 0.1307, std: 0.3081" if most > 127 else f"scale: {max(most, 1)}"
        raise NormaliseError(
            f"normalise is not given, and the data are 8-bit values up to {most}; "
            f"give e.g. normalise: {{{scale}}}, or normalise: {{scale: 1}} to keep them"
        )
    x = raw.x if indices is None else raw.x[indices]
    y = raw.y if indices is None else raw.y[indices]
    if normalise is not None:
        return Samples(normalise.apply(x), y)
    if not np.issubdtype(x.dtype, np.integer):
        x = x.astype(np.float32, copy=False)
    return Samples(x, y)


def _values(value: float | tuple[float, ...]) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,)


class FromSettings(Settings):
    """A data set with settings."""

    refusal = DataError


def held_out(groups: npt.NDArray[np.integer[Any]], share: float) -> npt.NDArray[np.bool_]:
    """Return which samples, bool (n,), are held out: the last `share` of each group, rounded.

    Of a group of two or more samples, at least one is held out and at least one is kept.
    """
    held = np.zeros(len(groups), bool)
    order = np.argsort(groups, kind="stable")
    _, starts, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    for start, size in zip(starts, sizes, strict=True):
        number = min(max(round(share * size), 1), size - 1)
        held[order[start + size - number : start + size]] = True
    return held


def drawn_out(groups: npt.NDArray[Any], share: float) -> npt.NDArray[np.bool_]:
    """Return which samples, bool (n,), are held out: a `share` of each group, drawn.

    The draw is the same each time. It is for files whose samples may be sorted; see `held_out`.
    """
    numbers = np.unique(groups, return_inverse=True)[1]
    order = np.random.default_rng(0).permutation(len(groups))
    held = np.zeros(len(groups), bool)
    held[order] = held_out(numbers[order], share)
    return held
