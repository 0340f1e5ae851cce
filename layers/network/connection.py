"""One connection on asyncio: moves bytes between a socket, with or without TLS, and a session."""

from __future__ import annotations

import asyncio
import enum
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

from layers.network.address import Address
from layers.network.errors import NetworkError
from layers.network.events import Replaced, Sent, SessionEvent
from layers.network.frames import CHUNK_BYTES, HEADER_BYTES
from layers.network.outbox import OutgoingMessage
from layers.network.payload import Payload
from layers.network.session import Session, State
from layers.network.tls import explain, is_final

ALL_BYTES = 32 << 20  # read or written at a time by all connections of a loop together
MOST_BYTES = 256 * 1024  # by one; asyncio's own buffer has this size
LEAST_BYTES = 16 * 1024  # by one; the longest record of TLS
WRITTEN_FOR_READ = 4  # bytes written at a time, as a multiple of those read at a time
SEALED_SHARE = 512  # TLS adds less than this part of the bytes
WRITE_BUFFER_BYTES = 64 * 1024
CHUNKS_A_TURN = 4
SLICE_BYTES = 4096  # of small frames that are handled before the next check of limits
SLICES_A_TURN = 4
LATE_S = 1.0  # a loop that is later than this was stopped, or is overloaded
LINGER_BYTES = 16 << 20  # accepted after the last message to a peer, before it is cut off
CATCH_UP_TURNS = 64  # of the loop, to read what arrived on a connection that is being replaced
UNREAD_BYTES = 64 * 1024  # of queued control frames; beyond it, the peer is not read


def bytes_at_a_time(connections: int) -> int:
    """Return the number of bytes that each connection reads at a time.

    The fewer they are, the less memory a connection takes that is not read any more, or whose peer
    does not read. The more they are, the faster it is. More are read of a message that has memory.
    """
    fitting = ALL_BYTES // max(connections, 1)
    return max(LEAST_BYTES, min(MOST_BYTES, 1 << (fitting.bit_length() - 1)))


class Hold(enum.Flag):
    """Why a connection is not read."""

    NOTHING = 0
    CALLER = enum.auto()  # the caller has too many events to take
    ANSWERS = enum.auto()  # the peer does not read its answers
    TURN = enum.auto()  # other connections get their turn
    MEMORY = enum.auto()  # an announced message waits for memory


class Owner(Protocol):
    """The endpoint that owns a connection; called in the loop's thread."""

    def made(self, connection: Connection) -> None:
        """Register a new connection."""

    def happened(self, connection: Connection, event: SessionEvent) -> None:
        """Handle an event of the session."""

    def report_message(
        self, connection: Connection, kind: type[Sent] | type[Replaced], message: OutgoingMessage
    ) -> None:
        """Report that a message was sent or replaced."""

    def unreadable(self, connection: Connection, stream: int, reason: str) -> None:
        """Cancel a file that could not be read."""

    def gone(self, connection: Connection) -> None:
        """Forget a connection whose socket is closed."""

    def must_pause(self, connection: Connection) -> bool:
        """Return whether to stop reading until `Connection.release` of `Hold.CALLER`."""


class _Closed(asyncio.Transport):
    """Replaces a closed transport, so that no reference to it is left."""

    def is_closing(self) -> bool:
        return True

    def abort(self) -> None:
        pass

    close = resume_reading = pause_reading = abort


CLOSED = _Closed()


