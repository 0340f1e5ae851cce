"""The common part of listener and connector: a thread, an event queue, connections, traffic."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from layers.network.codec import MessageCodec
from layers.network.connection import MOST_BYTES, Connection, Hold, bytes_at_a_time, new_scratch
from layers.network.control import FileFrame
from layers.network.errors import LimitExceeded, NetworkError, NotConnected
from layers.network.event_queue import EVERYBODY, NOBODY, EventQueue
from layers.network.events import Ended, Event, FileChunk, Opened, Replaced, Sent, SessionEvent
from layers.network.frames import ConnectionTraffic, wire_size
from layers.network.inbox import PartialMessages
from layers.network.limits import Limits
from layers.network.memory import IncomingMemory
from layers.network.outbox import OutgoingMessage
from layers.network.pacing import Pacer
from layers.network.payload import Payload
from layers.network.session import Session
from layers.network.transfers import Transfers

T = TypeVar("T")


class LoopThread:
    """A background thread with an asyncio loop, for synchronous callers."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(_handle)
        self._calls: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._planned = False  # whether the loop will run the calls
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def soon(self, call: Callable[..., object], *args: object) -> None:
        """Call a function in the loop; do nothing if the loop has been stopped."""
        # Waking the loop costs a system call, so consecutive calls share it.
        self._calls.append((call, args))
        if not self._planned:
            self._planned = True
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._run_calls)

    def _run_calls(self) -> None:
        """Run the queued calls; if one fails, the others run in the loop's next turn."""
        self._planned = False
        try:
            for _ in range(len(self._calls)):
                call, args = self._calls.popleft()
                call(*args)
        finally:
            if self._calls and not self._planned:
                self._planned = True
                self.loop.call_soon(self._run_calls)

    def stop(self) -> None:
        """Cancel all tasks, end the thread and close the loop."""
        if self.loop.is_closed():
            return
        self.run(self._cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    @staticmethod
    async def _cancel_all() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_default_executor()


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report uncaught errors, except those of broken connections, which become events."""
    if not isinstance(context.get("exception"), (OSError, ssl.SSLError)):
        loop.default_exception_handler(context)


E = TypeVar("E", bound="Endpoint")


class Endpoint(ABC):
    """One end of any number of connections: asyncio in one thread, blocking calls from others."""

    def __init__(
        self, codec: MessageCodec, limits: Limits | None, token: bytes | None, files: Path | None
    ) -> None:
        if token is not None and not token:
            raise NetworkError("the token is empty: give at least one byte, or no token")
        self._codec = codec
        self._limits = limits or Limits()
        self._token = token
        self._thread: LoopThread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._connections: set[Connection] = set()
        self._memory = IncomingMemory(self._limits, self._connections, self._soon)
        self._events = EventQueue(
            self._limits, lambda peer: self._soon(self._resume, peer), self._memory.budget.release
        )
        self._past: dict[str | None, ConnectionTraffic] = {}
        self._traffic_lock = threading.Lock()
        self._scratch = new_scratch()
        self._pacer = Pacer()
        self._at_a_time = MOST_BYTES
        self._files = files
        self._transfers = Transfers(self._limits, self._report)
        kept_bytes = min(self._limits.max_kept_bytes, self._memory.budget.most // 4)
        self._partials = PartialMessages(kept_bytes, self._limits.keep_s)

    # Called by the user, in any thread

    def next_event(self, timeout_s: float | None = None, last: int | None = None) -> Event | None:
        """Return the next event, or None after `timeout_s`, or when closed and none is left.

        Peers take turns, and the events of one peer keep their order. `last` excludes events after
        this number (see `last_event`).
        """
        return self._events.get(timeout_s, last)

    def last_event(self) -> int:
        """Return the number of the newest event."""
        return self._events.last()

    def traffic(self, peer: str | None = None) -> ConnectionTraffic:
        """Return the bytes so far of all connections, or of one peer's."""
        with self._traffic_lock:
            past = [traffic for one, traffic in self._past.items() if peer in (None, one)]
            now = [
                connection.session.meter.read()
                for connection in self._connections
                if peer is None or peer == self._peer_of(connection)
            ]
        return ConnectionTraffic.total([*past, *now])

    @abstractmethod
    def start(self) -> None:
        """Start to listen or connect."""

    @abstractmethod
    def close(self, drain_s: float = 5.0) -> None:
        """Send the queue, for at most `drain_s`, say goodbye, and release everything."""

    def __enter__(self: E) -> E:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(drain_s=5.0 if kind is None else 0.5)

    def _begin(self, name: str) -> LoopThread:
        if self._thread is not None:
            raise NetworkError("this end has been started already")
        self._thread = LoopThread(name)
        self._loop = self._thread.loop
        return self._thread

    def _stop(self) -> None:
        if self._thread is not None:
            self._thread.stop()
            self._thread = None
        self._events.close()

    def _soon(self, call: Callable[..., object], *args: object) -> None:
        if self._thread is not None:
            self._thread.soon(call, *args)

    def _send(self, connection: Connection, message: object, replace: bool = False) -> int:
        payload = message if isinstance(message, Payload) else self._codec.encode(message)
        terms = connection.session.terms
        if terms is None or connection.session.ended:
            raise NotConnected(f"the connection with {connection.address} is over")
        if payload.size > terms.peer_max_message_bytes:
            raise LimitExceeded(
                f"{payload.name} takes {payload.size} bytes and {connection.address} allows "
                f"{terms.peer_max_message_bytes}: raise max_message_bytes there"
            )
        self._soon(connection.send, payload, replace)
        return wire_size(payload.size)

    # In the loop's thread

    def _connection(self, make_session: Callable[[asyncio.Transport], Session]) -> Connection:
        """Return asyncio's protocol for a new connection."""
        return Connection(make_session, self, self._scratch, self._limits.linger_s)

    def _resume(self, peer: str) -> None:
        if peer == EVERYBODY:
            connections = list(self._connections)
        else:
            current = self._connection_of(peer)
            connections = [] if current is None else [current]
        for connection in connections:
            if not self.must_pause(connection):
                connection.release(Hold.CALLER)

    async def _drain(self, drain_s: float, reason: str, final: bool) -> None:
        """Say goodbye on all connections, within `drain_s`."""
        ends = self._loop.time() + drain_s
        while self._transfers.busy() and self._loop.time() < ends:
            await asyncio.sleep(0.02)
        waiting = {connection.closed for connection in self._connections}
        for connection in list(self._connections):
            connection.finish(reason, final)
        if waiting:
            await asyncio.wait(waiting, timeout=max(ends - self._loop.time(), 0.0))
        for connection in list(self._connections):
            connection.abort()
        if waiting:
            await asyncio.wait(waiting, timeout=1.0)

    @abstractmethod
    def _peer_of(self, connection: Connection) -> str | None:
        """Return the name of a connection's peer, None before the session is open."""

    @abstractmethod
    def _connection_of(self, peer: str) -> Connection | None:
        """Return the current connection of a peer."""

    @abstractmethod
    def _report(self, event: Event) -> None:
        """Queue an event for the caller."""

    @abstractmethod
    def _take(self, connection: Connection, event: SessionEvent) -> None: ...

    @abstractmethod
    def _closed(self, connection: Connection) -> None: ...

    def must_pause(self, connection: Connection) -> bool:
        """Return whether too many events of this peer, or of all peers, wait for the caller."""
        return self._events.full(self._peer_of(connection) or NOBODY)

    def made(self, connection: Connection) -> None:
        """Register a new connection."""
        account = self._memory.budget.account(lambda: connection.release(Hold.MEMORY))
        connection.session.memory = account
        connection.session.pace(lambda size: self._pacer.may_begin(size, connection.flush))
        with self._traffic_lock:
            self._connections.add(connection)
        self._resize(connection)

    def _resize(self, new: Connection | None = None) -> None:
        """Adapt the buffers of all connections to their number."""
        before, self._at_a_time = self._at_a_time, bytes_at_a_time(len(self._connections))
        if self._at_a_time != before:
            for connection in self._connections:
                connection.resize(self._at_a_time)
        elif new is not None:
            new.resize(self._at_a_time)

    def happened(self, connection: Connection, event: SessionEvent) -> None:
        """Handle a session's event."""
        match event:
            case FileFrame() | FileChunk():
                self._transfers.take(connection, event)
            case _:
                if isinstance(event, Ended):
                    self._transfers.ended(connection)
                    self._keep_partials(connection, event)
                self._take(connection, event)
                if isinstance(event, Opened):
                    self._expect_partials(connection)

    def _keep_partials(self, connection: Connection, ended: Ended) -> None:
        """Keep parts of messages for the peer's next connection, if this one was interrupted."""
        partials, connection.session.unfinished = connection.session.unfinished, []
        peer = self._peer_of(connection)
        if peer is None or connection.session.terms is None:
            return  # the session was never open
        if ended.code not in ("lost", "superseded"):
            self._partials.drop(peer)
        else:
            self._partials.keep(peer, partials, self._loop.time())
            self._loop.call_later(
                self._limits.keep_s, lambda: self._partials.expire(self._loop.time())
            )

    def _expect_partials(self, connection: Connection) -> None:
        """Tell a reconnected peer which parts of its messages were received."""
        peer = self._peer_of(connection)
        if peer is not None:
            connection.session.expect(self._partials.offered(peer, self._loop.time()))

    def unreadable(self, connection: Connection, stream: int, reason: str) -> None:
        """Cancel a file that could not be read."""
        self._transfers.unreadable(connection, stream, reason)

    def report_message(
        self, connection: Connection, kind: type[Sent] | type[Replaced], message: OutgoingMessage
    ) -> None:
        """Report that a message was sent or replaced."""
        peer = self._peer_of(connection)
        if peer is not None:
            self._report(kind(peer, message.payload.name, message.wire_bytes))

    def gone(self, connection: Connection) -> None:
        """Forget a closed connection, except for its traffic."""
        with self._traffic_lock:
            peer = self._peer_of(connection)
            done = connection.session.meter.read()
            past = self._past.get(peer, ConnectionTraffic())
            self._past[peer] = ConnectionTraffic.total([past, done])
            self._connections.discard(connection)
        self._resize()
        self._memory.forget(connection)
        self._pacer.forget(connection.flush)
        self._transfers.ended(connection)
        self._closed(connection)
