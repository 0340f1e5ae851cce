"""What waits to be sent on one connection: messages and files, cut into chunks that take turns."""

from __future__ import annotations

from collections import deque

from layers.network.encoding.payload import Payload
from layers.network.errors import LimitExceeded, TransferError
from layers.network.protocol.frames import (
    CHUNK_BYTES,
    HEADER,
    HEADER_BYTES,
    PART,
    SIZE,
    Kind,
    frame,
)
from layers.network.protocol.outgoing import OutgoingFile, OutgoingMessage
from layers.network.protocol.partial_messages import LEAST_BYTES, part_of
from layers.network.protocol.traffic import Meter


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

    def withdraw(self, name: str) -> list[OutgoingMessage]:
        """Remove the messages of a type that are not announced yet, and return them."""
        withdrawn = [message for message in self._waiting if message.payload.name == name]
        for message in withdrawn:
            self._waiting.remove(message)
        return withdrawn

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
