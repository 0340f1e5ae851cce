"""Frames of ten header bytes and a payload, and traffic counted by kind of frame."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter

from layers.network.errors import BOTH_OR_NEITHER, MalformedFrame

HEADER = struct.Struct("!BBII")  # kind, flags (0), stream, length of what follows
HEADER_BYTES = HEADER.size
CHUNK_BYTES = 256 * 1024  # the most in a chunk
MAX_CONTROL_BYTES = 64 * 1024
TLS_HANDSHAKE = (22, 3)  # kind and flags of a frame, if the peer starts TLS
SIZE = struct.Struct("!Q")  # payload of MESSAGE: size of the message
PART = struct.Struct("!QQ32s")  # payload of PARTIAL: message size, bytes received, their SHA-256


class Kind(enum.IntEnum):
    """The kinds of frames."""

    GREETING = 1
    HELLO = 2
    WELCOME = 3
    REFUSAL = 4
    PING = 5
    PONG = 6
    GOODBYE = 7
    MESSAGE = 16
    DATA = 17
    PARTIAL = 18
    CONTINUE = 19
    FILE_OFFER = 32
    FILE_ACCEPT = 33
    FILE_START = 34
    FILE_DATA = 35
    FILE_DONE = 36
    FILE_REFUSED = 37
    FILE_CANCELLED = 38


KINDS = {int(kind): kind for kind in Kind}
CHUNKED = frozenset({Kind.DATA, Kind.FILE_DATA})
MESSAGE_KINDS = frozenset({Kind.MESSAGE, Kind.DATA, Kind.CONTINUE})
FILE_KINDS = frozenset(kind for kind in Kind if kind >= Kind.FILE_OFFER)


def wire_size(payload_size: int) -> int:
    """Return the bytes on the wire of a message, headers included, without TLS's own bytes."""
    chunks = -(-payload_size // CHUNK_BYTES)
    return HEADER_BYTES + SIZE.size + chunks * HEADER_BYTES + payload_size


def frame(kind: Kind, stream: int = 0, payload: bytes = b"") -> bytes:
    """Return a whole frame as bytes."""
    return HEADER.pack(kind, 0, stream, len(payload)) + payload


@dataclass(frozen=True)
class Frame:
    """A whole control frame."""

    kind: Kind
    stream: int
    payload: bytes


@dataclass(frozen=True)
class ChunkStart:
    """The header of a chunk."""

    kind: Kind
    stream: int
    length: int


@dataclass(frozen=True)
class Piece:
    """Bytes of the current chunk; `data` is valid until the reader goes on."""

    kind: Kind
    stream: int
    data: memoryview


class FrameReader:
    """Splits a byte stream into frames; it buffers at most one control frame.

    `consumed` counts the bytes of the last `feed` that were read so far.
    """

    def __init__(self) -> None:
        self.consumed = 0
        self._pending = bytearray()
        self._chunk: ChunkStart | None = None
        self._left = 0

    def feed(self, data: bytes | memoryview) -> Iterator[Frame | ChunkStart | Piece]:
        """Yield the frames, chunk headers and pieces of chunks in `data`.

        Raises:
            MalformedFrame: an unknown kind, flags, or a length that the kind does not allow.
        """
        view = memoryview(data)
        size = len(view)
        while len(view):
            if self._chunk is not None:
                taken = min(self._left, len(view))
                piece = Piece(self._chunk.kind, self._chunk.stream, view[:taken])
                view = view[taken:]
                self._left -= taken
                if not self._left:
                    self._chunk = None
                self.consumed = size - len(view)
                yield piece
                continue
            needed = HEADER_BYTES
            if len(self._pending) >= HEADER_BYTES:
                needed += self._header()[2]
            missing = needed - len(self._pending)
            self._pending += view[:missing]
            view = view[missing:]
            self.consumed = size - len(view)
            if len(self._pending) >= HEADER_BYTES:
                kind, stream, length = self._header()
                if kind in CHUNKED:
                    self._pending.clear()
                    self._chunk, self._left = ChunkStart(kind, stream, length), length
                    yield self._chunk
                elif len(self._pending) == HEADER_BYTES + length:
                    payload = bytes(self._pending[HEADER_BYTES:])
                    self._pending.clear()
                    yield Frame(kind, stream, payload)

    @property
    def chunk_left(self) -> tuple[ChunkStart, int] | None:
        """The current chunk and the number of its missing bytes."""
        return None if self._chunk is None else (self._chunk, self._left)

    def skip(self, size: int) -> None:
        """Count bytes of the chunk that bypassed this reader."""
        self._left -= size
        if not self._left:
            self._chunk = None

    @property
    def between_frames(self) -> bool:
        """Whether the bytes so far end with a whole frame."""
        return not self._pending and self._chunk is None

    def _header(self) -> tuple[Kind, int, int]:
        number, flags, stream, length = HEADER.unpack_from(self._pending)
        kind = KINDS.get(number)
        if (number, flags) == TLS_HANDSHAKE:
            raise MalformedFrame(f"the peer speaks TLS, this end does not: {BOTH_OR_NEITHER}")
        if kind is None or flags:
            raise MalformedFrame(f"no frame of this protocol: kind {number}, flags {flags}")
        if kind in CHUNKED and not 0 < length <= CHUNK_BYTES:
            raise MalformedFrame(f"a chunk of {length} bytes; 1 to {CHUNK_BYTES} are allowed")
        if kind not in CHUNKED and length > MAX_CONTROL_BYTES:
            raise MalformedFrame(f"a control frame of {length} bytes, over {MAX_CONTROL_BYTES}")
        return kind, stream, length


@dataclass(frozen=True)
class ConnectionTraffic:
    """Bytes so far, without TLS's own; the three kinds add up to all bytes of the socket."""

    message_bytes_sent: int = 0
    message_bytes_received: int = 0
    file_bytes_sent: int = 0
    file_bytes_received: int = 0
    control_bytes_sent: int = 0
    control_bytes_received: int = 0

    @property
    def sent_bytes(self) -> int:
        """All bytes sent."""
        return self.message_bytes_sent + self.file_bytes_sent + self.control_bytes_sent

    @property
    def received_bytes(self) -> int:
        """All bytes received."""
        return self.message_bytes_received + self.file_bytes_received + self.control_bytes_received

    @classmethod
    def total(cls, parts: Iterable[ConnectionTraffic]) -> ConnectionTraffic:
        """Return the sum of some traffic, for thousands of connections in a few milliseconds."""
        return cls(*map(sum, zip(*map(_counts, parts), strict=True)))


_counts = attrgetter(*(item.name for item in fields(ConnectionTraffic)))


class Meter:
    """Counts the traffic of one connection."""

    def __init__(self) -> None:
        self._sent = [0, 0, 0]
        self._received = [0, 0]
        self._received_total = 0

    def sent(self, kind: Kind, size: int) -> None:
        """Count sent bytes of a kind of frame."""
        self._sent[_column(kind)] += size

    def received(self, kind: Kind, size: int) -> None:
        """Count received bytes of a kind of frame."""
        if kind in MESSAGE_KINDS or kind in FILE_KINDS:
            self._received[_column(kind)] += size

    def received_total(self, size: int) -> None:
        """Count received bytes of any kind."""
        self._received_total += size

    def read(self) -> ConnectionTraffic:
        """Return the traffic so far; bytes outside messages and files are control bytes."""
        message, file = self._received
        control = self._received_total - message - file
        return ConnectionTraffic(
            self._sent[0], message, self._sent[1], file, self._sent[2], control
        )


def _column(kind: Kind) -> int:
    if kind in MESSAGE_KINDS:
        return 0
    return 1 if kind in FILE_KINDS else 2
