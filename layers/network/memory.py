"""The memory budget of incoming messages: its size, its reservations, and who waits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from layers.network.errors import LimitExceeded, NetworkError
from layers.network.frames import CHUNK_BYTES
from layers.network.limits import Limits

GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")


def usable_memory_bytes(groups: Path = GROUPS, own_group: Path = OWN_GROUP) -> int:
    """Return the machine's memory, or the limit of a control group of this process if smaller."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in _limit_files(groups, own_group):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(int(file.read_text()))
    return min(limits)


def _limit_files(groups: Path, own_group: Path) -> list[Path]:
    """Return the files that may limit this process's control group and its parents."""
    try:
        lines = own_group.read_text().splitlines()
    except OSError:  # no control groups
        return []
    files = []
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds == "":  # version 2
            top, name = groups, "memory.max"
        elif "memory" in kinds.split(","):
            top, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        inner = top / path.lstrip("/")
        files += [folder / name for folder in (inner, *inner.parents) if folder.is_relative_to(top)]
    return files


SMALL_BYTES = 16 * 1024  # messages up to this size never wait, and do not count
FIRST_BYTES = 64 << 20  # initial budget, enough for fast senders
CHECK_S = 1.0  # between two checks whether senders are slow
SLOW_RATE = 32 << 20  # bytes a second that this end can always receive
LEAST_PROGRESS_BYTES = CHUNK_BYTES // 4  # per message and `stall_s`, while others wait
WINDOWS_A_MESSAGE = 60  # the most `stall_s` that a message may take while others wait


class Reservation:
    """The share of one connection; `granted` is called when its message no longer has to wait.

    Attributes:
        held: bytes reserved for its unfinished messages.
        waits: size of the message that waits for memory, 0 if none.
    """

    def __init__(self, budget: MemoryBudget, granted: Callable[[], None]) -> None:
        self.held = 0
        self.waits = 0
        self.granted = granted
        self._budget = budget

    def reserve(self, size: int) -> bool:
        """Reserve memory for an announced message; return whether it may be received now."""
        return size <= SMALL_BYTES or self._budget.reserve(self, size)

    def complete(self, size: int) -> int:
        """Mark a message as complete; return the bytes to release when the caller takes it."""
        if size <= SMALL_BYTES:
            return 0
        self._budget.complete(self, size)
        return size

    def close(self) -> None:
        """Release the memory of unfinished messages."""
        self._budget.close(self)


