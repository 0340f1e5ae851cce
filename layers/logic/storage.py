"""Updates of a round that wait on disk; their vectors are read slice by slice."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from layers.logic.errors import LogicError

PAGE = 4096  # a vector begins at a multiple of it
LEAST_BYTES = 1 << 16  # smaller values in slots stay in memory

Slots: TypeAlias = "Mapping[str, Mapping[str, Any]]"

Vector: TypeAlias = "np.ndarray | StoredVector"
"""A vector in memory or on disk; both have a `size` and are read in slices."""


class StoredVector:
    """An array of n values in the file of an `UpdateStore`, which reuses its room after its end.

    ``vector[start:stop]`` reads these values, ``np.asarray(vector)`` all of them.

    Attributes:
        size: n.
        shape: shape of the array; slices are those of the flat array.
        dtype: type of the values.
        memory_bytes: memory for reading slices of several vectors side by side.
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


class UpdateStore:
    """Keeps arrays in memory up to a bound, and others in one file.

    The file has no name, so nothing of it is left, however the process ends. One descriptor serves
    all arrays. The room of dropped arrays is used again; without arrays the file is empty.

    Args:
        memory_bytes: memory that a fold may use to read slices of the arrays, besides its result.
        folder: folder of the file; None: the system's folder for temporary files.
        waiting_bytes: total size of the arrays that may wait in memory; 0: all wait on disk.

    Attributes:
        held_bytes: bytes that wait in memory.
    """

    def __init__(
        self, memory_bytes: int, folder: Path | None = None, waiting_bytes: int = 0
    ) -> None:
        self.memory_bytes = memory_bytes
        self.folder = folder
        self.waiting_bytes = waiting_bytes
        self.held_bytes = 0
        self._file: IO[bytes] | None = None
        self._end = 0
        self._kept = 0
        self._free: dict[int, list[int]] = {}  # the offsets of free room, by its size

    def open(self) -> None:
        """Open the file, if it is not open.

        Raises:
            LogicError: it cannot be created.
        """
        if self._file is None:
            try:
                self._file = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115 (`close`)
            except OSError as error:
                raise self._failure("opened", error) from None

    def close(self) -> None:
        """Close the file; the arrays in it can no longer be read."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return 0 if self._file is None else os.fstat(self._file.fileno()).st_size

    def hold(self, array: np.ndarray, size: int) -> np.ndarray | None:
        """Keep an array in memory and return a view of it; None: there is no room.

        The room is free again when the view is dropped.

        Args:
            array: the array.
            size: bytes of the array, and of everything else that waits with it.
        """
        if self.held_bytes + size > self.waiting_bytes:
            return None
        self.held_bytes += size
        held = array.view()
        weakref.finalize(held, self._let_go, size).atexit = False
        return held

    def _let_go(self, size: int) -> None:
        self.held_bytes -= size

    def put(self, array: np.ndarray) -> StoredVector:
        """Write an array to disk and return it.

        Raises:
            LogicError: the disk is full, or fails.
        """
        self.open()
        assert self._file is not None
        array = np.ascontiguousarray(array)
        room = -(-array.nbytes // PAGE) * PAGE
        free = self._free.get(room)
        if free:
            offset = free.pop()
        else:
            offset, self._end = self._end, self._end + room
        self._kept += 1
        left, at = array.reshape(-1).view(np.uint8).data, offset
        try:
            while left:
                written = os.pwrite(self._file.fileno(), left, at)
                left, at = left[written:], at + written
        except OSError as error:
            self._release(offset, room)
            raise self._failure("written", error) from None
        stored = StoredVector(
            array.shape,
            array.dtype,
            self.memory_bytes,
            lambda start, values: self._read(offset + start, values),
        )
        weakref.finalize(stored, self._release, offset, room).atexit = False
        return stored

    def _read(self, offset: int, values: np.ndarray) -> None:
        left = values.view(np.uint8).data
        try:
            if self._file is None:
                raise OSError("the file is closed")
            while left:
                size = os.preadv(self._file.fileno(), [left], offset)
                if not size:
                    raise OSError("the file ends too early")
                left, offset = left[size:], offset + size
        except OSError as error:
            raise self._failure("read", error) from None

    def _release(self, offset: int, room: int) -> None:
        self._kept -= 1
        if self._kept:
            self._free.setdefault(room, []).append(offset)
            return
        self._free.clear()
        self._end = 0
        if self._file is not None:
            self._file.truncate(0)

    def _failure(self, what: str, error: OSError) -> LogicError:
        folder: Any = self.folder or tempfile.gettempdir()
        memory = ", or let updates that fit wait in memory (run.fold_memory_mb: null)"
        return LogicError(
            f"an update on disk cannot be {what} in {folder}: {error.strerror or error}; make room "
            f"there{'' if self.waiting_bytes else memory}"
        )


def slots_bytes(slots: Slots) -> int:
    """Return the total size of the values in slots and of their names, as UTF-8."""
    return sum(
        len(name.encode("utf-8", "replace")) + _value_bytes(value)
        for slot in slots.values()
        for name, value in slot.items()
    )


def _value_bytes(value: object) -> int:
    match value:
        case np.ndarray():
            return value.nbytes
        case str():
            return len(value.encode("utf-8", "replace"))
        case bytes():
            return len(value)
    return 8


@dataclass(frozen=True, eq=False)
class StoredSlots:
    """The slots of one update, with the large values on disk.

    Attributes:
        small: the values in memory, by hook and name.
        large: the others.
    """

    small: dict[str, dict[str, Any]]
    large: Mapping[str, Mapping[str, _Stored]]

    @classmethod
    def of(cls, slots: Slots, store: UpdateStore) -> StoredSlots:
        """Write the large values of slots to a store."""
        small: dict[str, dict[str, Any]] = {}
        large: dict[str, dict[str, _Stored]] = {}
        for key, slot in slots.items():
            small[key], large[key] = {}, {}
            for name, value in slot.items():
                if isinstance(value, np.ndarray) and value.nbytes >= LEAST_BYTES:
                    large[key][name] = _Stored(store.put(value), is_bytes=False)
                elif isinstance(value, bytes) and len(value) >= LEAST_BYTES:
                    array = np.frombuffer(value, np.uint8)
                    large[key][name] = _Stored(store.put(array), is_bytes=True)
                elif isinstance(value, np.ndarray):
                    small[key][name] = value.copy()  # a view would keep the whole message
                else:
                    small[key][name] = value
        return cls(small, large)

    def loaded(self) -> dict[str, dict[str, Any]]:
        """Return all slots in memory."""
        return {
            key: {**slot, **{name: kept.loaded() for name, kept in self.large[key].items()}}
            for key, slot in self.small.items()
        }


@dataclass(frozen=True, eq=False)
class _Stored:
    vector: StoredVector
    is_bytes: bool

    def loaded(self) -> np.ndarray | bytes:
        values = np.asarray(self.vector)
        return values.tobytes() if self.is_bytes else values
