"""Several messages and files on one connection: cut into chunks, sent in turn, reassembled."""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable

import numpy as np

from layers.network.encoding.payload import Payload
from layers.network.encoding.payload_layout import ALIGNMENT, HEAD_BYTES
from layers.network.errors import LimitExceeded, ProtocolError, TransferError
from layers.network.protocol.frames import (
    CHUNK_BYTES,
    HEADER,
    HEADER_BYTES,
    SIZE,
    Kind,
    frame,
    wire_size,
)
from layers.network.protocol.limits import Limits
from layers.network.protocol.traffic import Meter

MAPPED_BYTES = 1 << 20


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


class Outbox:
    """What waits to be sent: control frames first, then a chunk of each stream in turn."""

    def __init__(self, meter: Meter) -> None:
        self.max_open_bytes = 0
        self.max_streams = 0
        self._meter = meter
        self._control: deque[tuple[Kind, bytes]] = deque()
        self.control_bytes = 0  # of the control frames that wait
        self._waiting: deque[OutgoingMessage] = deque()
        self._turns: deque[OutgoingMessage | OutgoingFile] = deque()
        self._open_bytes = 0
        self._open_messages = 0
        self._last_stream = 0
        self.finished: list[OutgoingMessage] = []
        self.unreadable: list[tuple[int, str]] = []

    def new_stream(self) -> int:
        """Return a stream number that this end has not used."""
        self._last_stream += 1
        return self._last_stream

    def control(self, kind: Kind, stream: int = 0, payload: bytes = b"") -> None:
        """Queue a control frame; it overtakes all chunks."""
        whole = frame(kind, stream, payload)
        self._control.append((kind, whole))
        self.control_bytes += len(whole)

    def message(self, payload: Payload) -> int:
        """Queue a message and return its stream."""
        message = OutgoingMessage(self.new_stream(), payload)
        self._waiting.append(message)
        return message.stream

    def file(self, outgoing: OutgoingFile) -> None:
        """Queue the bytes of a file whose receiver is ready for them."""
        self.drop_file(outgoing.stream)
        if outgoing.left:
            self._turns.append(outgoing)

    def drop_file(self, stream: int) -> None:
        """Send nothing more of a file."""
        self._turns = deque(
            turn for turn in self._turns if turn.stream != stream or turn.kind is Kind.DATA
        )

    def drop(self) -> None:
        """Drop everything but control frames."""
        self._waiting.clear()
        self._turns.clear()

    @property
    def urgent(self) -> bool:
        """Whether a control frame waits."""
        return bool(self._control)

    @property
    def idle(self) -> bool:
        """Whether no message and no chunk waits."""
        return not self._waiting and not self._turns

    def take(self, max_bytes: int) -> list[bytes | memoryview]:
        """Return the next frames in pieces: one if there is any, and more until `max_bytes`."""
        pieces: list[bytes | memoryview] = []
        total = 0
        while total < max_bytes:
            if self._control:
                kind, whole = self._control.popleft()
                self.control_bytes -= len(whole)
                self._meter.sent(kind, len(whole))
                pieces.append(whole)
                total += len(whole)
                continue
            total += self._open_next(pieces)
            if not self._turns:
                break
            turn = self._turns.popleft()
            size = min(turn.left, CHUNK_BYTES)
            try:
                chunk = turn.take(size)
            except TransferError as error:
                self.unreadable.append((turn.stream, str(error)))
                continue
            pieces.append(HEADER.pack(turn.kind, 0, turn.stream, size))
            pieces += chunk
            self._meter.sent(turn.kind, HEADER_BYTES + size)
            total += HEADER_BYTES + size
            if turn.left:
                self._turns.append(turn)
            elif isinstance(turn, OutgoingMessage):
                self._open_messages -= 1
                self._open_bytes -= turn.payload.size
                self.finished.append(turn)
        return pieces

    def _open_next(self, pieces: list[bytes | memoryview]) -> int:
        """Announce waiting messages as far as the receiver's limits allow; return the bytes."""
        announced = 0
        while self._waiting and self._open_messages < self.max_streams:
            message = self._waiting[0]
            if self._open_bytes + message.payload.size > self.max_open_bytes:
                break
            self._waiting.popleft()
            self._open_messages += 1
            self._open_bytes += message.payload.size
            self._turns.append(message)
            whole = frame(Kind.MESSAGE, message.stream, SIZE.pack(message.payload.size))
            self._meter.sent(Kind.MESSAGE, len(whole))
            pieces.append(whole)
            announced += len(whole)
        return announced