class MemoryBudget:
    """Reserves memory for whole messages, in the order in which they are announced.

    A message that has its memory can always be completed. A message larger than the budget is
    admitted alone. A connection that announces a second message before the first is complete must
    not wait, since the rest of the first comes behind the second: one connection at a time may
    exceed the budget, until all of its messages are complete.

    Args:
        most: the upper bound of the budget in bytes.
        on_room: called, in any thread, when `grant` should be called in the connections' thread.
        on_wait: called when a message starts to wait.
        first: the budget until `grow` doubles it, and again once it suffices; None: `most`.
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
        self._unfinished = 0  # the part of `_used` held by unfinished messages
        self._on_room = on_room
        self._on_wait = on_wait
        self._used = 0
        self._waiting: deque[Reservation] = deque()
        self._holding: deque[Reservation] = deque()  # those of `_waiting` that also hold memory
        self._beyond: Reservation | None = None  # may exceed the budget
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """Bytes reserved for unfinished messages, and for those that the caller has not taken."""
        return self._used

    @property
    def budget(self) -> int:
        """The current budget in bytes."""
        return self._now

    @property
    def waiting(self) -> int:
        """Number of waiting connections."""
        return len(self._waiting)

    def account(self, granted: Callable[[], None]) -> Reservation:
        """Return the account of a new connection."""
        return Reservation(self, granted)

    def reserve(self, account: Reservation, size: int) -> bool:
        """Reserve memory for a message, or let the account wait for it."""
        with self._lock:
            if not self._waiting and self._used + size <= self._first:
                self._now = self._first
            in_turn = account.held > 0 or not self._waiting
            if in_turn and (self._fits(size) or self._may_go_beyond(account)):
                self._give(account, size)
                return True
            account.waits = size
            self._waiting.append(account)
            if account.held:
                self._holding.append(account)
        self._on_wait()
        return False

    def complete(self, account: Reservation, size: int) -> None:
        """Mark a message as complete; its memory is released when the caller takes it."""
        with self._lock:
            account.held -= size
            self._unfinished -= size
            self._stay_within(account)
        self._tell_room()

    def release(self, size: int) -> None:
        """Release the memory of a message that the caller has taken; safe in any thread."""
        with self._lock:
            self._used -= size
        self._tell_room()

    def close(self, account: Reservation) -> None:
        """Release what an account holds, and stop waiting for it."""
        with self._lock:
            self._used -= account.held
            self._unfinished -= account.held
            account.held = 0
            if account.waits:
                self._end_wait(account)
            self._stay_within(account)
        self._tell_room()

    def _tell_room(self) -> None:
        """Call `on_room` if an account can be granted memory."""
        with self._lock:
            room = self._next() is not None
        if room:
            self._on_room()

    def grant(self) -> None:
        """Grant memory to the waiting accounts for which there is enough."""
        while True:
            with self._lock:
                account = self._next()
                if account is None:
                    return
                self._give(account, account.waits)
                self._end_wait(account)
            account.granted()

    def grow(self) -> None:
        """Double the budget if messages wait and unfinished messages hold most of it.

        Otherwise the caller is too slow, and a larger budget would only queue more.
        """
        with self._lock:
            if not self._waiting or self._unfinished * 2 <= self._now:
                return
            self._now = min(2 * self._now, self.most)
        self.grant()

    def _next(self) -> Reservation | None:
        """Return the account to grant memory next, if there is enough."""
        if self._waiting and self._fits(self._waiting[0].waits):
            return self._waiting[0]
        return next((one for one in self._holding if self._may_go_beyond(one)), None)

    def _end_wait(self, account: Reservation) -> None:
        account.waits = 0
        self._waiting.remove(account)
        if account in self._holding:
            self._holding.remove(account)

    def _fits(self, size: int) -> bool:
        return not self._used or self._used + size <= self._now

    def _may_go_beyond(self, account: Reservation) -> bool:
        return account.held > 0 and self._beyond in (None, account)

    def _give(self, account: Reservation, size: int) -> None:
        if not self._fits(size):
            self._beyond = account
        self._used += size
        self._unfinished += size
        account.held += size

    def _stay_within(self, account: Reservation) -> None:
        if account is self._beyond and not account.held:
            self._beyond = None


class Receiver(Protocol):
    """What `IncomingMemory` asks of a connection."""

    @property
    def held_bytes(self) -> int:
        """Bytes reserved for its unfinished messages."""

    @property
    def message_bytes_received(self) -> int:
        """Bytes of messages received so far."""

    @property
    def waits(self) -> bool:
        """Whether this end has paused reading."""

    @property
    def fileno(self) -> int | None:
        """The descriptor of its socket; None: it is closed."""

    def refuse(self, error: NetworkError) -> None:
        """End the connection because of `error`."""


class IncomingMemory:
    """A budget that grows while senders are slow, and takes memory back from stalled ones.

    Messages beyond the budget wait: this is backpressure. A few fast clients at a time saturate
    this end, however many there are, but many slow clients should all send at the same time. So
    while messages wait, and senders with memory send little and less than this end could read, the
    budget is doubled, up to `max_incoming_bytes`.

    Args:
        limits: of this end.
        connections: the open connections; used in the loop's thread only.
        soon: calls a function in the loop's thread, from any thread.
    """

    def __init__(
        self,
        limits: Limits,
        connections: Collection[Receiver],
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        self._connections = connections
        self._stall_s = limits.stall_s
        self._timer: asyncio.TimerHandle | None = None
        self._seen: dict[Receiver, int] = {}  # bytes received at the last check
        self._seen_at = 0.0
        self._progress: dict[Receiver, int] = {}  # and at the last search for stalled ones
        self._progress_at = 0.0
        most = limits.max_incoming_bytes or usable_memory_bytes() // 4
        first = limits.max_incoming_bytes or min(FIRST_BYTES, most)
        self.budget = MemoryBudget(most, lambda: soon(self.budget.grant), self._watch, first)

    def forget(self, connection: Receiver) -> None:
        """Forget a closed connection."""
        self._seen.pop(connection, None)
        self._progress.pop(connection, None)

    def _watch(self) -> None:
        """Check progress repeatedly while messages wait for memory."""
        if self._timer is None:
            self._schedule()
            self._progress, self._progress_at = self._unfinished(), self._seen_at

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._seen, self._seen_at = self._received(), loop.time()
        self._timer = loop.call_later(min(CHECK_S, self._stall_s), self._check)

    def _check(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        seconds = max(now - self._seen_at, CHECK_S / 100)
        came = sum(size - self._seen.get(one, 0) for one, size in self._received().items())
        if came / seconds < SLOW_RATE and self._starved():
            self.budget.grow()
        if now - self._progress_at >= self._stall_s:
            self._end_stalled()
        if self.budget.waiting:
            self._schedule()
        else:
            self._seen, self._progress = {}, {}

    def _received(self) -> dict[Receiver, int]:
        """Return the bytes of messages received by each connection so far."""
        return {one: one.message_bytes_received for one in self._connections}

    def _unfinished(self) -> dict[Receiver, int]:
        """Return the same for the connections that are read and hold memory."""
        received = self._received()
        return {one: received[one] for one in received if one.held_bytes and not one.waits}

    def _starved(self) -> bool:
        """Return whether most connections with memory have nothing to read."""
        reading, poll = 0, select.poll()
        for connection in self._connections:
            if connection.held_bytes and not connection.waits:
                reading += 1
                if (fileno := connection.fileno) is not None:
                    poll.register(fileno, select.POLLIN)
        return 2 * len(poll.poll(0)) < reading

    def _end_stalled(self) -> None:
        """Disconnect peers whose messages made too little progress since the last call."""
        for connection, received in self._unfinished().items():
            before = self._progress.get(connection)
            needed = max(LEAST_PROGRESS_BYTES, connection.held_bytes // WINDOWS_A_MESSAGE)
            if before is not None and received - before < needed:
                connection.refuse(
                    LimitExceeded(
                        "others wait for the memory of a message that is too slow: less than "
                        f"{needed} bytes in {self._stall_s:g} s"
                    )
                )
        now = asyncio.get_running_loop().time()
        self._progress, self._progress_at = self._unfinished(), now
