"""Limits how many messages the connections of a loop begin to send in one turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TURN_BYTES = 8 << 20  # of messages that begin in one turn of the loop
COUNTED_BYTES = 1 << 20  # of one message: no more of it is sent in that turn


class Pacer:
    """Starts queued messages in order, up to `TURN_BYTES` in each turn of the loop.

    A socket can take a whole message at once. Without a limit, a server sends to all of its clients
    in a single turn, and reads the first answer only after it has sent the last message. Messages
    that have begun, and control frames, are not limited.
    """

    def __init__(self) -> None:
        self._begun_bytes = 0  # in this turn
        self._waiting: dict[Callable[[], object], None] = {}  # the longest-waiting first
        self._called: Callable[[], object] | None = None
        self._planned = False

    def may_begin(self, size: int, flush: Callable[[], object]) -> bool:
        """Return whether a message of `size` bytes may begin now; otherwise call `flush` later."""
        full = self._begun_bytes >= TURN_BYTES
        if full or (self._waiting and flush != self._called):
            self._waiting.setdefault(flush)
            return False
        self._begun_bytes += min(size, COUNTED_BYTES)
        self._plan()
        return True

    def forget(self, flush: Callable[[], object]) -> None:
        """Do not call `flush` any more."""
        self._waiting.pop(flush, None)

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._planned, self._begun_bytes = False, 0
        try:
            while self._waiting and self._begun_bytes < TURN_BYTES:
                self._called = next(iter(self._waiting))
                del self._waiting[self._called]
                self._called()
        finally:  # a failure of one connection must not hold up the others
            self._called = None
            if self._waiting:
                self._plan()