class Connection(asyncio.BufferedProtocol):
    """Drives one session; `scratch` has the receive buffers shared by all connections of a loop.

    Sharing is safe: asyncio fills the buffer and hands it over without a turn of the loop in
    between, and the session copies the bytes that it keeps.
    """

    def __init__(
        self,
        make_session: Callable[[asyncio.Transport], Session],
        owner: Owner,
        scratch: memoryview,
        linger_s: float,
    ) -> None:
        self.address = "?"
        self.successor_of: str | None = None  # the identity whose live connection it may replace
        self.is_one_of_several = False  # whether its peer may have other connections, too
        self.takeovers: list[float] = []  # when connections of this identity replaced a live one
        self.contested = False  # whether a newer connection was refused for that
        self._make_session = make_session
        self._owner = owner
        self._scratch, self._sealed = scratch[:-MOST_BYTES], scratch[-MOST_BYTES:]
        self._linger_s = linger_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.at_a_time = self._written_at_a_time = MOST_BYTES
        self._writing_paused = False
        self._taken: deque[memoryview] = deque()  # from the session, not yet written
        self._taken_bytes = 0
        self._finished: list[OutgoingMessage] = []  # taken whole, not yet reported as sent
        self._holds = Hold.NOTHING
        self._unread = b""  # received, not yet handled
        self._flush_planned = False
        self._closing = False
        self._ignored_bytes = 0  # received since the last message to the peer
        self._direct: memoryview | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.settled = asyncio.Event()  # set when the handshake has succeeded or failed
        self.session: Session
        self._transport: asyncio.Transport

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.resize(MOST_BYTES)
        host, port = (self._transport.get_extra_info("peername") or ("?", 0))[:2]
        self.address = str(Address(host, port))
        self.session = self._make_session(self._transport)
        self._owner.made(self)
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        self._direct = None if self._holds else self.session.receive_buffer()
        return self._scratch if self._direct is None else self._direct

    def buffer_updated(self, nbytes: int) -> None:
        if self._direct is not None:
            self._direct = None
            self._handle_if_any(self.session.buffer_filled(nbytes, self._loop.time()))
        elif self._closing:
            self._ignore(self._scratch[:nbytes])
        elif self._holds:  # TLS had more bytes than requested
            self._unread += self._scratch[:nbytes]
        else:
            self._read(self._scratch[:nbytes])

    def eof_received(self) -> bool:
        self._holds &= ~Hold.TURN
        while self._unread and not self._holds:
            self._read_on()
            self._holds &= ~Hold.TURN
        self.handle(self.session.receive_eof())
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if isinstance(error, ssl.SSLError):
            # Under TLS 1.3 a client learns of a refused certificate only now.
            events = self.session.lost(explain(error, self.address), is_final(error))
        elif error:
            events = self.session.lost(f"the connection broke ({error})")
        else:  # `eof_received` is not called by the TLS of Python 3.10
            events = self.session.receive_eof()
        for event in events:
            self._owner.happened(self, event)
        self.settled.set()
        if not self.closed.done():
            self.closed.set_result(None)
        self._owner.gone(self)
        # Nothing may keep received bytes until the cycle collector runs.
        self.session.memory = None
        self.session.pace(None)
        self._transport = CLOSED
        self._taken.clear()
        self._taken_bytes = 0
        self._finished.clear()
        self._unread = b""

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self.flush()

    # Called by the owner, in the loop's thread

    def send(self, payload: Payload, replace: bool = False) -> None:
        """Queue a message; `replace`: instead of the queued messages of its type."""
        if self.session.ended:
            return
        for message in self.session.withdraw(payload.name) if replace else ():
            self._owner.report_message(self, Replaced, message)
        self.session.send_message(payload)
        self.flush()

    def finish(self, reason: str, final: bool) -> None:
        """Send everything queued, say goodbye, then close."""
        self.session.finish(reason, final)
        self.flush()

    def leave(self, reason: str, final: bool, code: str = "goodbye") -> None:
        """Say goodbye now, then close."""
        self.handle(self.session.leave(reason, final, code))

    def refuse(self, error: NetworkError, blamed: bool = False) -> None:
        """Tell the peer why it is refused, then close; `blamed`: the peer broke a rule."""
        self.handle(self.session.refuse(error, blamed))

    def resize(self, at_a_time: int) -> None:
        """Read this number of bytes at a time from now on (see `bytes_at_a_time`), and write them.

        Under TLS, encrypted bytes are then received into a shared buffer instead of asyncio's
        own. This is safe: asyncio fills it and OpenSSL copies it without a turn of the loop in
        between. asyncio has no public way, so a Python without these names just uses more memory.
        """
        self.at_a_time = self._written_at_a_time = at_a_time
        protocol: Any = getattr(self._transport, "_ssl_protocol", None)
        if getattr(protocol, "in_parts", protocol is None):  # OpenSSL keeps no larger buffers
            self._written_at_a_time = min(WRITTEN_FOR_READ * at_a_time, MOST_BYTES)
        elif hasattr(protocol, "_ssl_buffer_view"):
            protocol.max_size = at_a_time
            protocol._ssl_buffer = protocol._ssl_buffer_view = self._sealed[:at_a_time]

    def sealed_buffer(self) -> memoryview:
        """Return where to receive encrypted bytes: at the most the rest of a message, or few."""
        left = 0 if self._holds else self.session.message_left
        size = max(self.at_a_time, min(left + left // SEALED_SHARE, MOST_BYTES))
        return self._sealed[:size]

    def catch_up(
        self, then: Callable[[], object], turns: int = CATCH_UP_TURNS, read: int = -1
    ) -> None:
        """Call `then` when everything that has arrived is read, or reading is paused.

        A peer that keeps sending gets a limited number of turns of the loop.
        """
        read_now = self.session.meter.read().received_bytes
        if read_now == read or not turns:
            then()
        else:
            # In the loop's next turn, after its sockets: due timers come last.
            self._loop.call_later(0, self.catch_up, then, turns - 1, read_now)

    @property
    def certificate(self) -> Any:
        """The peer's certificate, as `SSLSocket.getpeercert` gives it; None without one."""
        return peer_certificate(self._transport)

    def abort(self) -> None:
        """Close at once."""
        if not self.closed.done():
            self._transport.abort()

    @property
    def held_bytes(self) -> int:
        """Memory reserved for its unfinished messages."""
        return 0 if self.session.memory is None else self.session.memory.held

    @property
    def message_bytes_received(self) -> int:
        """Bytes of messages received so far."""
        return self.session.meter.read().message_bytes_received

    @property
    def fileno(self) -> int | None:
        """The descriptor of its socket; None: it is closed."""
        socket = self._transport.get_extra_info("socket")
        return None if socket is None or socket.fileno() < 0 else int(socket.fileno())

    @property
    def waits(self) -> bool:
        """Whether reading is paused for a reason other than the peer."""
        return bool(self._holds & ~Hold.ANSWERS)

    def release(self, hold: Hold) -> None:
        """Remove a reason not to read; read again if it was the last."""
        if hold not in self._holds:
            return
        self._holds &= ~hold
        if self._holds:
            return
        self.session.excuse(self._loop.time())
        if self._unread:
            self._read_on()
        if not self._holds and not self._transport.is_closing():
            self._transport.resume_reading()

    def _hold(self, hold: Hold) -> None:
        if self._closing:
            return
        if not self._holds and not self._transport.is_closing():
            self._transport.pause_reading()
        self._holds |= hold

    def _read(self, data: memoryview) -> None:
        """Pass received bytes to the session until reading must pause."""
        for _ in range(SLICES_A_TURN):
            size = min(max(SLICE_BYTES, self.session.chunk_left), len(data))
            events = self.session.receive_data(data[:size], self._loop.time())
            data = data[size - self.session.unread :]
            if self.session.memory is not None and self.session.memory.waits:
                self._hold(Hold.MEMORY)
            self._handle_if_any(events)
            if self._closing:
                self._ignore(data)
            if not data or self._closing:
                return
            if self._holds:
                break
        else:
            self._hold(Hold.TURN)
            self._loop.call_soon(self.release, Hold.TURN)
        self._unread = bytes(data)

    def _ignore(self, data: bytes | memoryview) -> None:
        """Count bytes after the end; cut off a peer that does not stop."""
        self.session.receive_data(data, self._loop.time())
        self._ignored_bytes += len(data)
        if self._ignored_bytes > LINGER_BYTES:
            self.abort()

    def _read_on(self) -> None:
        data, self._unread = self._unread, b""
        self._read(memoryview(data))

    def _handle_if_any(self, events: list[SessionEvent]) -> None:
        if events or self.session.urgent:
            self.handle(events)
            if self._owner.must_pause(self):
                self._hold(Hold.CALLER)
            if self.session.answers_bytes > UNREAD_BYTES:
                self._hold(Hold.ANSWERS)

    def handle(self, events: list[SessionEvent]) -> None:
        """Pass events to the owner, and send the session's queue."""
        for event in events:
            self._owner.happened(self, event)
        if self.session.state is State.OPEN:
            self.settled.set()
        self.flush()

    def flush(self) -> None:
        """Write the session's queue, as far as the socket accepts it."""
        self._flush_planned = False
        for _ in range(CHUNKS_A_TURN):
            if self._writing_paused or self._transport.is_closing():
                break
            more, unreadable = True, list[tuple[int, str]]()
            if self._taken_bytes < self._written_at_a_time:
                more = self._take()
                unreadable = self.session.unreadable_files()
            for stream, reason in unreadable:
                self._owner.unreadable(self, stream, reason)
            if not self._taken and not unreadable:
                break
            self._write(self._written_at_a_time if more else 1)
            if not self._taken:
                finished, self._finished = self._finished, []
                for message in finished:
                    self._owner.report_message(self, Sent, message)
        else:
            # Other connections get their turn first.
            if not self._flush_planned:
                self._flush_planned = True
                self._loop.call_soon(self.flush)
            return
        if self.session.ended:
            self._close()
        else:
            self._arm()
        if Hold.ANSWERS in self._holds and self.session.answers_bytes <= UNREAD_BYTES // 2:
            self.release(Hold.ANSWERS)

    def _take(self) -> bool:
        """Take the next bytes from the session; return whether more of a message may follow."""
        pieces = self.session.data_to_send(CHUNK_BYTES, self._loop.time())
        self._taken.extend(map(memoryview, pieces))
        size = sum(map(len, pieces))
        self._taken_bytes += size
        self._finished += self.session.sent_messages()
        return size >= CHUNK_BYTES and not self._finished

    def _write(self, least: int) -> None:
        """Write the bytes taken from the session, as far as the transport accepts them.

        Fewer than `least` bytes wait for the next ones. Otherwise the last bytes of each chunk
        would cost a TLS record and a system call of their own.
        """
        while self._taken_bytes >= least and not self._writing_paused:
            batch: list[memoryview] = []
            room = self._written_at_a_time
            while self._taken and room:
                piece = self._taken.popleft()
                batch.append(piece[:room])
                if len(piece) > room:
                    self._taken.appendleft(piece[room:])
                room -= len(batch[-1])
            self._taken_bytes -= self._written_at_a_time - room
            # Not `writelines`: early releases of Python 3.12 and 3.13 do not pause after it
            # (CVE-2024-12254), and keep references to arrays that may change after `Sent`.
            self._transport.write(b"".join(batch))

    def _arm(self) -> None:
        due = self.session.deadline()
        if self._timer is not None:
            if due is not None and self._timer.when() <= due:
                return  # `_tick` sets the next timer
            self._timer.cancel()
        self._timer = None if due is None else self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        late_s = 0.0 if self._timer is None else now - self._timer.when()
        self._timer = None
        # A loop that was stopped could not hear the peer, which is not silent for that.
        if late_s > LATE_S or (self._holds and Hold.ANSWERS not in self._holds):
            self.session.excuse(now)
        events = self.session.tick(now)
        if events or self.session.urgent:
            self.handle(events)
        else:
            self._arm()

    def _close(self) -> None:
        """Wait until the peer has read the last message and closed, for at most `linger_s`."""
        if not self._closing:
            self._closing = True
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(self._linger_s, self.abort)
            self._ignore(self._unread)
            self._unread = b""
            if self._holds:
                self._holds = Hold.NOTHING
                self._transport.resume_reading()
        if self.session.peer_left and not self._writing_paused:
            self._transport.close()


def new_scratch() -> memoryview:
    """Return receive buffers for all connections of a loop: for a chunk and its header, and TLS."""
    return memoryview(bytearray(HEADER_BYTES + CHUNK_BYTES + MOST_BYTES))


def peer_certificate(transport: asyncio.Transport) -> Any:
    """Return the peer's certificate if TLS asked for one and verified it."""
    return transport.get_extra_info("peercert")
