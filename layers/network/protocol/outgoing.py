"""A message or a file that is being sent, as the bytes that come next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from layers.network.encoding.payload import Payload
from layers.network.protocol.frames import Kind, wire_size


class OutgoingMessage:
    """A message that is being sent; its arrays are not copied."""

    kind = Kind.DATA

    def __init__(self, stream: int, payload: Payload) -> None:
        self.stream = stream
        self.payload = payload
        self.left = payload.size
        self.wire_bytes = wire_size(payload.size)
        self._buffers = deque(payload.buffers)
        self._offset = 0

    def take(self, size: int) -> list[memoryview]:
        """Return the next `size` bytes as views."""
        pieces = []
        self.left -= size
        while size:
            rest = self._buffers[0][self._offset :]
            piece = rest[:size]
            pieces.append(piece)
            size -= len(piece)
            self._offset += len(piece)
            if len(piece) == len(rest):
                self._buffers.popleft()
                self._offset = 0
        return pieces


class OutgoingFile:
    """A file of `size` bytes that is being sent from `offset` on.

    `read` returns the bytes at an offset, so many, or raises TransferError.
    """

    kind = Kind.FILE_DATA

    def __init__(
        self, stream: int, size: int, offset: int, read: Callable[[int, int], bytes]
    ) -> None:
        self.stream = stream
        self.left = size - offset
        self._size = size
        self._read = read

    def take(self, size: int) -> list[memoryview]:
        """Return the next `size` bytes."""
        offset = self._size - self.left
        self.left -= size
        return [memoryview(self._read(offset, size))]
