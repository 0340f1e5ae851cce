"""Memory that a simulation shares with its worker processes: files without names.

Nothing of these files is left when all processes have ended, however they end.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from layers.network import Payload

ALIGNMENT = 64
PIECE_BYTES = 1 << 30  # Linux writes at most 2 GiB at once
PAGE_BYTES = 4096
FIRST_BYTES = 1 << 20
REPLY_FILES = 2  # jobs that a worker may hold: it overwrites a reply two jobs later
MAX_PIPED_BYTES = 32 << 10  # larger replies go into a file
MAX_KEPT_BYTES = 4 << 20  # a file gives its memory back after a larger reply
MAX_BUFFERS = 512  # to write at once; Linux allows 1,024

_PIPED, _IN_FILE = b"p", b"f"


def anonymous_file(name: str) -> int:
    """Return the descriptor of a new file in memory that is in no folder.

    Where the system has no such files, it is a temporary file without a name. It is never in
    `/dev/shm`, which containers often keep small.
    """
    try:
        return os.memfd_create(name)
    except (AttributeError, OSError):
        with tempfile.TemporaryFile(prefix=name) as file:
            return os.dup(file.fileno())


# --- data: one process writes the arrays, others map them read-only --------------------------


class Place(NamedTuple):
    """The place of an array.

    Attributes:
        dtype: its dtype, in numpy's notation.
        shape: its shape.
        offset: bytes before it in the file.
        path: path of the file; empty: it is in the file without a name.
    """

    dtype: str
    shape: tuple[int, ...]
    offset: int
    path: str = ""


class SharedArrays:
    """Arrays in a file without a name; an array that is already a mapped file stays there.

    Args:
        arrays: the arrays to copy.

    Attributes:
        descriptor: descriptor of the file, for `map_arrays` in the other processes.
        places: the place of each array.

    Raises:
        OSError: there is no room for the file.
    """

    def __init__(self, arrays: Iterable[np.ndarray]) -> None:
        self.descriptor = anonymous_file("fedmx-data")
        self.places: list[Place] = []
        end = 0
        try:
            for array in arrays:
                place = place_in_file(array)
                if place is None:
                    place = Place(array.dtype.str, array.shape, -(-end // ALIGNMENT) * ALIGNMENT)
                    end = place.offset + array.nbytes
                    _write(self.descriptor, np.ascontiguousarray(array), place.offset)
                self.places.append(place)
            os.ftruncate(self.descriptor, max(end, 1))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; mapped arrays stay valid."""
        os.close(self.descriptor)


def map_arrays(descriptor: int, places: Sequence[Place]) -> list[np.ndarray]:
    """Return the arrays, read-only, in the memory of the file.

    Raises:
        OSError: the file of an array cannot be mapped.
    """
    memory = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    arrays: list[np.ndarray] = []
    for dtype, shape, offset, path in places:
        if path:
            arrays.append(np.memmap(path, dtype, "r", offset, tuple(shape)))
        else:
            arrays.append(np.ndarray(tuple(shape), dtype, memory, offset))
    return arrays


def place_in_file(array: np.ndarray) -> Place | None:
    """Return the place of an array that is a mapped file; None: it is not a whole mapped file."""
    mapped: Any = array
    while isinstance(mapped, np.ndarray) and not isinstance(mapped.base, mmap.mmap):
        mapped = mapped.base
    if not isinstance(mapped, np.memmap) or not array.flags.c_contiguous or not array.size:
        return None
    if mapped.mode == "c" or mapped.filename is None:  # changes in memory are not in the file
        return None
    path = Path(mapped.filename)
    offset = mapped.offset + array.ctypes.data - mapped.ctypes.data
    if not path.is_file() or path.stat().st_size < offset + array.nbytes:
        return None
    return Place(array.dtype.str, array.shape, offset, str(path.resolve()))


def _write(descriptor: int, array: np.ndarray, offset: int) -> None:
    data = array.reshape(-1).view(np.uint8).data if array.size else b""
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done : done + PIECE_BYTES], offset + done)


# --- jobs: blocks that the simulation writes and workers read --------------------------------


