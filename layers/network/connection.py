"""The memory that a connection with TLS keeps, asyncio's and OpenSSL's: small where many are.

asyncio has no way to say how large its buffers are, so this uses what is inside of it; where a
version of Python lacks these names, a connection takes more memory and does the same.
"""

from __future__ import annotations

import asyncio
import enum
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from layers.network.address import Address
from layers.network.errors import NetworkError
from layers.network.events import SessionEvent
from layers.network.frames import CHUNK_BYTES, HEADER_BYTES
from layers.network.outbox import OutgoingMessage
from layers.network.payload import Payload
from layers.network.session import Session, State
from layers.network.tls import explain, is_final

ALL_BYTES = 32 << 20  # what all connections of a loop read or write at a time, together
MOST_BYTES = 256 * 1024  # of one; as much as asyncio has for itself
LEAST_BYTES = 16 * 1024  # of one; the longest record of TLS


def bytes_at_a_time(connections: int) -> int:
    """Return how much each of some connections is to read or write at a time.

    OpenSSL's two buffers of a connection are a third larger than the most that was read and written
    at a time, ever after. So few connections get large buffers, which are faster, and many get
    small ones.
    """
    fitting = ALL_BYTES // max(connections, 1)
    return max(LEAST_BYTES, min(MOST_BYTES, 1 << (fitting.bit_length() - 1)))


def share(transport: asyncio.BaseTransport, shared: memoryview) -> None:
    """Let a transport receive what is encrypted into memory that its loop's connections share.

    Its own buffer, of 256 KiB, is dropped. Nothing happens to a transport without TLS. Sharing is
    safe because asyncio fills the memory and hands it to OpenSSL, which copies it, without a turn
    of the loop in between.
    """
    protocol: Any = getattr(transport, "_ssl_protocol", None)
    if hasattr(protocol, "_ssl_buffer_view"):
        protocol.max_size = len(shared)
        protocol._ssl_buffer = protocol._ssl_buffer_view = shared


WRITE_BUFFER_BYTES = 64 * 1024
CHUNKS_A_TURN = 4
SLICE_BYTES = 4096  # of small frames that are handled before it is asked again who must wait
SLICES_A_TURN = 4
LINGER_BYTES = 16 << 20  # that a peer may send after the last message to it, until it is cut off
CATCH_UP_TURNS = 64  # of the loop, for what has come on a connection that another one follows
UNREAD_BYTES = 64 * 1024  # of control frames that a peer has not read; beyond it, it is not read


class Hold(enum.Flag):
    """Why a connection is not read from."""

    NOTHING = 0
    CALLER = enum.auto()  # the caller has not taken enough of what came
    ANSWERS = enum.auto()  # the peer does not read what it is answered
    TURN = enum.auto()  # the other connections get their turn
    MEMORY = enum.auto()  # the message that it announced waits for memory


class Owner(Protocol):
    """What a connection tells the endpoint that owns it; called in the loop's thread."""

    def made(self, connection: Connection) -> None:
        """Take note of a new connection."""

    def happened(self, connection: Connection, event: SessionEvent) -> None:
        """Take one event of the session."""

    def sent(self, connection: Connection, message: OutgoingMessage) -> None:
        """Take note that a message has left."""

    def replaced(self, connection: Connection, message: OutgoingMessage) -> None:
        """Take note that a message was not sent, because another one took its place."""

    def unreadable(self, connection: Connection, stream: int, reason: str) -> None:
        """Take note that reading a file failed."""

    def gone(self, connection: Connection) -> None:
        """Forget a connection whose socket is closed."""

    def must_pause(self, connection: Connection) -> bool:
        """Return whether to stop reading until `Connection.release` of `Hold.CALLER`."""


class _Closed(asyncio.Transport):
    """In place of a transport that is closed, so that nothing refers to that one any more."""

    def is_closing(self) -> bool:
        return True

    def abort(self) -> None:
        pass

    close = resume_reading = pause_reading = abort


