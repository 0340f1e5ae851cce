"""Which deployed clients are there, which may still come back, and who is missing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

SHOWN = 20  # clients that a message names one by one


@dataclass
class Membership:
    """Who is ready, and who was.

    Attributes:
        rejoin_s: how long a client that is gone may take to come back before it is forgotten.
        samples: number of samples by client, of those that are ready or may come back.
        ready: the clients that said that they are, on the connection that they have now.
        gone: the others in `samples`, with the monotonic time since when.
    """

    rejoin_s: float
    samples: dict[int, int] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)
    gone: dict[int, float] = field(default_factory=dict)

    def arrive(self, client: int, samples: int) -> int | None:
        """Take note that a client is ready; return its samples before, None if it is new."""
        before = self.samples.get(client)
        self.samples[client] = samples
        self.ready.add(client)
        self.gone.pop(client, None)
        return before

    def leave(self, client: int) -> bool:
        """Take note that a client has left; return whether it had been ready."""
        if client not in self.ready:
            return False
        self.ready.discard(client)
        self.gone[client] = time.monotonic()
        return True

    def expect(self, client: int) -> None:
        """Wait for a client that is not there as for one that has just left."""
        if client not in self.samples:
            self.gone.setdefault(client, time.monotonic())

    def expire(self) -> list[int]:
        """Forget the clients that are gone for too long, and return them."""
        now = time.monotonic()
        late = [client for client, since in self.gone.items() if now - since > self.rejoin_s]
        for client in late:
            del self.gone[client]
            self.samples.pop(client, None)
        return late


def named(clients: set[int]) -> str:
    """Return clients as a message names them: "2, 7 and 31 more"."""
    first = ", ".join(str(client) for client in sorted(clients)[:SHOWN])
    more = len(clients) - SHOWN
    return f"{first} and {more} more" if more > 0 else first


class Reminder:
    """Says when it is time to tell a user what is waited for: ever less often."""

    def __init__(self, first_s: float) -> None:
        self._due = time.monotonic() + first_s
        self._every_s = 30.0

    def due(self) -> bool:
        """Whether to tell now; the next time is later."""
        if time.monotonic() < self._due:
            return False
        self._due = time.monotonic() + self._every_s
        self._every_s = min(2 * self._every_s, 3600.0)
        return True
