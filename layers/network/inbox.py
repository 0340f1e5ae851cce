"""Messages that are being received, and the received parts of interrupted ones."""

from __future__ import annotations

import hashlib
import mmap
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layers.network.errors import LimitExceeded, ProtocolError
from layers.network.frames import CHUNK_BYTES, PART, SIZE
from layers.network.limits import Limits
from layers.network.payload import ALIGNMENT, HEAD_BYTES

FEATURE = "continue"
"""The feature of sessions that continue interrupted messages; see `docs/protocol.md`."""

MAPPED_BYTES = 1 << 18  # from this size on, a message gets mapped memory
SPARE_BYTES = 16 << 20  # of mapped memory that waits for the next messages
LEAST_BYTES = 1 << 20  # smaller messages start again
LEAST_FILLED_BYTES = 1 << 18  # and so does a message with fewer bytes received


@dataclass(frozen=True, eq=False)
class PartialMessage:
    """The first bytes of a message.

    Attributes:
        buffer: the memory of the whole message.
        filled: number of bytes received.
        before: the hash of the first `hashed` bytes.
        hashed: number of bytes in `before`.
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
        """SHA-256 of the received bytes; each byte is hashed once, also by `grown`."""
        return self._hash.digest()

    @cached_property
    def _hash(self) -> hashlib._Hash:
        digest = hashlib.sha256() if self.before is None else self.before.copy()
        digest.update(self.buffer[self.hashed : self.filled])
        return digest

    def grown(self, filled: int) -> PartialMessage:
        """Return the part that consists of the first `filled` bytes."""
        if filled == self.filled:
            return self
        return PartialMessage(self.buffer, filled, self._hash, self.filled)

    @property
    def words(self) -> bytes:
        """The payload of a PARTIAL or CONTINUE frame about this part."""
        return PART.pack(self.size, self.filled, self.sha256)

    @property
    def large(self) -> bool:
        """Whether it is worth continuing."""
        return self.size >= LEAST_BYTES and self.filled >= LEAST_FILLED_BYTES


@dataclass
class _Unfinished:
    """A message that was announced."""

    size: int
    buffer: memoryview | None = None  # allocated with the first chunk
    filled: int = 0
    earlier: PartialMessage | None = None  # the part from a previous connection


class Inbox:
    """The unfinished messages of a connection; sizes are checked before memory is allocated.

    `check_head` checks a message's size against its type, as soon as the type is known.

    Methods raise ProtocolError if the peer breaks a rule, and LimitExceeded if a message is too
    large, there are too many, or there is no memory.
    """

    def __init__(
        self,
        limits: Limits,
        check_head: Callable[[memoryview, int], None] = lambda head, size: None,
    ) -> None:
        self._limits = limits
        self._check_head = check_head
        self._open: dict[int, _Unfinished] = {}
        self._open_bytes = 0
        self._last_stream = 0
        self._partials: list[PartialMessage] = []

    def announce(self, stream: int, payload: bytes) -> int:
        """Register an announced message, and return its size."""
        if len(payload) != SIZE.size or stream <= self._last_stream:
            raise ProtocolError(f"a message was announced wrongly on stream {stream}")
        (size,) = SIZE.unpack(payload)
        if size < 1:
            raise ProtocolError("a message of no bytes was announced")
        if size >= LEAST_BYTES:
            self._partials.clear()  # the sender will continue none of them
        self._begin(stream, _Unfinished(size))
        return int(size)

    def expect(self, partials: list[PartialMessage]) -> None:
        """Allow the sender to continue these parts; each is removed from the list when used."""
        self._partials = partials

    def resume(self, stream: int, payload: bytes) -> int:
        """Continue an interrupted message, and return its whole size."""
        if stream <= self._last_stream:
            raise ProtocolError(f"a message was continued wrongly on stream {stream}")
        for part in self._partials:
            if part.words == payload:
                self._begin(stream, _Unfinished(part.size, part.buffer, part.filled, part))
                self._partials.remove(part)
                return part.size
        raise ProtocolError("a message was continued whose part is not here")

    def unfinished(self) -> list[PartialMessage]:
        """Return the parts of unfinished messages, of this connection or a previous one."""
        broken = [
            (message.earlier or PartialMessage(message.buffer, 0)).grown(message.filled)
            for message in self._open.values()
            if message.buffer is not None
        ]
        return [*broken, *self._partials]

    def _begin(self, stream: int, message: _Unfinished) -> None:
        if message.size > self._limits.max_message_bytes - self._open_bytes:
            raise LimitExceeded(
                f"a message of {message.size} bytes was announced; max_message_bytes is "
                f"{self._limits.max_message_bytes}, of which {self._open_bytes} are in use"
            )
        if len(self._open) >= self._limits.max_streams:
            raise LimitExceeded(f"more than {self._limits.max_streams} messages at a time")
        self._last_stream = stream
        self._open[stream] = message
        self._open_bytes += message.size

    def chunk(self, stream: int, length: int) -> None:
        """Check a chunk's header, and allocate the message's memory for its first chunk."""
        message = self._open.get(stream)
        if message is None:
            raise ProtocolError(f"a chunk for stream {stream}, on which no message was announced")
        if message.buffer is None:
            message.buffer = _allocate(message.size)
        expected = min(message.size - message.filled, CHUNK_BYTES)
        if length != expected:
            raise ProtocolError(f"a chunk of {length} bytes where {expected} were expected")

    def room(self, stream: int, size: int) -> memoryview:
        """Return the memory for the next `size` bytes of a message."""
        message = self._open[stream]
        assert message.buffer is not None
        return message.buffer[message.filled : message.filled + size]

    def left(self, stream: int) -> int:
        """Return the number of missing bytes of a message."""
        message = self._open[stream]
        return message.size - message.filled

    def piece(self, stream: int, data: memoryview) -> memoryview | None:
        """Store bytes of a chunk; return the payload when it is complete."""
        self.room(stream, len(data))[:] = data
        return self.filled(stream, len(data))

    def filled(self, stream: int, size: int) -> memoryview | None:
        """Count bytes that were stored in `room`; return the payload when it is complete."""
        message = self._open[stream]
        assert message.buffer is not None
        before = message.filled
        message.filled += size
        if before < HEAD_BYTES <= message.filled:
            self._check_head(message.buffer[:HEAD_BYTES], message.size)
        if message.filled < message.size:
            return None
        del self._open[stream]
        self._open_bytes -= message.size
        return message.buffer

    def drop(self) -> None:
        """Forget all unfinished messages."""
        self._open.clear()


class _Spare:
    """Mapped memory of dropped messages, for the next ones of as many pages.

    The kernel clears a new page when it is touched, which takes a server about a tenth of a round's
    time. The newest memory is taken first, as the processor may still have it in its cache. There
    is never more than `SPARE_BYTES`.
    """

    def __init__(self) -> None:
        self._spare: list[mmap.mmap] = []
        self._turn = threading.RLock()  # memory comes back in any thread, also amid `take`

    def take(self, size: int) -> memoryview:
        """Return memory, which comes back when nothing refers to it any more."""
        whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        with self._turn:
            pages = next((one for one in reversed(self._spare) if len(one) == whole), None)
            if pages is not None:
                self._spare.remove(pages)
        pages = pages or mmap.mmap(-1, whole, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        room = np.frombuffer(pages, np.uint8)
        weakref.finalize(room, self._come_back, pages).atexit = False
        return memoryview(room)[:size]  # type: ignore[arg-type]

    def _come_back(self, pages: mmap.mmap) -> None:
        with self._turn:
            self._spare.append(pages)
            while sum(map(len, self._spare)) > SPARE_BYTES:
                self._spare.pop(0)


_SPARE = _Spare()


def _allocate(size: int) -> memoryview:
    """Return memory for a message, aligned so that its arrays are aligned.

    Pages are touched only when bytes arrive. Large messages get mapped memory: what is not spare
    returns to the system as soon as the message is dropped, and the kernel does not search for huge
    pages for it.
    """
    try:
        if size >= MAPPED_BYTES:
            return _SPARE.take(size)
        room = np.empty(size + ALIGNMENT, dtype=np.uint8)
    except (MemoryError, OSError, OverflowError):
        raise LimitExceeded(f"no memory for a message of {size} bytes") from None
    start = -room.ctypes.data % ALIGNMENT
    return memoryview(room[start : start + size].data)


class PartialMessages:
    """The parts that one end keeps of all its peers' interrupted messages.

    A part counts until its peer continues it, starts another large message, or is gone.

    Args:
        max_bytes: the most bytes to keep; the oldest parts are evicted first.
        keep_s: how long to wait for a peer's next connection.
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
        """Keep the parts of a peer whose connection has ended, in place of older ones."""
        self.drop(peer)
        large = [one for one in partials if one.large]
        size = sum(one.filled for one in large)
        offered = sum(one.filled for some in self._offered.values() for one in some)
        if not large or offered + size > self._max_bytes:
            return  # it would not fit even if all waiting parts were evicted
        while self.kept_bytes + size > self._max_bytes:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[peer] = now + self._keep_s, large

    def offered(self, peer: str, now: float) -> list[PartialMessage]:
        """Return the parts of a peer that is connected again; remove those that it uses."""
        self.expire(now)
        _, partials = self._waiting.pop(peer, (now, []))
        self._offered[peer] = partials
        return partials

    def drop(self, peer: str) -> None:
        """Drop the parts of a peer."""
        self._waiting.pop(peer, None)
        self._offered.pop(peer, None)

    def expire(self, now: float) -> None:
        """Drop the parts that have waited for longer than `keep_s`."""
        for peer in [peer for peer, (ends, _) in self._waiting.items() if ends <= now]:
            del self._waiting[peer]
