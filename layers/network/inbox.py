"""Messages that are being received, and the received parts of those that were interrupted."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layers.network.errors import LimitExceeded, ProtocolError
from layers.network.frames import CHUNK_BYTES, PART, SIZE
from layers.network.limits import Limits
from layers.network.payload import ALIGNMENT, HEAD_BYTES

MAPPED_BYTES = 1 << 18  # such a message's memory goes back to the system when it is dropped


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
        self._continued: dict[int, PartialMessage] = {}  # what came earlier, by open stream
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
        broken = [
            self._continued.get(stream, PartialMessage(buffer, 0)).grown(filled)
            for stream, (buffer, filled) in self._open.items()
        ]
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
            self._continued[stream] = partial
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
        self._continued.pop(stream, None)
        self._open_bytes -= len(buffer)
        return buffer

    def drop(self) -> None:
        """Forget all unfinished messages."""
        self._announced.clear()
        self._open.clear()
        self._continued.clear()


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


FEATURE = "continue"
"""The feature of a session whose ends continue messages; see `docs/protocol.md`."""

LEAST_BYTES = 1 << 20  # a smaller message begins anew
LEAST_FILLED_BYTES = 1 << 18  # and so does one of which less has come


@dataclass(frozen=True, eq=False)
class PartialMessage:
    """The first bytes of a message.

    Attributes:
        buffer: the memory of the whole message.
        filled: how many of its bytes have come.
        before: the SHA-256 so far, of a part that was hashed when less of it had come.
        hashed: how many bytes that is of.
    """

    buffer: memoryview
    filled: int
    before: hashlib._Hash | None = None
    hashed: int = 0

    @property
    def size(self) -> int:
        """Size of the whole message."""
        return len(self.buffer)

    @property
    def sha256(self) -> bytes:
        """SHA-256 of the bytes that have come; each byte is hashed once, also by `grown`."""
        return self._hash.digest()

    @cached_property
    def _hash(self) -> hashlib._Hash:
        digest = hashlib.sha256() if self.before is None else self.before.copy()
        digest.update(self.buffer[self.hashed : self.filled])
        return digest

    def grown(self, filled: int) -> PartialMessage:
        """Return this part when so many bytes have come of its message."""
        if filled == self.filled:
            return self
        return PartialMessage(self.buffer, filled, self._hash, self.filled)

    @property
    def words(self) -> bytes:
        """What a PARTIAL and a CONTINUE frame say of it."""
        return PART.pack(self.size, self.filled, self.sha256)

    @property
    def large(self) -> bool:
        """Whether to continue it is worth while."""
        return self.size >= LEAST_BYTES and self.filled >= LEAST_FILLED_BYTES


class PartialMessages:
    """What came of the messages of all peers of one end; the oldest make way for new ones.

    What was offered to a peer on its new connection counts until that peer continues it, begins
    another large message, or is gone.

    Args:
        max_bytes: received bytes that are kept of all peers together.
        keep_s: how long they wait for the peer's next connection.
    """

    def __init__(self, max_bytes: int, keep_s: float) -> None:
        self._max_bytes = max_bytes
        self._keep_s = keep_s
        self._waiting: dict[str, tuple[float, list[PartialMessage]]] = {}  # the oldest first
        self._offered: dict[str, list[PartialMessage]] = {}

    @property
    def kept_bytes(self) -> int:
        """The bytes that are kept now."""
        waiting = [partials for _, partials in self._waiting.values()]
        return sum(one.filled for some in (*waiting, *self._offered.values()) for one in some)

    def keep(self, peer: str, partials: Sequence[PartialMessage], now: float) -> None:
        """Keep what came from a peer whose connection has ended; it replaces what was kept."""
        self.drop(peer)
        large = [one for one in partials if one.large]
        size = sum(one.filled for one in large)
        offered = sum(one.filled for some in self._offered.values() for one in some)
        if not large or offered + size > self._max_bytes:
            return  # it would not fit if all others made way
        while self.kept_bytes + size > self._max_bytes:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[peer] = now + self._keep_s, large

    def offered(self, peer: str, now: float) -> list[PartialMessage]:
        """Return what is kept of a peer that is connected again; what it uses must be removed."""
        self.expire(now)
        _, partials = self._waiting.pop(peer, (now, []))
        self._offered[peer] = partials
        return partials

    def drop(self, peer: str) -> None:
        """Keep nothing of a peer."""
        self._waiting.pop(peer, None)
        self._offered.pop(peer, None)

    def expire(self, now: float) -> None:
        """Drop what has waited too long."""
        for peer in [peer for peer, (ends, _) in self._waiting.items() if ends <= now]:
            del self._waiting[peer]
