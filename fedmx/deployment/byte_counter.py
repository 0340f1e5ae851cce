"""The bytes of a deployed run: messages by client, files, and control traffic."""

from __future__ import annotations

from collections import Counter, defaultdict

from layers.logic import Question, Task, Traffic, Verdict

DOWN = frozenset({Task.__name__, Verdict.__name__, Question.__name__})


class ByteCounter:
    """Counts a message when it is queued, and subtracts it if it was not sent."""

    def __init__(self) -> None:
        self._traffic: dict[int, Traffic] = {}
        self._queued: defaultdict[int, Counter[tuple[str, int]]] = defaultdict(Counter)
        self._received: dict[tuple[int, str, int], int] = {}  # the size of the newest of each kind
        self._messages = 0
        self._files = 0
        self._control = 0

    def queued(self, client: int, name: str, size_bytes: int) -> None:
        """Count a message that was queued for sending."""
        self._queued[client][name, size_bytes] += 1
        self._add(client, Traffic(down_bytes=size_bytes))

    def sent(self, client: int, name: str, size_bytes: int) -> None:
        """Record that the last byte of a message was sent."""
        was_queued = self._leaves_queue(client, name, size_bytes)
        if not was_queued and name in DOWN:  # on a newer connection; `dropped` has subtracted it
            self._add(client, Traffic(down_bytes=size_bytes))

    def received(self, client: int, name: str, round: int, size_bytes: int) -> None:
        """Count a message from a client."""
        self._received[client, name, round] = size_bytes
        self._add(client, Traffic(up_bytes=size_bytes))

    def unasked(self, client: int, name: str, round: int) -> None:
        """Subtract a message that was received, but that no task or question asked for.

        It belongs to no round, and so counts as control traffic.
        """
        size = self._received.pop((client, name, round), 0)
        counted = self._traffic.get(client, Traffic())
        if size and counted.up_bytes >= size:  # otherwise a round has reported it already
            self._traffic[client] = counted + Traffic(up_bytes=-size)
            self._messages -= size

    def replaced(self, client: int, name: str, size_bytes: int) -> None:
        """Subtract a queued message that another message replaces."""
        if self._leaves_queue(client, name, size_bytes):
            self._subtract(client, size_bytes)

    def dropped(self, client: int) -> None:
        """Subtract the queued messages that a closed connection did not send."""
        for (_, size), number in self._queued.pop(client, Counter()).items():
            self._subtract(client, number * size)

    def take(self) -> dict[int, Traffic]:
        """Return the bytes by client since the last call."""
        traffic, self._traffic = self._traffic, {}
        self._received.clear()
        return traffic

    def files(self, total_bytes: int) -> int:
        """Return the bytes of files since the last call, given their total so far."""
        fresh, self._files = total_bytes - self._files, total_bytes
        return fresh

    def control(self, total_bytes: int) -> int:
        """Return the bytes since the last call that belong to no message of a round.

        The result is never negative: bytes that were counted before they were sent are subtracted
        from a later result.

        Args:
            total_bytes: all bytes so far, without files.
        """
        fresh = max(total_bytes - self._messages - self._control, 0)
        self._control += fresh
        return fresh

    def _leaves_queue(self, client: int, name: str, size_bytes: int) -> bool:
        """Take a message out of the queued ones; return whether it was there."""
        waiting = self._queued[client]
        left = waiting[name, size_bytes] - 1
        if left > 0:
            waiting[name, size_bytes] = left
        elif left == 0:
            del waiting[name, size_bytes]
        return left >= 0

    def _subtract(self, client: int, unsent: int) -> None:
        self._messages -= unsent
        counted = self._traffic.get(client, Traffic())
        if counted.down_bytes >= unsent:  # otherwise a round has reported it already
            self._traffic[client] = counted + Traffic(down_bytes=-unsent)

    def _add(self, client: int, traffic: Traffic) -> None:
        self._traffic[client] = self._traffic.get(client, Traffic()) + traffic
        self._messages += traffic.down_bytes + traffic.up_bytes
