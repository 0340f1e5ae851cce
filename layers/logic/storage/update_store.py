"""The updates of a round on disk, in one file without a name."""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path
from typing import IO, Any

import numpy as np

from layers.logic.errors import LogicError
from layers.logic.storage.stored_vector import StoredVector

PAGE = 4096  # a vector begins at a multiple of it


class UpdateStore:
    """Keeps arrays in one file, which has no name: nothing is left of it however the process ends.

    One descriptor serves all arrays. The room of one that was dropped is used again, and when none
    is left the file is empty.

    Args:
        memory_bytes: memory that a fold may use to read slices of the arrays, besides its result.
        folder: where the file is; None: where the system keeps temporary files.
    """

    def __init__(self, memory_bytes: int, folder: Path | None = None) -> None:
        self.memory_bytes = memory_bytes
        self.folder = folder
        self._file: IO[bytes] | None = None
        self._end = 0
        self._kept = 0
        self._free: dict[int, list[int]] = {}  # the offsets of free room, by its size

    def open(self) -> None:
        """Open the file, if it is not open.

        Raises:
            LogicError: the folder does not take it.
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

    def put(self, array: np.ndarray) -> StoredVector:
        """Write an array to disk and return it.

        Raises:
            LogicError: there is no room on the disk, or it fails.
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
        return LogicError(
            f"an update on disk cannot be {what} in {folder}: {error.strerror or error}; make room "
            "there, or let updates stay in memory (run.fold_memory_mb: null)"
        )
