"""The queue of events from the network's thread to the caller: bounded, and fair to peers."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from layers.network.events import ConnectionRejected, Event, Received
from layers.network.limits import Limits

MAX_REJECTED = 10_000
EVENT_BYTES = 512  # memory of an event without its message
VALUE_BYTES = 128  # memory of a decoded value beyond its bytes
NOBODY = ""  # stands for all connections without a verified identity
EVERYBODY = "*"  # no peer's name
PEER_SHARE = 16  # one peer may use this fraction of `max_queued_bytes`


@dataclass
class _Waiting:
    """The events of one peer: number, event, size and reserved bytes of each."""

    events: deque[tuple[int, Event, int, int]] = field(default_factory=deque)
    bytes: int = 0
    paused: bool = False


class EventQueue:
    """A blocking queue: peers take turns, and the events of one peer keep their order.

    Backpressure is per peer: `full` tells the writer to stop reading a peer, and `on_room` to
    resume it, or EVERYBODY. `release` gets the reserved bytes of an event when it is taken.
    """

    def __init__(
        self,
        limits: Limits,
        on_room: Callable[[str], None],
        release: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._limits = limits
        self._on_room = on_room
        self._release = release
        self._peers: dict[str, _Waiting] = {}
        self._turns: deque[str] = deque()  # the peers with events
        self._bytes = 0
        self._put = 0
        self._closed = False
        self._paused = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        with self._changed:
            return sum(len(waiting.events) for waiting in self._peers.values())

    def put(self, event: Event, peer: str = NOBODY, reserved: int = 0, values: int = 0) -> None:
        """Add an event; a `ConnectionRejected` is dropped if `MAX_REJECTED` events wait.

        Args:
            event: the event.
            peer: its peer.
            reserved: bytes reserved for its message.
            values: number of values in its message.
        """
        size = EVENT_BYTES + VALUE_BYTES * values
        size += event.wire_bytes if isinstance(event, Received) else 0
        with self._changed:
            waiting = self._peers.get(peer)
            if waiting is None:
                waiting = self._peers[peer] = _Waiting()
                self._turns.append(peer)
            elif isinstance(event, ConnectionRejected) and len(waiting.events) >= MAX_REJECTED:
                return
            self._put += 1
            waiting.events.append((self._put, event, size, reserved))
            waiting.bytes += size
            self._bytes += size
            self._changed.notify()

    def last(self) -> int:
        """Return the number of the last event; events are numbered from 1."""
        with self._changed:
            return self._put

    def get(self, timeout_s: float | None, last: int | None = None) -> Event | None:
        """Return the next event, or None when the time is over or the queue is closed and empty.

        `last` excludes events after this number.
        """
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while (peer := self._next(last)) is None:
                left = None if ends is None else ends - time.monotonic()
                if self._closed or (left is not None and left <= 0):
                    return None
                self._changed.wait(left)
            event, reserved, resumed = self._take(peer)
        if reserved:
            self._release(reserved)
        for one in resumed:
            self._on_room(one)
        return event

    def drop(self, peer: str) -> None:
        """Remove the queued messages of a peer."""
        released = 0
        with self._changed:
            waiting = self._peers.get(peer)
            if waiting is None:
                return
            for item in [one for one in waiting.events if isinstance(one[1], Received)]:
                waiting.events.remove(item)
                waiting.bytes -= item[2]
                self._bytes -= item[2]
                released += item[3]
            if not waiting.events:
                self._turns.remove(peer)
                del self._peers[peer]
            resumed = self._resumed(peer, waiting)
        self._release(released)
        for one in resumed:
            self._on_room(one)

    def full(self, peer: str) -> bool:
        """Return whether to stop reading a peer; `on_room` is called when there is room again."""
        with self._changed:
            if self._bytes > self._limits.max_queued_bytes:
                self._paused = True
            waiting = self._peers.get(peer)
            if waiting is None or peer == NOBODY:
                return self._paused
            if self._above(waiting, 1):
                waiting.paused = True
            return self._paused or waiting.paused

    def close(self) -> None:
        """Wake up all calls of `get`; queued events can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _next(self, last: int | None) -> str | None:
        """Return the peer whose event is next, if any."""
        for _ in range(len(self._turns)):
            peer = self._turns[0]
            if last is None or self._peers[peer].events[0][0] <= last:
                return peer
            self._turns.rotate(-1)
        return None

    def _take(self, peer: str) -> tuple[Event, int, list[str]]:
        """Remove a peer's next event; return it, its reserved bytes, and whom to resume."""
        waiting = self._peers[peer]
        _, event, size, reserved = waiting.events.popleft()
        waiting.bytes -= size
        self._bytes -= size
        self._turns.popleft()
        if waiting.events:
            self._turns.append(peer)
        else:
            del self._peers[peer]
        return event, reserved, self._resumed(peer, waiting)

    def _resumed(self, peer: str, waiting: _Waiting) -> list[str]:
        """Return whom to resume, now that less is queued."""
        resumed: list[str] = []
        if self._paused and self._bytes <= self._limits.max_queued_bytes // 2:
            self._paused = False
            resumed.append(EVERYBODY)
        if waiting.paused and not self._above(waiting, 2):
            waiting.paused = False
            resumed.append(peer)
        return resumed

    def _above(self, waiting: _Waiting, part: int) -> bool:
        """Return whether a peer uses more than 1/`part` of its limits."""
        return (
            len(waiting.events) * part > self._limits.max_queued_events
            or waiting.bytes * part > self._limits.max_queued_bytes // PEER_SHARE
        )