class Inbox:
    """Messages that are being received; their sizes are checked before memory is allocated.

    `check_head` checks the size of a message when it is known which type it has.
    """

    def __init__(
        self,
        limits: Limits,
        check_head: Callable[[memoryview, int], None] = lambda head, size: None,
    ) -> None:
        self._limits = limits
        self._check_head = check_head
        self._announced: dict[int, int] = {}  # the size of a message of which no chunk has come
        self._open: dict[int, tuple[memoryview, int]] = {}
        self._open_bytes = 0
        self._last_stream = 0

    def announce(self, stream: int, payload: bytes) -> int:
        """Take note of a message that will come, and return its size.

        Raises:
            ProtocolError: the stream was used before, or there is no size.
            LimitExceeded: the message is too large, or there are too many at a time.
        """
        if len(payload) != SIZE.size or stream <= self._last_stream:
            raise ProtocolError(f"a message was announced wrongly on stream {stream}")
        (size,) = SIZE.unpack(payload)
        if size < 1:
            raise ProtocolError("a message of no bytes was announced")
        if size > self._limits.max_message_bytes - self._open_bytes:
            raise LimitExceeded(
                f"a message of {size} bytes was announced; max_message_bytes is "
                f"{self._limits.max_message_bytes}, of which {self._open_bytes} are in use"
            )
        if len(self._open) + len(self._announced) >= self._limits.max_streams:
            raise LimitExceeded(f"more than {self._limits.max_streams} messages at a time")
        self._last_stream = stream
        self._announced[stream] = size
        self._open_bytes += size
        return int(size)

    def chunk(self, stream: int, length: int) -> None:
        """Check a chunk's header, and make room for the message if it is its first.

        Raises:
            ProtocolError: the stream is unknown, or the chunk does not have the length that the
                next one must have.
            LimitExceeded: there is no memory for the message.
        """
        if stream in self._announced:
            self._open[stream] = (_allocate(self._announced.pop(stream)), 0)
        if stream not in self._open:
            raise ProtocolError(f"a chunk for stream {stream}, on which no message was announced")
        buffer, filled = self._open[stream]
        expected = min(len(buffer) - filled, CHUNK_BYTES)
        if length != expected:
            raise ProtocolError(f"a chunk of {length} bytes where {expected} were expected")

    def piece(self, stream: int, data: memoryview) -> memoryview | None:
        """Store bytes of a chunk; return the payload when it is complete.

        Raises:
            LimitExceeded: the message is too large for its type.
        """
        buffer, filled = self._open[stream]
        buffer[filled : filled + len(data)] = data
        return self.filled(stream, len(data))

    def room(self, stream: int, size: int) -> memoryview:
        """Return the memory for the next `size` bytes of a message."""
        buffer, filled = self._open[stream]
        return buffer[filled : filled + size]

    def filled(self, stream: int, size: int) -> memoryview | None:
        """Count bytes that were stored in `room`; return the payload when it is complete.

        Raises:
            LimitExceeded: the message is too large for its type.
        """
        buffer, filled = self._open[stream]
        end = filled + size
        if filled < HEAD_BYTES <= end:
            self._check_head(buffer[:HEAD_BYTES], len(buffer))
        if end < len(buffer):
            self._open[stream] = (buffer, end)
            return None
        del self._open[stream]
        self._open_bytes -= len(buffer)
        return buffer

    def drop(self) -> None:
        """Forget all unfinished messages."""
        self._announced.clear()
        self._open.clear()


def _allocate(size: int) -> memoryview:
    """Return memory for a message, aligned so that its arrays are aligned.

    Pages are touched only when bytes arrive. Large messages get mapped memory: for numpy's huge
    pages the kernel would look for room while bytes wait, and mapped memory is given back as soon
    as the message is dropped.
    """
    try:
        if size >= MAPPED_BYTES:
            return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        room = np.empty(size + ALIGNMENT, dtype=np.uint8)
    except (MemoryError, OSError, OverflowError):
        raise LimitExceeded(f"no memory for a message of {size} bytes") from None
    start = -room.ctypes.data % ALIGNMENT
    return memoryview(room[start : start + size].data)
