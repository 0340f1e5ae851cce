"""Memory that a simulation shares with its worker processes: blocks of one anonymous file."""

from __future__ import annotations

import mmap
import os
from typing import NamedTuple

import numpy as np

PAGE_BYTES = 4096
FIRST_BYTES = 1 << 20


class Block(NamedTuple):
    """Where some bytes lie in the file."""

    start: int
    size: int

    @property
    def room(self) -> int:
        """Whole pages that hold the bytes."""
        return -(-max(self.size, 1) // PAGE_BYTES) * PAGE_BYTES


class SharedMemory:
    """Blocks are written by one process and read by others, which were given the descriptor.

    The file has no name, so that nothing is left behind however the processes end.

    Attributes:
        descriptor: of the file; `read` takes it in the other processes.
    """

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("fedmx")
        os.ftruncate(self.descriptor, FIRST_BYTES)
        self._memory = mmap.mmap(self.descriptor, FIRST_BYTES)
        self._free = [(0, FIRST_BYTES)]  # (start, stop), in order, none touching the next

    @property
    def size(self) -> int:
        """Bytes that the file has had room for so far."""
        return len(self._memory)

    def put(self, data: memoryview) -> Block:
        """Write bytes into a free place."""
        block = self._place(data.nbytes)
        self._memory[block.start : block.start + block.size] = data
        return block

    def holds(self, block: Block, data: memoryview) -> bool:
        """Return whether these very bytes are in a block."""
        stored = np.frombuffer(self._memory, np.uint8, block.size, block.start)
        given = np.frombuffer(data, np.uint8)
        first = slice(PAGE_BYTES)  # what differs mostly differs here already
        return np.array_equal(stored[first], given[first]) and np.array_equal(stored, given)

    def release(self, block: Block) -> None:
        """Let go of a block; it may be written over."""
        self._free.append((block.start, block.start + block.room))
        merged: list[tuple[int, int]] = []
        for start, stop in sorted(self._free):
            if merged and merged[-1][1] == start:
                start = merged.pop()[0]
            merged.append((start, stop))
        self._free = merged

    def close(self) -> None:
        """Let go of the memory."""
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
        self._memory.resize(end + max(needed, end))  # pages that are never written cost nothing
        self.release(Block(end, len(self._memory) - end))
        return self._place(size)


def read(descriptor: int, block: Block, into: memoryview) -> None:
    """Copy a block's bytes out, in any process that has the file's descriptor."""
    done = 0
    while done < block.size:
        got = os.preadv(descriptor, [into[done:]], block.start + done)
        if not got:
            raise EOFError(f"the shared memory ends before {block}")
        done += got
