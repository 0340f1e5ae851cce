"""The send queue of a connection: messages and files alternate chunk by chunk."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias

from layers.network.errors import LimitExceeded, TransferError
from layers.network.frames import (
    CHUNK_BYTES,
    HEADER,
    HEADER_BYTES,
    PART,
    SIZE,
    Kind,
    Meter,
    frame,
    wire_size,
)
from layers.network.inbox import LEAST_BYTES
from layers.network.payload import Payload

Part: TypeAlias = "tuple[int, bytes]"
"""n, and the SHA-256 of the first n bytes of a message."""


def part_of(buffers: Iterable[memoryview], parts: Collection[Part]) -> Part | None:
    """Return the longest of `parts` with which the message in `buffers` begins, if any."""
    found, position, digest = None, 0, hashlib.sha256()
    ends = sorted({end for end, _ in parts})
    for buffer in buffers:
        start = position
        while ends and ends[0] <= start + len(buffer):
            end = ends.pop(0)
            digest.update(buffer[position - start : end - start])
            position = end
            if (end, digest.digest()) in parts:
                found = end, digest.digest()
        if not ends:
            break
        digest.update(buffer[position - start :])
        position = start + len(buffer)
    return found


class OutgoingMessage:
    """A message to send; its arrays are not copied."""

    kind = Kind.DATA

    def __init__(self, stream: int, payload: Payload) -> None:
        self.stream = stream
        self.payload = payload
        self.left = payload.size
        self.wire_bytes = wire_size(payload.size)
        self._buffers = deque(payload.buffers)

    def take(self, size: int) -> list[memoryview]:
        """Return the next `size` bytes as views."""
        pieces = []
        self.left -= size
        while size:
            buffer = self._buffers.popleft()
            pieces.append(buffer[:size])
            if len(buffer) > size:
                self._buffers.appendleft(buffer[size:])
            size -= len(pieces[-1])
        return pieces


class OutgoingFile:
    """A file of `size` bytes to send from `offset` on.

    `read` returns the bytes at an offset, given their number, or raises TransferError.
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
    """Queues frames: control frames first, then a chunk of each stream in turn.

    Attributes:
        max_open_bytes: the most bytes of unfinished messages that the receiver accepts.
        max_streams: the most unfinished messages that it accepts.
        may_begin: returns whether a message of a size may be announced now, and is asked before
            each one; None: all may.
        control_bytes: bytes of queued control frames.
        finished: messages whose last byte was taken.
        unreadable: streams of files that could not be read, and the reasons.
    """

    def __init__(self, meter: Meter) -> None:
        self.max_open_bytes = 0
        self.max_streams = 0
        self.may_begin: Callable[[int], bool] | None = None
        self._meter = meter
        self._control: deque[tuple[Kind, bytes]] = deque()
        self.control_bytes = 0
        self._waiting: deque[OutgoingMessage] = deque()
        self._turns: deque[OutgoingMessage | OutgoingFile] = deque()
        self._open_bytes = 0
        self._open_messages = 0
        self._last_stream = 0
        self._partials: list[bytes] = []  # payloads of PARTIAL frames
        self._started_again = False  # a large message started again: the receiver dropped its parts
        self.finished: list[OutgoingMessage] = []
        self.unreadable: list[tuple[int, str]] = []

    def new_stream(self) -> int:
        """Return a stream number that this end has not used."""
        self._last_stream += 1
        return self._last_stream

    def control(self, kind: Kind, stream: int = 0, payload: bytes = b"") -> None:
        """Queue a control frame; it is sent before all chunks."""
        whole = frame(kind, stream, payload)
        self._control.append((kind, whole))
        self.control_bytes += len(whole)

    def message(self, payload: Payload) -> int:
        """Queue a message and return its stream."""
        message = OutgoingMessage(self.new_stream(), payload)
        self._waiting.append(message)
        return message.stream

    def withdraw(self, name: str) -> list[OutgoingMessage]:
        """Remove and return the messages of a type that are not announced yet."""
        withdrawn = [message for message in self._waiting if message.payload.name == name]
        for message in withdrawn:
            self._waiting.remove(message)
        return withdrawn

    def file(self, outgoing: OutgoingFile) -> None:
        """Queue the bytes of an accepted file."""
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
    def idle(self) -> bool:
        """Whether no message or file is queued."""
        return not self._waiting and not self._turns

    def take(self, max_bytes: int) -> list[bytes | memoryview]:
        """Return the next frames in pieces: at least one if any is queued, up to `max_bytes`."""
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
        """Announce messages that may begin now; return the bytes of their frames."""
        announced = 0
        while self._waiting and self._open_messages < self.max_streams:
            message = self._waiting[0]
            size = message.payload.size
            if self._open_bytes + size > self.max_open_bytes:
                break
            if self.may_begin is not None and not self.may_begin(size):
                break
            self._waiting.popleft()
            self._open_messages += 1
            self._open_bytes += size
            self._turns.append(message)
            kind, words = self._announcement(message)
            whole = frame(kind, message.stream, words)
            self._meter.sent(kind, len(whole))
            pieces.append(whole)
            announced += len(whole)
        return announced

    def receiver_has(self, words: bytes) -> None:
        """Store the payload of a PARTIAL frame: a part of a message that the receiver has.

        Raises:
            LimitExceeded: there are too many.
        """
        if self._started_again:
            return
        if len(self._partials) >= self.max_streams:
            raise LimitExceeded(f"PARTIAL frames for more than {self.max_streams} messages")
        self._partials.append(words)

    def _announcement(self, message: OutgoingMessage) -> tuple[Kind, bytes]:
        """Return the frame that announces a message, and skip the part that the receiver has."""
        size = message.payload.size
        parts = {words: PART.unpack(words) for words in self._partials}
        same = {(has, sha256): words for words, (all, has, sha256) in parts.items() if all == size}
        found = part_of(message.payload.buffers, same.keys()) if same else None
        if found is not None:
            self._partials.remove(same[found])
            message.take(found[0])
            return Kind.CONTINUE, same[found]
        if size >= LEAST_BYTES:
            self._started_again = True
            self._partials.clear()
        return Kind.MESSAGE, SIZE.pack(size)
