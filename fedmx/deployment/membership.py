"""Which deployed clients are ready, and which may still reconnect."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

SHOWN = 20  # the most clients that a message names one by one


@dataclass
class Membership:
    """The clients that are ready, and those that were ready before they disconnected.

    Attributes:
        rejoin_s: seconds that a disconnected client may take to reconnect before it is removed.
        samples: number of samples by client, of all that are ready or may reconnect.
        ready: the clients that have sent `Ready` on their current connection.
        disconnected: the other clients in `samples`, with the monotonic times of leaving.
        barred: the clients that may not come back as they were, and are not waited for.
        rejoined: how often a client has come back in time.
    """

    rejoin_s: float
    samples: dict[int, int] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)
    disconnected: dict[int, float] = field(default_factory=dict)
    barred: set[int] = field(default_factory=set)
    rejoined: int = 0

    def join(self, client: int, samples: int) -> int | None:
        """Record that a client is ready; return its earlier number of samples (None: new)."""
        before = self.samples.get(client)
        self.samples[client] = samples
        self.rejoined += before is not None
        self.ready.add(client)
        self.disconnected.pop(client, None)
        self.barred.discard(client)
        return before

    def leave(self, client: int) -> bool:
        """Record that a client has left; return whether it was ready."""
        if client not in self.ready:
            return False
        self.ready.discard(client)
        self.disconnected[client] = time.monotonic()
        return True

    def expect(self, client: int) -> None:
        """Wait for a client that is not connected as for one that has just left."""
        if client not in self.samples:
            since = -math.inf if client in self.barred else time.monotonic()
            self.disconnected.setdefault(client, since)

    def bar(self, client: int) -> None:
        """Do not wait for a client that has left; if it joins again, it is as any other."""
        self.barred.add(client)
        self.samples.pop(client, None)
        self.disconnected.pop(client, None)

    def expire(self) -> list[int]:
        """Remove the clients that were disconnected for too long, and return them."""
        now = time.monotonic()
        late = [
            client for client, since in self.disconnected.items() if now - since > self.rejoin_s
        ]
        for client in late:
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