class Block(NamedTuple):
    """The place of some bytes in the shared memory."""

    start: int
    size: int

    @property
    def room(self) -> int:
        """Bytes of the whole pages that hold the bytes."""
        return -(-max(self.size, 1) // PAGE_BYTES) * PAGE_BYTES


class SharedMemory:
    """Blocks that one process writes, and others read by the file's descriptor.

    Attributes:
        descriptor: descriptor of the file, for `read` in the other processes.
    """

    def __init__(self) -> None:
        self.descriptor = anonymous_file("fedmx")
        os.ftruncate(self.descriptor, FIRST_BYTES)
        self._memory = mmap.mmap(self.descriptor, FIRST_BYTES)
        self._free = [(0, FIRST_BYTES)]  # (start, stop), ascending, none touching the next

    def put(self, data: memoryview) -> Block:
        """Write bytes into a free place."""
        block = self._place(data.nbytes)
        self._memory[block.start : block.start + block.size] = data
        return block

    def holds(self, block: Block, data: memoryview) -> bool:
        """Return whether the bytes in a block are equal to these."""
        stored = np.frombuffer(self._memory, np.uint8, block.size, block.start)
        given = np.frombuffer(data, np.uint8)
        words = len(given) // 8 * 8
        stored8, given8 = stored[:words].view(np.uint64), given[:words].view(np.uint64)
        first = slice(PAGE_BYTES // 8)  # most differences show in the first page
        return bool(
            len(given) == len(stored)
            and (stored8[first] == given8[first]).all()
            and (stored8 == given8).all()
            and (stored[words:] == given[words:]).all()
        )

    def release(self, block: Block) -> None:
        """Release a block, which may then be overwritten."""
        self._free.append((block.start, block.start + block.room))
        merged: list[tuple[int, int]] = []
        for start, stop in sorted(self._free):
            if merged and merged[-1][1] == start:
                start = merged.pop()[0]
            merged.append((start, stop))
        self._free = merged

    def close(self) -> None:
        """Close the memory."""
        self._memory.close()
        os.close(self.descriptor)

    def _place(self, size: int) -> Block:
        needed = Block(0, size).room
        for index, (start, stop) in enumerate(self._free):
            if stop - start >= needed:
                rest = [(start + needed, stop)] if stop - start > needed else []
                self._free[index : index + 1] = rest
                return Block(start, size)
        end = len(self._memory)
        self._memory.resize(end + max(needed, end))  # unwritten pages take no memory
        self.release(Block(end, len(self._memory) - end))
        return self._place(size)


def read(descriptor: int, block: Block) -> bytearray:
    """Return a block's bytes, in any process that has the file's descriptor.

    Raises:
        EOFError: the file ends before the block.
    """
    found = bytearray(block.size)
    done = 0
    while done < block.size:
        got = os.preadv(descriptor, [memoryview(found)[done:]], block.start + done)
        if not got:
            raise EOFError(f"the shared memory ends before {block}")
        done += got
    return found


# --- replies: files that a worker writes and the simulation reads ----------------------------


class ReplyFiles:
    """Files without names that take a worker's large replies in turns; small replies are piped.

    A worker continues with its next job at once, because it need not wait until the simulation
    reads a large reply from the pipe.

    Args:
        descriptors: their descriptors in this process; None: create the files.
    """

    def __init__(self, descriptors: Sequence[int] | None = None) -> None:
        if descriptors is None:
            descriptors = [anonymous_file("fedmx-reply") for _ in range(REPLY_FILES)]
        self.descriptors = list(descriptors)
        self._next = 0

    def write(self, reply: Payload) -> bytes:
        """Write a reply; return the message for the pipe."""
        if reply.size <= MAX_PIPED_BYTES:
            return _PIPED + bytes(reply)
        descriptor, done = self._turn(), 0
        buffers = [buffer.cast("B") for buffer in reply.buffers if buffer.nbytes]
        while buffers:
            wrote = os.pwritev(descriptor, buffers[:MAX_BUFFERS], done)
            done += wrote
            while buffers and wrote >= len(buffers[0]):
                wrote -= len(buffers.pop(0))
            if wrote:
                buffers[0] = buffers[0][wrote:]
        return _IN_FILE + str(done).encode()

    def read(self, message: bytes) -> bytes:
        """Return the reply of a message.

        Raises:
            EOFError: its file ends before it.
        """
        if message[:1] == _PIPED:
            return message[1:]
        size, descriptor, done = int(message[1:]), self._turn(), 0
        pieces = []
        while done < size:
            pieces.append(os.pread(descriptor, size - done, done))
            if not pieces[-1]:
                raise EOFError("a reply is shorter than its worker said")
            done += len(pieces[-1])
        if size > MAX_KEPT_BYTES:
            os.ftruncate(descriptor, 0)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Close the files."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def _turn(self) -> int:
        self._next += 1
        return self.descriptors[self._next % len(self.descriptors)]
