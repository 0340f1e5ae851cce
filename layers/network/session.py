"""Where a session can stand, and which frames may come there.

=================  ======================================================  =====================
state              frames that may come                                    left by
=================  ======================================================  =====================
AWAIT_GREETING     GREETING, REFUSAL                                       GREETING (client)
AWAIT_WELCOME      WELCOME, REFUSAL                                        WELCOME (client)
AWAIT_HELLO        HELLO, REFUSAL                                          HELLO (server)
DECIDING           REFUSAL                                                 admit, refuse (server)
OPEN               PING, PONG, MESSAGE, DATA, PARTIAL, CONTINUE,           GOODBYE, REFUSAL
                   FILE_*, GOODBYE, REFUSAL
CLOSING            any; none is read                                       the connection's end
=================  ======================================================  =====================

In every state, a frame that may not come, a timeout and a broken connection lead to CLOSING, with
an `Ended` event that says why.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from layers.network.codec import MessageCodec
from layers.network.control import (
    CONTROL,
    FileAccept,
    FileOffer,
    FileReason,
    FileStart,
    Goodbye,
    Refusal,
    clean,
    file_event,
    words_of,
)
from layers.network.errors import NetworkError, ProtocolError
from layers.network.events import (
    Arrived,
    Ended,
    FileChunk,
    SessionEvent,
    Terms,
    Verified,
)
from layers.network.frames import (
    CHUNK_BYTES,
    FILE_KINDS,
    HEADER_BYTES,
    MESSAGE_KINDS,
    PART,
    ChunkStart,
    Frame,
    FrameReader,
    Kind,
    Meter,
    Piece,
    wire_size,
)
from layers.network.inbox import FEATURE, Inbox, PartialMessage
from layers.network.limits import Limits
from layers.network.memory import Account
from layers.network.outbox import Outbox, OutgoingFile, OutgoingMessage
from layers.network.payload import Payload


class State(enum.Enum):
    """Where a session stands; see the table above."""

    AWAIT_GREETING = "waiting for the server's greeting"
    AWAIT_WELCOME = "waiting for the server's welcome"
    AWAIT_HELLO = "waiting for the client's hello"
    DECIDING = "deciding on the client"
    OPEN = "open"
    CLOSING = "closing"


ALLOWED: dict[State, frozenset[Kind]] = {
    State.AWAIT_GREETING: frozenset({Kind.GREETING, Kind.REFUSAL}),
    State.AWAIT_WELCOME: frozenset({Kind.WELCOME, Kind.REFUSAL}),
    State.AWAIT_HELLO: frozenset({Kind.HELLO, Kind.REFUSAL}),
    State.DECIDING: frozenset({Kind.REFUSAL}),
    State.OPEN: frozenset({Kind.PING, Kind.PONG, Kind.GOODBYE, Kind.REFUSAL, Kind.PARTIAL})
    | MESSAGE_KINDS
    | FILE_KINDS,
}
EMPTY_KINDS = frozenset({Kind.PING, Kind.PONG, Kind.FILE_DONE})


@dataclass
class Pulse:
    """When something came and went last; `now` is when the session began.

    Attributes:
        now: in seconds of a monotonic clock, as all moments here.
        every_s: of this end's silence after which a heartbeat is sent.
        timeout_s: of the peer's silence after which it is lost.
        received_at: when something came from the peer last.
        ping_waits: whether the next heartbeat waits to be sent already.
    """

    now: float
    every_s: float = 0.0
    timeout_s: float = 0.0
    received_at: float = field(init=False)
    ping_waits: bool = False

    def __post_init__(self) -> None:
        self.received_at = self._sent_at = self.now

    def sent(self, now: float) -> None:
        """Take note that something was sent."""
        self._sent_at = now
        self.ping_waits = False

    def due(self) -> float:
        """Return when a heartbeat is to be sent, or the peer is lost."""
        dead = self.received_at + self.timeout_s
        return dead if self.ping_waits else min(dead, self._sent_at + self.every_s)

    def is_dead(self, now: float) -> bool:
        """Return whether the peer has been silent for too long."""
        return now >= self.received_at + self.timeout_s


class FileFrames:
    """The part of a session that is about files; its words go out ahead of all chunks."""

    _outbox: Outbox

    def offer_file(self, name: str, size: int, sha256: bytes) -> int:
        """Offer a file and return its stream."""
        stream = self._outbox.new_stream()
        self._say(Kind.FILE_OFFER, stream, FileOffer(name, size, sha256))
        return stream

    def accept_file(self, stream: int, offset: int, sha256: bytes) -> None:
        """Ask for an offered file from `offset` on, if its first bytes have this SHA-256."""
        self._say(Kind.FILE_ACCEPT, stream, FileAccept(offset, sha256))

    def start_file(self, outgoing: OutgoingFile, offset: int) -> None:
        """Send an accepted file from `offset` on."""
        self._say(Kind.FILE_START, outgoing.stream, FileStart(offset))
        self._outbox.file(outgoing)

    def confirm_file(self, stream: int) -> None:
        """Tell the peer that its file is complete and verified."""
        self._outbox.control(Kind.FILE_DONE, stream)

    def refuse_file(self, stream: int, reason: str) -> None:
        """Tell the peer that an offered file is not wanted or could not be kept."""
        self._say(Kind.FILE_REFUSED, stream, FileReason(reason[:500]))

    def cancel_file(self, stream: int, reason: str) -> None:
        """Give up a file that this end was sending."""
        self._outbox.drop_file(stream)
        self._say(Kind.FILE_CANCELLED, stream, FileReason(reason[:500]))

    def _say(self, kind: Kind, stream: int, words: object) -> None:
        self._outbox.control(kind, stream, bytes(CONTROL.encode(words)))


T = TypeVar("T")


class Session(FileFrames, ABC):
    """What both ends of a session share; `ServerSession` and `ClientSession` add the handshake.

    `receive_data` takes the bytes that were received and returns events. `data_to_send` returns the
    bytes to send, and is called as fast as the connection takes them. `now` is a monotonic time in
    seconds.
    """

    def __init__(
        self,
        codec: MessageCodec,
        limits: Limits,
        now: float,
        state: State,
        handshake_s: float,
    ) -> None:
        self.state = state
        self.terms: Terms | None = None
        self.meter = Meter()
        self.peer_left = False
        self.memory: Account | None = None  # None: messages need not wait for memory
        self.unread = 0  # bytes at the end of what was received last, which are to be given again
        self._codec = codec
        self._reader = FrameReader()
        self._inbox = Inbox(limits, codec.check_head)
        self._outbox = Outbox(self.meter)
        self._max_kept_bytes = limits.max_kept_bytes
        self._handshake_s = handshake_s
        self._handshake_ends = now + handshake_s
        self._pulse = Pulse(now)
        self._farewell: Goodbye | None = None
        self.unfinished: list[PartialMessage] = []  # what came of messages, when it has ended

    # What comes in

    def receive_data(self, data: bytes | memoryview, now: float) -> list[SessionEvent]:
        """Read bytes of the peer, and return the events in them.

        `data` may be reused once the `FileChunk` events have been handled, which are views of it.
        A message that has to wait for memory ends the reading: `unread` bytes of `data` are left
        then, to be given again when `memory` has granted it.
        """
        self._pulse.received_at = now
        self.unread = 0
        events: list[SessionEvent] = []
        try:
            for part in () if self.ended else self._reader.feed(data):
                events += self._part(part)
                if self.ended:
                    break
                if self.memory is not None and self.memory.waits:
                    self.unread = len(data) - self._reader.consumed
                    break
        except NetworkError as error:
            events += self.refuse(error, blamed=True)
        self.meter.received_total(len(data) - self.unread)
        if self.ended:  # a client that has ended its session waits for no decision any more
            events = [event for event in events if not isinstance(event, Verified)]
        return events

    def receive_buffer(self) -> memoryview | None:
        """Return the memory for a message's next bytes, or None if they are not of a message.

        Report bytes that were read into it to `buffer_filled`, not to `receive_data`.
        """
        chunk = self._reader.chunk_left
        if chunk is None or self.ended or chunk[0].kind is not Kind.DATA:
            return None
        return self._inbox.room(chunk[0].stream, chunk[1])

    def buffer_filled(self, size: int, now: float) -> list[SessionEvent]:
        """Count `size` bytes in the memory from `receive_buffer`, and return the events in them."""
        chunk = self._reader.chunk_left
        assert chunk is not None
        self._pulse.received_at = now
        self._reader.skip(size)
        self.meter.received_total(size)
        self.meter.received(Kind.DATA, size)
        try:
            payload = self._inbox.filled(chunk[0].stream, size)
            return [] if payload is None else [self._arrived(payload)]
        except NetworkError as error:
            return self.refuse(error, blamed=True)

    def _arrived(self, payload: memoryview) -> Arrived:
        message, values = self._codec.decode_counted(payload)
        reserved = 0 if self.memory is None else self.memory.complete(len(payload))
        return Arrived(message, wire_size(len(payload)), reserved, values)

    @property
    def urgent(self) -> bool:
        """Whether there is something to send that must not wait."""
        return self.ended or self._outbox.urgent

    @property
    def chunk_left(self) -> int:
        """Bytes that are still to come of the chunk that is being read."""
        chunk = self._reader.chunk_left
        return 0 if chunk is None else chunk[1]

    @property
    def answers_bytes(self) -> int:
        """Bytes of control frames that wait to be sent."""
        return self._outbox.control_bytes

    @property
    def ended(self) -> bool:
        """Whether this end reads nothing more, and sends nothing but its last message."""
        return self.state is State.CLOSING

    def receive_eof(self) -> list[SessionEvent]:
        """Take note that the peer sends no more bytes, and return the events."""
        where = "" if self._reader.between_frames else " in the middle of a frame"
        return self.lost(f"the connection was closed{where} without a goodbye")

    def lost(self, reason: str, final: bool = False) -> list[SessionEvent]:
        """Take note that the connection is lost, and return the events.

        `final`: the next connection would be lost for the same reason.
        """
        if self.ended:
            return []
        if self.state is not State.OPEN:
            reason = f"{reason}, while {self.state.value}"
        self.peer_left = True
        return self._end(Ended(reason, "lost", final))

    def _part(self, part: Frame | ChunkStart | Piece) -> Iterator[SessionEvent]:
        if isinstance(part, Piece):
            self.meter.received(part.kind, len(part.data))
            if part.kind is Kind.FILE_DATA:
                yield FileChunk(part.stream, part.data)
            else:
                payload = self._inbox.piece(part.stream, part.data)
                if payload is not None:
                    yield self._arrived(payload)
            return
        size = HEADER_BYTES + (len(part.payload) if isinstance(part, Frame) else 0)
        self.meter.received(part.kind, size)
        if part.kind not in ALLOWED[self.state]:
            raise ProtocolError(f"a {part.kind.name} frame while {self.state.value}")
        if isinstance(part, ChunkStart):
            if part.kind is Kind.DATA:
                self._inbox.chunk(part.stream, part.length)
            return
        yield from self._frame(part)

    def _frame(self, frame: Frame) -> Iterator[SessionEvent]:
        if frame.kind in EMPTY_KINDS and frame.payload:
            raise ProtocolError(f"a {frame.kind.name} frame with a payload")
        match frame.kind:
            case Kind.PING:
                self._outbox.control(Kind.PONG)
            case Kind.PONG:
                pass
            case Kind.MESSAGE:
                self._reserve(self._inbox.announce(frame.stream, frame.payload))
            case Kind.CONTINUE if self._continues:
                self._reserve(self._inbox.go_on(frame.stream, frame.payload))
            case Kind.PARTIAL if self._continues:
                self._receiver_has(frame)
            case Kind.CONTINUE | Kind.PARTIAL:
                raise ProtocolError(f"a {frame.kind.name} frame, which was not agreed on")
            case Kind.GOODBYE:
                words = words_of(frame, Goodbye)
                self.peer_left = True
                yield from self._end(Ended(clean(words.reason), "goodbye", words.final))
            case Kind.REFUSAL:
                no = words_of(frame, Refusal)
                self.peer_left = True
                yield from self._end(Ended(clean(no.text), clean(no.code), no.final))
            case Kind.GREETING | Kind.HELLO | Kind.WELCOME:
                yield from self._handshake(frame)
            case _:
                yield file_event(frame)

    def _reserve(self, size: int) -> None:
        if self.memory is not None:
            self.memory.reserve(size)

    @property
    def _continues(self) -> bool:
        return self.terms is not None and FEATURE in self.terms.features

    def _receiver_has(self, frame: Frame) -> None:
        if len(frame.payload) != PART.size or frame.stream:
            raise ProtocolError("a PARTIAL frame of a wrong size, or on a stream")
        size, offset, _ = PART.unpack(frame.payload)
        if not 0 < offset < size:
            raise ProtocolError(f"a part of {offset} bytes of a message of {size} bytes")
        if offset <= self._max_kept_bytes:  # what it costs to compare is limited, too
            self._outbox.receiver_has(frame.payload)

    @abstractmethod
    def _handshake(self, frame: Frame) -> Iterator[SessionEvent]: ...

    # What goes out

    def data_to_send(self, max_bytes: int, now: float) -> list[bytes | memoryview]:
        """Return the next frames in pieces: one if there is any, and more until `max_bytes`."""
        pieces = self._outbox.take(max_bytes)
        if self._farewell is not None and self._outbox.idle and self.state is State.OPEN:
            self._outbox.control(Kind.GOODBYE, 0, bytes(CONTROL.encode(self._farewell)))
            self.state = State.CLOSING
            pieces += self._outbox.take(CHUNK_BYTES)
        if pieces:
            self._pulse.sent(now)
        return pieces

    def sent_messages(self) -> list[OutgoingMessage]:
        """Return the messages whose last byte `data_to_send` has returned, each once."""
        finished, self._outbox.finished = self._outbox.finished, []
        return finished

    def unreadable_files(self) -> list[tuple[int, str]]:
        """Return the files whose reading failed, each once: the stream and the reason."""
        unreadable, self._outbox.unreadable = self._outbox.unreadable, []
        return unreadable

    def send_message(self, payload: Payload) -> int:
        """Queue a message and return its stream; messages and files take turns chunk by chunk."""
        return self._outbox.message(payload)

    def withdraw(self, name: str) -> list[OutgoingMessage]:
        """Remove the queued messages of a type that the peer knows nothing of; return them."""
        return self._outbox.withdraw(name)

    def expect(self, partials: list[PartialMessage]) -> None:
        """Tell the peer what came of its messages before, as far as it takes note of so many.

        What is used, and what the peer is not told, is removed from the list.
        """
        told = self.terms.peer_max_streams if self.terms and self._continues else 0
        del partials[told:]
        if self.ended:
            return
        self._inbox.expect(partials)
        for partial in partials:
            self._outbox.control(Kind.PARTIAL, 0, partial.words)

    def finish(self, reason: str, final: bool) -> None:
        """Say goodbye once everything that is queued has been sent."""
        self._farewell = Goodbye(reason[:500], final)

    def refuse(self, error: NetworkError, blamed: bool = False) -> list[SessionEvent]:
        """End the session because of `error`, and tell the peer why; return the events.

        `blamed`: the peer broke a rule.
        """
        if self.ended:
            return []
        words = Refusal(error.code, str(error)[:500], error.final)
        ended = self._end(Ended(str(error), error.code, error.final, blamed))
        self._say(Kind.REFUSAL, 0, words)
        return ended

    def leave(self, reason: str, final: bool, code: str = "goodbye") -> list[SessionEvent]:
        """Say goodbye at once, and drop what is queued; return the events."""
        if self.ended:
            return []
        ended = self._end(Ended(reason, code, final))
        self._say(Kind.GOODBYE, 0, Goodbye(reason[:500], final))
        return ended

    def _end(self, ended: Ended) -> list[SessionEvent]:
        self.state = State.CLOSING
        self._outbox.drop()
        if self._continues:
            self.unfinished = self._inbox.unfinished()
        self._inbox.drop()
        if self.memory is not None:
            self.memory.close()
        return [ended]

    # Time

    def deadline(self) -> float | None:
        """Return when `tick` must be called next, or None for never."""
        if self.ended:
            return None
        if self.state is not State.OPEN:
            return self._handshake_ends
        return self._pulse.due()

    def tick(self, now: float) -> list[SessionEvent]:
        """Send a heartbeat, or give up a silent peer, if it is time; return the events."""
        due = self.deadline()
        if due is None or now < due:
            return []
        if self.state is not State.OPEN:
            error = ProtocolError(f"no complete handshake within {self._handshake_s:g} s")
            return self.refuse(error, blamed=True)
        if self._pulse.is_dead(now):
            return self.lost(f"no sign of life for {self._pulse.timeout_s:g} s")
        self._outbox.control(Kind.PING)
        self._pulse.ping_waits = True
        return []

    def excuse(self, now: float) -> None:
        """Count the peer's silence from `now`, because this end was not reading."""
        self._pulse.received_at = now

    def _open(self, terms: Terms, heartbeat_s: float, heartbeat_timeout_s: float) -> None:
        self.terms = terms
        self.state = State.OPEN
        self._pulse.every_s, self._pulse.timeout_s = heartbeat_s, heartbeat_timeout_s
        self._outbox.max_open_bytes = terms.peer_max_message_bytes
        self._outbox.max_streams = terms.peer_max_streams
