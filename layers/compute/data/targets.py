"""What a model learns to give: a class, several labels, real values, or a token for each place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from layers.compute.errors import DataError

Kind = Literal["classes", "multi-label", "real", "tokens"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Targets:
    """The targets of a data set.

    Attributes:
        kind: `classes`: a class of each sample, integers (n,). `multi-label`: whether a sample has
            each label, 0 or 1, integers (n, labels). `real`: numbers, float32 (n, values).
            `tokens`: a token for each place of a sequence, integers (n, places).
        size: how many classes, labels or values there are, or how many words a token can be.
        places: the length of a sequence; 0: targets are not tokens.
    """

    kind: Kind
    size: int
    places: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample's target."""
        if self.kind == "classes":
            return ()
        return (self.places,) if self.kind == "tokens" else (self.size,)

    @property
    def classes(self) -> int:
        """How many classes there are; 0 if targets are not classes."""
        return self.size if self.kind == "classes" else 0

    def __str__(self) -> str:
        several = "s" if self.size != 1 else ""
        return {
            "classes": f"{self.size:,} classes",
            "multi-label": f"{self.size:,} label{several}, each 0 or 1",
            "real": f"{self.size:,} real value{several}",
            "tokens": f"{self.places:,} tokens of {self.size:,}",
        }[self.kind]

    def check(self, y: npt.NDArray[Any], what: str) -> None:
        """Check targets (n, ...).

        Args:
            y: the targets.
            what: what messages call them, such as "mnist: the train labels".

        Raises:
            DataError: they have another shape, dtype or range.
        """
        kinds = "f" if self.kind == "real" else "iu"
        if y.shape[1:] != self.shape or y.dtype.kind not in kinds:
            whole = "float32" if self.kind == "real" else "integers"
            wanted = ", ".join(["n", *map(str, self.shape)])
            raise DataError(
                f"{what} are {y.dtype} of shape {y.shape}; targets of {self} are {whole} of shape "
                f"({wanted}{',' if not self.shape else ''})"
            )
        if not y.size:
            return
        low, high = y.min(), y.max()
        if self.kind == "real":
            if not (np.isfinite(low) and np.isfinite(high)):
                raise DataError(f"{what} hold NaN or infinity; leave these samples out")
            return
        top = 1 if self.kind == "multi-label" else self.size - 1
        if low < 0 or high > top:
            said = f"{self.size} {self.kind}" if self.kind in ("classes", "tokens") else str(self)
            raise DataError(f"{what} go from {low} to {high}, but {said} are numbered 0 to {top}")


def of_classes(targets: Targets | int) -> Targets:
    """Return the targets; a number is that of classes."""
    return Targets("classes", targets) if isinstance(targets, int) else targets


def targets_of(splits: Sequence[npt.NDArray[Any]], size: int | None = None) -> Targets:
    """Return the targets that arrays hold.

    Integers (n,) are classes, 0 or 1 of shape (n, labels) several labels, other integers
    (n, places) tokens, and floats (n, values) real values.

    Args:
        splits: the targets of the splits.
        size: how many classes or different tokens there are; None: one more than the highest.
    """
    first = splits[0]
    highest = max((int(one.max(initial=0)) for one in splits), default=0)
    if first.dtype.kind == "f":
        return Targets("real", first.shape[1])
    if first.ndim == 1:
        return Targets("classes", highest + 1 if size is None else size)
    if highest <= 1 and size is None:
        return Targets("multi-label", first.shape[1])
    return Targets("tokens", highest + 1 if size is None else size, first.shape[1])
