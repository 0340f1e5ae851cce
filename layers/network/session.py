"""The session of one connection: a state machine that knows neither sockets nor clocks.

=================  ======================================================  =====================
state              allowed frames                                          left by
=================  ======================================================  =====================
AWAIT_GREETING     GREETING, REFUSAL                                       GREETING (client)
AWAIT_WELCOME      WELCOME, REFUSAL                                        WELCOME (client)
AWAIT_HELLO        HELLO, REFUSAL                                          HELLO (server)
DECIDING           REFUSAL                                                 admit, refuse (server)
OPEN               PING, PONG, MESSAGE, DATA, PARTIAL, CONTINUE,           GOODBYE, REFUSAL
                   FILE_*, GOODBYE, REFUSAL
CLOSING            any; none is read                                       the connection's end
=================  ======================================================  =====================

In every state, a frame that is not allowed, a timeout and a broken connection lead to CLOSING, with
an `Ended` event that says why.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

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
    file_frame,
    words_of,
)
from layers.network.errors import NetworkError, ProtocolError
from layers.network.events import Arrived, Ended, FileChunk, SessionEvent, Terms, Verified
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
from layers.network.memory import Reservation
from layers.network.outbox import Outbox, OutgoingFile, OutgoingMessage
from layers.network.payload import Payload


class State(enum.Enum):
    """The state of a session; see the table above."""

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


class Session(ABC):
    """The common part of `ServerSession` and `ClientSession`, which add the handshake.

    `receive_data` takes received bytes and returns events; `data_to_send` returns the bytes to
    send, and is called whenever the connection can take more. `now` is a monotonic time in seconds.

    Attributes:
        terms: the agreement of both ends, None before the session is open.
        meter: counts the connection's traffic.
        claimed: the identity that the peer claims, unverified: for reports only.
        peer_left: whether the peer has ended the session or its connection.
        memory: the connection's account of the memory budget; None: no message waits for memory.
        unread: bytes at the end of the last input that must be passed to `receive_data` again.
        unfinished: the received parts of messages, when the session has ended.
    """

    def __init__(
        self, codec: MessageCodec, limits: Limits, now: float, state: State, handshake_s: float
    ) -> None:
        self.state = state
        self.terms: Terms | None = None
        self.meter = Meter()
        self.claimed: str | None = None
        self.peer_left = False
        self.memory: Reservation | None = None
        self.unread = 0
        self.unfinished: list[PartialMessage] = []
        self._codec = codec
        self._limits = limits
        self._reader = FrameReader()
        self._inbox = Inbox(limits, codec.check_head)
        self._outbox = Outbox(self.meter)
        self._handshake_s = handshake_s
        self._handshake_ends = now + handshake_s
        self._heartbeat_s = self._heartbeat_timeout_s = 0.0
        self._received_at = self._sent_at = now
        self._ping_queued = False
        self._farewell: Goodbye | None = None

    # Receiving

    def receive_data(self, data: bytes | memoryview, now: float) -> list[SessionEvent]:
        """Read bytes from the peer and return their events.

        `FileChunk` events are views of `data`, which may be reused once they are handled. Reading
        stops at a message that must wait for memory: pass the last `unread` bytes of `data` again
        when `memory` has granted it.
        """
        self._received_at = now
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
        if self.ended:  # a client that has ended its session waits for no decision
            events = [event for event in events if not isinstance(event, Verified)]
        return events

    def receive_buffer(self) -> memoryview | None:
        """Return the memory for the next bytes, if they belong to a message.

        Report bytes that were read into it to `buffer_filled`, not to `receive_data`.
        """
        chunk = self._reader.chunk_left
        if chunk is None or self.ended or chunk[0].kind is not Kind.DATA:
            return None
        return self._inbox.room(chunk[0].stream, chunk[1])

    def buffer_filled(self, size: int, now: float) -> list[SessionEvent]:
        """Count `size` bytes in the memory from `receive_buffer`, and return their events."""
        chunk = self._reader.chunk_left
        assert chunk is not None
        self._received_at = now
        self._reader.skip(size)
        self.meter.received_total(size)
        self.meter.received(Kind.DATA, size)
        try:
            payload = self._inbox.filled(chunk[0].stream, size)
            return [] if payload is None else [self._arrived(payload, chunk[0].stream)]
        except NetworkError as error:
            return self.refuse(error, blamed=True)

    def _arrived(self, payload: memoryview, stream: int) -> Arrived:
        message, values = self._codec.decode_counted(payload)
        reserved = 0 if self.memory is None else self.memory.complete(len(payload))
        return Arrived(message, wire_size(len(payload)), reserved, values, stream)

    @property
    def urgent(self) -> bool:
        """Whether there are bytes to send that must not wait."""
        return self.ended or self._outbox.control_bytes > 0

    @property
    def chunk_left(self) -> int:
        """Bytes still missing from the chunk that is being read."""
        chunk = self._reader.chunk_left
        return 0 if chunk is None else chunk[1]

    @property
    def message_left(self) -> int:
        """Bytes still missing from the message whose chunk is being read."""
        chunk = self._reader.chunk_left
        if chunk is None or self.ended or chunk[0].kind is not Kind.DATA:
            return 0
        return self._inbox.left(chunk[0].stream)

    @property
    def answers_bytes(self) -> int:
        """Bytes of queued control frames."""
        return self._outbox.control_bytes

    @property
    def ended(self) -> bool:
        """Whether this end reads nothing more, and sends only its last message."""
        return self.state is State.CLOSING

    def receive_eof(self) -> list[SessionEvent]:
        """End the session because the peer has closed the connection; return the events."""
        where = "" if self._reader.between_frames else " in the middle of a frame"
        return self.lost(f"the connection was closed{where} without a goodbye")

    def lost(self, reason: str, final: bool = False) -> list[SessionEvent]:
        """End the session because the connection is lost; return the events.

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
                    yield self._arrived(payload, part.stream)
            return
        size = HEADER_BYTES + (len(part.payload) if isinstance(part, Frame) else 0)
        self.meter.received(part.kind, size)
        if part.kind not in ALLOWED[self.state]:
            raise ProtocolError(f"a {part.kind.name} frame while {self.state.value}")
        if isinstance(part, Frame):
            yield from self._frame(part)
        elif part.kind is Kind.DATA:
            self._inbox.chunk(part.stream, part.length)

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
                self._reserve(self._inbox.resume(frame.stream, frame.payload))
            case Kind.PARTIAL if self._continues:
                self._receiver_has(frame)
            case Kind.CONTINUE | Kind.PARTIAL:
                raise ProtocolError(f"a {frame.kind.name} frame without the feature {FEATURE}")
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
                yield file_frame(frame)

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
        if offset <= self._limits.max_kept_bytes:  # bounds the cost of the comparison
            self._outbox.receiver_has(frame.payload)

    @abstractmethod
    def _handshake(self, frame: Frame) -> Iterator[SessionEvent]: ...

    # Sending

    def pace(self, may_begin: Callable[[int], bool] | None) -> None:
        """Ask before each message, with its size, whether it may begin now; None: all may."""
        self._outbox.may_begin = may_begin

    def data_to_send(self, max_bytes: int, now: float) -> list[bytes | memoryview]:
        """Return the next frames in pieces: at least one if any is queued, up to `max_bytes`."""
        pieces = self._outbox.take(max_bytes)
        if self._farewell is not None and self._outbox.idle and self.state is State.OPEN:
            self._say(Kind.GOODBYE, 0, self._farewell)
            self.state = State.CLOSING
            pieces += self._outbox.take(CHUNK_BYTES)
        if pieces:
            self._sent_at = now
            self._ping_queued = False
        return pieces

    def sent_messages(self) -> list[OutgoingMessage]:
        """Return, once, the messages whose last byte `data_to_send` has returned."""
        finished, self._outbox.finished = self._outbox.finished, []
        return finished

    def unreadable_files(self) -> list[tuple[int, str]]:
        """Return, once, the stream of each file that could not be read, and the reason."""
        unreadable, self._outbox.unreadable = self._outbox.unreadable, []
        return unreadable

    def send_message(self, payload: Payload) -> int:
        """Queue a message and return its stream; messages and files alternate chunk by chunk."""
        return self._outbox.message(payload)

    def withdraw(self, name: str) -> list[OutgoingMessage]:
        """Remove and return the queued messages of a type that the peer does not know of yet."""
        return self._outbox.withdraw(name)

    def offer_file(self, name: str, size: int, sha256: bytes) -> int:
        """Offer a file and return its stream."""
        stream = self._outbox.new_stream()
        self._say(Kind.FILE_OFFER, stream, FileOffer(name, size, sha256))
        return stream

    def accept_file(self, stream: int, offset: int, sha256: bytes) -> None:
        """Request an offered file from `offset` on, if its first bytes have this SHA-256."""
        self._say(Kind.FILE_ACCEPT, stream, FileAccept(offset, sha256))

    def start_file(self, outgoing: OutgoingFile, offset: int) -> None:
        """Send an accepted file from `offset` on."""
        self._say(Kind.FILE_START, outgoing.stream, FileStart(offset))
        self._outbox.file(outgoing)

    def confirm_file(self, stream: int) -> None:
        """Tell the peer that its file is complete and verified."""
        self._outbox.control(Kind.FILE_DONE, stream)

    def refuse_file(self, stream: int, reason: str) -> None:
        """Tell the peer that an offered file is not wanted or could not be stored."""
        self._say(Kind.FILE_REFUSED, stream, FileReason(reason[:500]))

    def cancel_file(self, stream: int, reason: str) -> None:
        """Stop sending a file and tell the peer."""
        self._outbox.drop_file(stream)
        self._say(Kind.FILE_CANCELLED, stream, FileReason(reason[:500]))

    def expect(self, partials: list[PartialMessage]) -> None:
        """Tell the peer which parts of its messages were received before.

        A part is removed from the list when it is used, or if the peer accepts no more of them.
        """
        told = self.terms.peer_max_streams if self.terms and self._continues else 0
        del partials[told:]
        if self.ended:
            return
        self._inbox.expect(partials)
        for partial in partials:
            self._outbox.control(Kind.PARTIAL, 0, partial.words)

    # Ending

    def finish(self, reason: str, final: bool) -> None:
        """Say goodbye once everything queued has been sent."""
        self._farewell = Goodbye(reason[:500], final)

    def refuse(self, error: NetworkError, blamed: bool = False) -> list[SessionEvent]:
        """End the session because of `error`, and tell the peer; return the events.

        `blamed`: the peer broke a rule.
        """
        words = Refusal(error.code, str(error)[:500], error.final)
        ended = Ended(str(error), error.code, error.final, blamed)
        return self._end(ended, Kind.REFUSAL, words)

    def leave(self, reason: str, final: bool, code: str = "goodbye") -> list[SessionEvent]:
        """Say goodbye at once, and drop everything queued; return the events."""
        words = Goodbye(reason[:500], final)
        return self._end(Ended(reason, code, final), Kind.GOODBYE, words)

    def _end(
        self, ended: Ended, kind: Kind = Kind.GOODBYE, words: object = None
    ) -> list[SessionEvent]:
        """Close the session, with a last message if there are `words`; return the events."""
        if self.ended:
            return []
        self.state = State.CLOSING
        self._outbox.drop()
        if self._continues:
            self.unfinished = self._inbox.unfinished()
        self._inbox.drop()
        if self.memory is not None:
            self.memory.close()
        if words is not None:
            self._say(kind, 0, words)
        return [ended]

    def _say(self, kind: Kind, stream: int, words: object) -> None:
        self._outbox.control(kind, stream, bytes(CONTROL.encode(words)))

    # Time

    def deadline(self) -> float | None:
        """Return when `tick` must be called next, or None for never."""
        if self.ended:
            return None
        if self.state is not State.OPEN:
            return self._handshake_ends
        dead_at = self._received_at + self._heartbeat_timeout_s
        return dead_at if self._ping_queued else min(dead_at, self._sent_at + self._heartbeat_s)

    def tick(self, now: float) -> list[SessionEvent]:
        """Send a heartbeat, or give up a silent peer, if it is time; return the events."""
        due = self.deadline()
        if due is None or now < due:
            return []
        if self.state is not State.OPEN:
            error = ProtocolError(f"no complete handshake within {self._handshake_s:g} s")
            return self.refuse(error, blamed=True)
        if now >= self._received_at + self._heartbeat_timeout_s:
            return self.lost(f"no sign of life for {self._heartbeat_timeout_s:g} s")
        self._outbox.control(Kind.PING)
        self._ping_queued = True
        return []

    def heard_within(self, seconds: float, now: float) -> bool:
        """Return whether the peer has sent anything in the last seconds."""
        return now - self._received_at <= seconds

    def excuse(self, now: float) -> None:
        """Restart the peer's heartbeat timeout, because this end was not reading."""
        self._received_at = now

    def _open(self, terms: Terms, heartbeat_s: float, heartbeat_timeout_s: float) -> None:
        self.terms = terms
        self.state = State.OPEN
        self._heartbeat_s, self._heartbeat_timeout_s = heartbeat_s, heartbeat_timeout_s
        self._outbox.max_open_bytes = terms.peer_max_message_bytes
        self._outbox.max_streams = terms.peer_max_streams