CLOSED = _Closed()


class Connection(asyncio.BufferedProtocol):
    """Drives one session; `scratch` is the receive buffer that all connections of a loop share.

    Sharing is safe because asyncio fills the buffer and hands it over without a turn of the loop in
    between, and the session copies what it keeps.
    """

    def __init__(
        self,
        make_session: Callable[[asyncio.Transport], Session],
        owner: Owner,
        scratch: memoryview,
        linger_s: float,
    ) -> None:
        self.address = "?"
        self._make_session = make_session
        self._owner = owner
        self._scratch = scratch
        self._linger_s = linger_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._at_a_time = MOST_BYTES
        self._writing_paused = False
        self._taken: deque[memoryview] = deque()  # from the session, and not yet written
        self._holds = Hold.NOTHING
        self._unread = b""  # received and not yet handled
        self._flush_planned = False
        self._closing = False
        self._ignored_bytes = 0  # since the last message to the peer
        self._direct: memoryview | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.settled = asyncio.Event()  # set when the handshake has succeeded or failed
        self.session: Session
        self._transport: asyncio.Transport

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.resize(MOST_BYTES)
        host, port = (self._transport.get_extra_info("peername") or ("?", 0))[:2]
        self.address = str(Address(host, port))
        self.session = self._make_session(self._transport)
        self._owner.made(self)
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: D102
        self._direct = None if self._holds else self.session.receive_buffer()
        return self._scratch if self._direct is None else self._direct

    def buffer_updated(self, nbytes: int) -> None:  # noqa: D102
        if self._direct is not None:
            self._direct = None
            # Most often this is the middle of a message: then there is nothing else to do.
            self._handle_if_any(self.session.buffer_filled(nbytes, self._loop.time()))
        elif self._closing:
            self._ignore(self._scratch[:nbytes])
        elif self._holds:  # TLS had more than it was asked for
            self._unread += self._scratch[:nbytes]
        else:
            self._read(self._scratch[:nbytes])

    def eof_received(self) -> bool:  # noqa: D102
        self._holds &= ~Hold.TURN
        while self._unread and not self._holds:
            self._read_on()
            self._holds &= ~Hold.TURN
        self.handle(self.session.receive_eof())
        return False

    def connection_lost(self, error: Exception | None) -> None:  # noqa: D102
        if self._timer is not None:
            self._timer.cancel()
        if isinstance(error, ssl.SSLError):
            # Under TLS 1.3 a client learns only now that its certificate was refused.
            events = self.session.lost(explain(error, self.address), is_final(error))
        else:
            reason = f"the connection broke ({error})" if error else "the connection was closed"
            events = self.session.lost(reason)
        for event in events:
            self._owner.happened(self, event)
        self.settled.set()
        if not self.closed.done():
            self.closed.set_result(None)
        self._owner.gone(self)
        # Nothing may keep what was received until Python's collector of cycles comes by.
        self.session.memory = None
        self._transport = CLOSED
        self._taken.clear()
        self._unread = b""

    def pause_writing(self) -> None:  # noqa: D102
        self._writing_paused = True

    def resume_writing(self) -> None:  # noqa: D102
        self._writing_paused = False
        self.flush()

    # The endpoint's side, in the loop's thread

    def send(self, payload: Payload, replace: bool = False) -> None:
        """Queue a message; `replace`: in place of those of its type that wait."""
        if self.session.ended:
            return
        for message in self.session.withdraw(payload.name) if replace else ():
            self._owner.replaced(self, message)
        self.session.send_message(payload)
        self.flush()

    def finish(self, reason: str, final: bool) -> None:
        """Say goodbye when everything queued has been sent, then close."""
        self.session.finish(reason, final)
        self.flush()

    def leave(self, reason: str, final: bool, code: str = "goodbye") -> None:
        """Say goodbye now, then close."""
        self.handle(self.session.leave(reason, final, code))

    def refuse(self, error: NetworkError, blamed: bool = False) -> None:
        """Tell the peer why this end refuses it, then close; `blamed`: the peer is at fault."""
        self.handle(self.session.refuse(error, blamed))

    def resize(self, at_a_time: int) -> None:
        """Read and write so many bytes at a time from now on (see `bytes_at_a_time`)."""
        self._at_a_time = at_a_time
        share(self._transport, self._scratch[:at_a_time])

    def catch_up(
        self, then: Callable[[], object], turns: int = CATCH_UP_TURNS, read: int = -1
    ) -> None:
        """Call `then` when all that has come is read, or this end reads nothing at the moment.

        A peer that goes on sending is waited for no longer than some turns of the loop.
        """
        read_now = self.session.meter.read().received_bytes
        if read_now == read or not turns:
            then()
        else:
            # In the loop's next turn, behind the sockets: timers that are due come last.
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
        """Bytes of memory that are reserved for its unfinished messages."""
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
        """Whether it is not read from at the moment, and not by its own fault."""
        return bool(self._holds & ~Hold.ANSWERS)

    def release(self, hold: Hold) -> None:
        """Start reading again, unless there is another reason not to."""
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
        """Give the session what has come, until this connection must wait."""
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
        """Count what comes behind the end; cut off a peer that does not stop."""
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
        """Give the owner what the session has seen, and send what it has to say."""
        for event in events:
            self._owner.happened(self, event)
        if self.session.state is State.OPEN:
            self.settled.set()
        self.flush()

    def flush(self) -> None:
        """Write what the session has to send, as far as the socket takes it."""
        self._flush_planned = False
        for _ in range(CHUNKS_A_TURN):
            if self._writing_paused or self._transport.is_closing():
                break
            unreadable: Sequence[tuple[int, str]] = ()
            if not self._taken:
                pieces = self.session.data_to_send(CHUNK_BYTES, self._loop.time())
                self._taken.extend(map(memoryview, pieces))
                unreadable = self.session.unreadable_files()
            for stream, reason in unreadable:
                self._owner.unreadable(self, stream, reason)
            if not self._taken and not unreadable:
                break
            self._write()
            for message in () if self._taken else self.session.sent_messages():
                self._owner.sent(self, message)
        else:
            # Other connections get their turn before this one goes on.
            if not self._flush_planned:
                self._flush_planned = True
                self._loop.call_soon(self.flush)
            return
        if self.session.ended:
            self._close()
        else:
            self._arm()
        if (
            self._holds
            and Hold.ANSWERS in self._holds
            and self.session.answers_bytes <= UNREAD_BYTES // 2
        ):
            self.release(Hold.ANSWERS)

    def _write(self) -> None:
        """Write what was taken from the session, as far as the transport takes it."""
        while self._taken and not self._writing_paused:
            batch: list[memoryview] = []
            room = self._at_a_time
            while self._taken and room:
                piece = self._taken.popleft()
                batch.append(piece[:room])
                if len(piece) > room:
                    self._taken.appendleft(piece[room:])
                room -= len(batch[-1])
            self._transport.writelines(batch)

    def _arm(self) -> None:
        due = self.session.deadline()
        if self._timer is not None:
            if due is not None and self._timer.when() <= due:
                return  # it sets the next timer when it fires
            self._timer.cancel()
        self._timer = None if due is None else self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._loop.time()
        if self._holds and Hold.ANSWERS not in self._holds:
            self.session.excuse(now)
        self.handle(self.session.tick(now))

    def _close(self) -> None:
        """Wait until the peer has read the last message and closed, but at most `linger_s`."""
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
    """Return a receive buffer for all connections of one loop: room for a chunk and its header."""
    return memoryview(bytearray(HEADER_BYTES + CHUNK_BYTES))


def peer_certificate(transport: asyncio.Transport) -> Any:
    """Return the peer's certificate if TLS asked for one and verified it."""
    return transport.get_extra_info("peercert")
