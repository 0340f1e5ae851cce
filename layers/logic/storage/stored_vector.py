"""A vector on disk that is read slice by slice, as an array in memory can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np


class StoredVector:
    """An array of n values in a store's file; its room there is free again when it is dropped.

    ``vector[start:stop]`` reads these values, ``np.asarray(vector)`` all of them.

    Attributes:
        size: n.
        shape: of the array; slices are of the flat one.
        dtype: of the values.
        memory_bytes: memory that may be used to read slices of several vectors side by side.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        memory_bytes: int,
        read: Callable[[int, np.ndarray], None],
    ) -> None:
        self.shape = shape
        self.size = int(np.prod(shape))
        self.dtype = dtype
        self.memory_bytes = memory_bytes
        self._read = read

    def __getitem__(self, part: slice) -> np.ndarray:
        """Return the values from `part.start` to `part.stop`, read-only (n,)."""
        start, stop, step = part.indices(self.size)
        if step != 1:
            raise IndexError(f"a stored vector is read in whole slices, not every {step}th value")
        values = np.empty(max(0, stop - start), self.dtype)
        self._read(start * self.dtype.itemsize, values)
        values.setflags(write=False)
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the whole array."""
        whole = self[:].reshape(self.shape)
        return whole if dtype is None else whole.astype(dtype)


Vector: TypeAlias = "np.ndarray | StoredVector"
"""A vector in memory or on disk; both have a `size` and are read in slices."""
