"""The memory of one end's incoming messages: how much there is, and who may hold it."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Collection

from layers.network.errors import LimitExceeded
from layers.network.memory.machine_memory import usable_memory_bytes
from layers.network.memory.memory_budget import MemoryBudget
from layers.network.protocol.frames import CHUNK_BYTES
from layers.network.protocol.limits import Limits
from layers.network.transport.connection import Connection, Hold

FIRST_BYTES = 64 << 20  # of the budget, while as much comes as this end takes
LOOK_S = 1.0  # between two looks whether it does
SLOW_RATE = 32 << 20  # bytes a second that this end takes whatever it has to do beside it
LEAST_PROGRESS_BYTES = CHUNK_BYTES // 4  # of a message in `stall_s`, while others wait for memory
WINDOWS_A_MESSAGE = 60  # the most times `stall_s` that a message may take then


class IncomingMemory:
    """A budget that grows while the senders are what is slow, and takes back what does not go on.

    Whoever has more to take than fits waits by back-pressure. A thousand fast clients need no more
    than a few at a time have, since this end is what is slow; many slow ones should all send at the
    same time. So while messages wait, and those that have memory send little and less than this end
    would read, the budget is doubled, up to `max_incoming_bytes`.

    Args:
        limits: of this end.
        connections: the open connections; used in the loop only.
        soon: calls something in the loop, from any thread.
    """

    def __init__(
        self,
        limits: Limits,
        connections: Collection[Connection],
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        self._connections = connections
        self._stall_s = limits.stall_s
        self._looks: asyncio.TimerHandle | None = None
        self._seen: dict[Connection, int] = {}  # bytes received until the last look
        self._seen_at = 0.0
        self._progress: dict[Connection, int] = {}  # and until stalled ones were looked for
        self._progress_at = 0.0
        most = limits.max_incoming_bytes or usable_memory_bytes() // 4
        first = limits.max_incoming_bytes or min(FIRST_BYTES, most)
        self.budget = MemoryBudget(most, lambda: soon(self.budget.grant), self._watch, first)

    def serve(self, connection: Connection) -> None:
        """Give a new connection its account."""
        connection.session.memory = self.budget.account(lambda: connection.release(Hold.MEMORY))

    def forget(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._seen.pop(connection, None)
        self._progress.pop(connection, None)

    def _watch(self) -> None:
        """Look, while messages wait for memory, how those go on that have it."""
        if self._looks is None:
            now = asyncio.get_running_loop().time()
            self._note(now)
            self._progress, self._progress_at = self._unfinished(), now

    def _note(self, now: float) -> None:
        """Note what has been received until now, and look again later."""
        self._seen, self._seen_at = self._received(), now
        loop = asyncio.get_running_loop()
        self._looks = loop.call_later(min(LOOK_S, self._stall_s), self._look)

    def _received(self) -> dict[Connection, int]:
        """Return the bytes of messages received so far."""
        return {one: one.session.meter.read().message_bytes_received for one in self._connections}

    def _unfinished(self) -> dict[Connection, int]:
        """Return the same of the connections that are read and hold memory."""
        received = self._received()
        return {one: received[one] for one in received if one.held_bytes and not one.waits}

    def _look(self) -> None:
        self._looks = None
        now = asyncio.get_running_loop().time()
        seconds = max(now - self._seen_at, LOOK_S / 100)
        came = sum(size - self._seen.get(one, 0) for one, size in self._received().items())
        if came / seconds < SLOW_RATE and self._starved():
            self.budget.grow()
        if now - self._progress_at >= self._stall_s:
            self._end_stalled()
            self._progress, self._progress_at = self._unfinished(), now
        if self.budget.waiting:
            self._note(now)
        else:
            self._seen, self._progress = {}, {}

    def _starved(self) -> bool:
        """Return whether of most that have memory nothing has come that waits to be read."""
        reading, poll = 0, select.poll()
        for connection in self._connections:
            if connection.held_bytes and not connection.waits:
                reading += 1
                if (fileno := connection.fileno) is not None:
                    poll.register(fileno, select.POLLIN)
        return 2 * len(poll.poll(0)) < reading

    def _end_stalled(self) -> None:
        for connection, received in self._unfinished().items():
            before = self._progress.get(connection)
            needed = max(LEAST_PROGRESS_BYTES, connection.held_bytes // WINDOWS_A_MESSAGE)
            if before is not None and received - before < needed:
                connection.refuse(
                    LimitExceeded(
                        "others wait for the memory of a message that comes too slowly: less than "
                        f"{needed} bytes in {self._stall_s:g} s"
                    )
                )
