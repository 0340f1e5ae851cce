"""The bytes of a deployed run's messages: by client, and what is left of the sockets' total."""

from __future__ import annotations

from collections import Counter

from layers.logic import Question, Task, Traffic, Verdict

DOWN = frozenset({Task.__name__, Verdict.__name__, Question.__name__})


class ByteCounter:
    """Counts what is queued as sent, and takes back what a lost connection never sent."""

    def __init__(self) -> None:
        self._traffic: dict[int, Traffic] = {}
        self._queued: dict[int, Counter[tuple[str, int]]] = {}
        self._messages = 0
        self._files = 0
        self._control = 0

    def queued(self, client: int, name: str, size_bytes: int) -> None:
        """Count a message that was handed to the network."""
        self._queued.setdefault(client, Counter())[name, size_bytes] += 1
        self._add(client, Traffic(down_bytes=size_bytes))

    def sent(self, client: int, name: str, size_bytes: int) -> None:
        """Take note that the last byte of a message has left."""
        waiting = self._queued.get(client, Counter())
        if waiting[name, size_bytes] > 0:
            waiting[name, size_bytes] -= 1
            waiting += Counter()  # forgets the sizes of which none is left
        elif name in DOWN:  # it was on a newer connection than the one whose end took it back
            self._add(client, Traffic(down_bytes=size_bytes))

    def received(self, client: int, size_bytes: int) -> None:
        """Count a message of a client."""
        self._add(client, Traffic(up_bytes=size_bytes))

    def dropped(self, client: int) -> None:
        """Take back what a connection that is over had not sent."""
        for (_, size), number in self._queued.pop(client, Counter()).items():
            unsent = number * size
            self._messages -= unsent
            counted = self._traffic.get(client, Traffic())
            if counted.down_bytes >= unsent:  # else a round has reported it already
                self._traffic[client] = counted + Traffic(down_bytes=-unsent)

    def take(self) -> dict[int, Traffic]:
        """Return the bytes by client since the last call."""
        traffic, self._traffic = self._traffic, {}
        return traffic

    def files(self, total_bytes: int) -> int:
        """Return what files took since the last call, of what they took in all."""
        fresh, self._files = total_bytes - self._files, total_bytes
        return fresh

    def control(self, total_bytes: int) -> int:
        """Return what of the total but files was no message of a round, since the last call.

        Never negative: what was counted before it crossed the wire is made up for later.
        """
        fresh = max(total_bytes - self._messages - self._control, 0)
        self._control += fresh
        return fresh

    def _add(self, client: int, traffic: Traffic) -> None:
        self._traffic[client] = self._traffic.get(client, Traffic()) + traffic
        self._messages += traffic.down_bytes + traffic.up_bytes
