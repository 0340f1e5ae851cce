"""Events from the network's thread to the caller's, bounded by the bytes that they hold."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from layers.network.transport.events import ConnectionRejected, Event, Received

MAX_REJECTED = 10_000
EVENT_BYTES = 512  # what an event costs beside its message


class EventQueue:
    """A blocking queue; `full` tells its writer to stop reading, `on_room` tells it to go on."""

    def __init__(self, max_bytes: int, on_room: Callable[[], None]) -> None:
        self._max_bytes = max_bytes
        self._on_room = on_room
        self._events: deque[tuple[Event, int]] = deque()
        self._bytes = 0
        self._closed = False
        self._paused = False
        self._changed = threading.Condition()

    def put(self, event: Event) -> None:
        """Add an event; a `ConnectionRejected` is dropped if `MAX_REJECTED` events wait already."""
        size = EVENT_BYTES + (event.wire_bytes if isinstance(event, Received) else 0)
        with self._changed:
            if isinstance(event, ConnectionRejected) and len(self._events) >= MAX_REJECTED:
                return
            self._events.append((event, size))
            self._bytes += size
            self._changed.notify()

    def get(self, timeout_s: float | None) -> Event | None:
        """Return the next event, or None when the time is over or the queue is closed and empty."""
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while not self._events:
                left = None if ends is None else ends - time.monotonic()
                if self._closed or (left is not None and left <= 0):
                    return None
                self._changed.wait(left)
            event, size = self._events.popleft()
            self._bytes -= size
            room = self._paused and self._bytes <= self._max_bytes // 2
            if room:
                self._paused = False
        if room:
            self._on_room()
        return event

    def full(self) -> bool:
        """Return whether the writer must stop; `on_room` is called when there is room again."""
        with self._changed:
            if self._bytes > self._max_bytes:
                self._paused = True
            return self._paused

    def close(self) -> None:
        """End all waiting in `get`; events that are queued can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
