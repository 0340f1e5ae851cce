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
    PART,
    SIZE,
    Kind,
    frame,
)
from layers.network.protocol.limits import Limits
from layers.network.protocol.outgoing import OutgoingFile, OutgoingMessage
from layers.network.protocol.partial_messages import (
    LEAST_BYTES,
    PartialMessage,
    part_of,
)
from layers.network.protocol.traffic import Meter

MAPPED_BYTES = 1 << 18  # such a message's memory goes back to the system when it is dropped


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
        self._partials: list[bytes] = []  # what the receiver has of messages, in its words
        self._begun_anew = False  # and the receiver forgets what it has
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
            kind, words = self._announcement(message)
            whole = frame(kind, message.stream, words)
            self._meter.sent(kind, len(whole))
            pieces.append(whole)
            announced += len(whole)
        return announced

    def receiver_has(self, words: bytes) -> None:
        """Take note of what a PARTIAL frame says that the receiver has of a message.

        Raises:
            LimitExceeded: there were too many.
        """
        if self._begun_anew:  # before this frame came
            return
        if len(self._partials) >= self.max_streams:
            raise LimitExceeded(f"parts of more than {self.max_streams} messages are there")
        self._partials.append(words)

    def _announcement(self, message: OutgoingMessage) -> tuple[Kind, bytes]:
        """Return the frame that announces a message; skip what the receiver has of it."""
        size = message.payload.size
        parts = {words: PART.unpack(words) for words in self._partials}
        same = {(has, sha256): words for words, (all, has, sha256) in parts.items() if all == size}
        found = part_of(message.payload.buffers, same.keys()) if same else None
        if found is not None:
            self._partials.remove(same[found])
            message.take(found[0])
            return Kind.CONTINUE, same[found]
        if size >= LEAST_BYTES:
            self._begun_anew = True
            self._partials.clear()
        return Kind.MESSAGE, SIZE.pack(size)


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
        self._partials: list[PartialMessage] = []

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
        if size >= LEAST_BYTES:
            self._partials.clear()  # the sender has begun anew
        return self._begin(stream, size, None)

    def expect(self, partials: list[PartialMessage]) -> None:
        """Take note of what came of messages before; what is used is removed from the list."""
        self._partials = partials

    def go_on(self, stream: int, payload: bytes) -> int:
        """Go on with a message of which a part came earlier, and return its whole size.

        Raises:
            ProtocolError: the stream was used before, or there is no such part.
            LimitExceeded: the message is too large, or there are too many at a time.
        """
        if stream <= self._last_stream:
            raise ProtocolError(f"a message was continued wrongly on stream {stream}")
        for partial in self._partials:
            if partial.words == payload:
                size = self._begin(stream, partial.size, partial)
                self._partials.remove(partial)
                return size
        raise ProtocolError("a message was continued of which no such part is here")

    def unfinished(self) -> list[PartialMessage]:
        """Return what has come of messages that are not complete, on this connection or before."""
        broken = [PartialMessage(buffer, filled) for buffer, filled in self._open.values()]
        return [*broken, *self._partials]

    def _begin(self, stream: int, size: int, partial: PartialMessage | None) -> int:
        if size > self._limits.max_message_bytes - self._open_bytes:
            raise LimitExceeded(
                f"a message of {size} bytes was announced; max_message_bytes is "
                f"{self._limits.max_message_bytes}, of which {self._open_bytes} are in use"
            )
        if len(self._open) + len(self._announced) >= self._limits.max_streams:
            raise LimitExceeded(f"more than {self._limits.max_streams} messages at a time")
        self._last_stream = stream
        if partial is None:
            self._announced[stream] = size
        else:
            self._open[stream] = (partial.buffer, partial.filled)
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
