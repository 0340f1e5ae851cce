"""The memory that the incoming messages of all connections may take together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

SMALL_BYTES = 16 * 1024  # a message up to this size never waits, and is not counted


class Account:
    """What one connection takes of a budget; `granted` is called when it need not wait any more.

    Attributes:
        held: bytes of its unfinished messages.
        waits: size of the message that waits for memory, 0 if none does.
    """

    def __init__(self, budget: MemoryBudget, granted: Callable[[], None]) -> None:
        self.held = 0
        self.waits = 0
        self.granted = granted
        self._budget = budget

    def reserve(self, size: int) -> bool:
        """Reserve memory for a whole message that was announced; return whether it may come now."""
        return size <= SMALL_BYTES or self._budget.reserve(self, size)

    def complete(self, size: int) -> int:
        """Take note that a message is complete; return the bytes to release when it is taken."""
        if size <= SMALL_BYTES:
            return 0
        self._budget.complete(self, size)
        return size

    def close(self) -> None:
        """Give back what unfinished messages hold."""
        self._budget.close(self)


class MemoryBudget:
    """Reserves memory for whole messages, in the order in which they are announced.

    A message that has its memory can always be completed, since nothing else is waited for. A
    message larger than the budget passes alone. A connection that has a part of one message and
    announces another cannot wait for ever, since the rest of the first comes behind the second: one
    such connection at a time may go beyond the budget, until none of its messages is unfinished.

    Args:
        most: the budget in bytes, at the most.
        on_room: called, in any thread, when `grant` should be called in the connections' thread.
        on_wait: called when a message begins to wait.
        first: the budget until `grow` doubles it, and again when so much suffices; None: `most`.
    """

    def __init__(
        self,
        most: int,
        on_room: Callable[[], None],
        on_wait: Callable[[], None],
        first: int | None = None,
    ) -> None:
        self.most = most
        self._first = self._now = most if first is None else first
        self._unfinished = 0  # of what is used
        self._on_room = on_room
        self._on_wait = on_wait
        self._used = 0
        self._waiting: deque[Account] = deque()
        self._beyond: Account | None = None  # who may go beyond the budget
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """Bytes that are reserved now: of unfinished messages, and of those not yet taken."""
        return self._used

    @property
    def budget(self) -> int:
        """The budget now, in bytes."""
        return self._now

    @property
    def waiting(self) -> int:
        """Number of connections that wait."""
        return len(self._waiting)

    def account(self, granted: Callable[[], None]) -> Account:
        """Return the account of a new connection."""
        return Account(self, granted)

    def reserve(self, account: Account, size: int) -> bool:
        """Reserve memory for a message; if there is none, the account waits."""
        with self._lock:
            if not self._waiting and self._used + size <= self._first:
                self._now = self._first
            in_turn = account.held > 0 or not self._waiting
            if in_turn and (self._fits(size) or self._may_go_beyond(account)):
                self._give(account, size)
                return True
            account.waits = size
            self._waiting.append(account)
        self._on_wait()
        return False

    def complete(self, account: Account, size: int) -> None:
        """Take note that a message is complete; its memory is released when it is taken."""
        with self._lock:
            account.held -= size
            self._unfinished -= size
            self._stay_within(account)
            room = self._next() is not None
        if room:
            self._on_room()

    def release(self, size: int) -> None:
        """Give back the memory of a message that was taken; any thread may call this."""
        with self._lock:
            self._used -= size
            room = self._next() is not None
        if room:
            self._on_room()

    def close(self, account: Account) -> None:
        """Give back what an account holds, and forget that it waits."""
        with self._lock:
            self._used -= account.held
            self._unfinished -= account.held
            account.held = 0
            if account.waits:
                account.waits = 0
                self._waiting.remove(account)
            self._stay_within(account)
            room = self._next() is not None
        if room:
            self._on_room()

    def grant(self) -> None:
        """Let those go on for whom there is memory now."""
        while True:
            with self._lock:
                account = self._next()
                if account is None:
                    return
                self._waiting.remove(account)
                self._give(account, account.waits)
                account.waits = 0
            account.granted()

    def grow(self) -> None:
        """Double the budget, if messages wait and most of it is of messages that are still coming.

        Otherwise the caller is behind, and a larger budget would only hold more.
        """
        with self._lock:
            if not self._waiting or self._unfinished * 2 <= self._now:
                return
            self._now = min(2 * self._now, self.most)
        self.grant()

    def _next(self) -> Account | None:
        """Return whose turn it is, None if there is no memory for it."""
        if self._waiting and self._fits(self._waiting[0].waits):
            return self._waiting[0]
        return next((one for one in self._waiting if self._may_go_beyond(one)), None)

    def _fits(self, size: int) -> bool:
        return not self._used or self._used + size <= self._now

    def _may_go_beyond(self, account: Account) -> bool:
        return account.held > 0 and self._beyond in (None, account)

    def _give(self, account: Account, size: int) -> None:
        if not self._fits(size):
            self._beyond = account
        self._used += size
        self._unfinished += size
        account.held += size

    def _stay_within(self, account: Account) -> None:
        if account is self._beyond and not account.held:
            self._beyond = None
