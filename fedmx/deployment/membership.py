"""Which deployed clients are ready, which may reconnect, and the time that counts for them."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

MOST_TICK_S = 1.0  # a little more than the server's longest wait for an event
SHOWN = 20  # the most clients that a message names one by one


class ServerClock:
    """The time in which the server runs, for all limits that clients must keep.

    The server's loop calls `tick` at least every half second. A longer step counts as
    `MOST_TICK_S`: then the process was stopped, the machine was suspended, the clock has jumped or
    the server was busy, and no client could be heard.

    Attributes:
        now_s: seconds since some moment.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._ticked = time.monotonic()

    def tick(self) -> None:
        """Record that the server's loop runs now."""
        now = time.monotonic()
        self.now_s += min(max(now - self._ticked, 0.0), MOST_TICK_S)
        self._ticked = now


@dataclass
class Membership:
    """The clients that are ready, and those that were ready before they disconnected.

    Attributes:
        rejoin_s: seconds that a client may be disconnected during one task before it is removed,
            however often it reconnects.
        clock: the time that counts.
        samples: number of samples by client, of all that are ready or may reconnect.
        ready: the clients that have sent `Ready` on their current connection.
        disconnected: the other clients in `samples`, with the times of leaving by `clock`.
        away_s: how long clients were disconnected during their tasks, before they were back.
        barred: the clients that may not come back as they were, and are not waited for.
        rejoined: how often a client has come back in time.
    """

    rejoin_s: float
    clock: ServerClock = field(default_factory=ServerClock)
    samples: dict[int, int] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)
    disconnected: dict[int, float] = field(default_factory=dict)
    away_s: dict[int, float] = field(default_factory=dict)
    barred: set[int] = field(default_factory=set)
    rejoined: int = 0

    def join(self, client: int, samples: int) -> int | None:
        """Record that a client is ready; return its earlier number of samples (None: new)."""
        before = self.samples.get(client)
        self.samples[client] = samples
        self.rejoined += before is not None
        self.ready.add(client)
        if (since := self.disconnected.pop(client, -math.inf)) > -math.inf:
            self.away_s[client] = self.away_s.get(client, 0.0) + self.clock.now_s - since
        self.barred.discard(client)
        return before

    def leave(self, client: int) -> bool:
        """Record that a client has left; return whether it was ready."""
        if client not in self.ready:
            return False
        self.ready.discard(client)
        self.disconnected[client] = self.clock.now_s
        return True

    def begin_task(self, client: int) -> None:
        """Expect a client to carry out a new task, or to answer a question."""
        self.away_s.pop(client, None)
        self.expect(client)

    def expect(self, client: int) -> None:
        """Wait for a client that is not connected as for one that has just left."""
        if client not in self.samples:
            since = -math.inf if client in self.barred else self.clock.now_s
            self.disconnected.setdefault(client, since)

    def bar(self, client: int) -> None:
        """Do not wait for a client that has left; if it joins again, it is as any other."""
        self.barred.add(client)
        self.samples.pop(client, None)
        self.disconnected.pop(client, None)

    def expire(self) -> list[int]:
        """Remove the clients that were disconnected for too long, and return them."""
        now_s = self.clock.now_s
        late = [
            client
            for client, since in self.disconnected.items()
            if now_s - since + self.away_s.get(client, 0.0) > self.rejoin_s
        ]
        for client in late:
            self.away_s.pop(client, None)
            del self.disconnected[client]
            self.samples.pop(client, None)
        return late


def listing(clients: set[int]) -> str:
    """Return clients as text for a message, such as "2, 7 and 31 more"."""
    first = ", ".join(str(client) for client in sorted(clients)[:SHOWN])
    more = len(clients) - SHOWN
    return f"{first} and {more} more" if more > 0 else first


class LogTimer:
    """Says when to log that something is waited for; the intervals become longer."""

    def __init__(self, first_s: float) -> None:
        self._due = time.monotonic() + first_s
        self._every_s = 30.0

    def due(self) -> bool:
        """Return whether to log now; if so, set the next time."""
        if time.monotonic() < self._due:
            return False
        self._due = time.monotonic() + self._every_s
        self._every_s = min(2 * self._every_s, 3600.0)
        return True
