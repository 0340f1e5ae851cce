"""Messages that broke off with their connection: what came of them waits for the next one."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from layers.network.protocol.frames import PART

FEATURE = "continue"
"""The feature of a session whose ends continue messages; see `docs/protocol.md`."""

LEAST_BYTES = 1 << 20  # a smaller message begins anew
LEAST_FILLED_BYTES = 1 << 18  # and so does one of which less has come

Part: TypeAlias = "tuple[int, bytes]"
"""n, and the SHA-256 of the first n bytes of a message."""


def part_of(buffers: Iterable[memoryview], parts: Collection[Part]) -> Part | None:
    """Return the longest of the parts that is the beginning of a message, None if none is.

    Args:
        buffers: the message.
        parts: of messages of this size.
    """
    found, position, digest = None, 0, hashlib.sha256()
    ends = sorted({end for end, _ in parts})
    for buffer in buffers:
        start = position
        while ends and ends[0] <= start + len(buffer):
            end = ends.pop(0)
            digest.update(buffer[position - start : end - start])
            position = end
            if (end, digest.digest()) in parts:
                found = end, digest.digest()
        if not ends:
            break
        digest.update(buffer[position - start :])
        position = start + len(buffer)
    return found


@dataclass(frozen=True, eq=False)
class PartialMessage:
    """The first bytes of a message.

    Attributes:
        buffer: the memory of the whole message.
        filled: how many of its bytes have come.
        before: the SHA-256 so far, of a part that was hashed when less of it had come.
        hashed: how many bytes that is of.
    """

    buffer: memoryview
    filled: int
    before: hashlib._Hash | None = None
    hashed: int = 0

    @property
    def size(self) -> int:
        """Size of the whole message."""
        return len(self.buffer)

    @property
    def sha256(self) -> bytes:
        """SHA-256 of the bytes that have come; each byte is hashed once, also by `grown`."""
        return self._hash.digest()

    @cached_property
    def _hash(self) -> hashlib._Hash:
        digest = hashlib.sha256() if self.before is None else self.before.copy()
        digest.update(self.buffer[self.hashed : self.filled])
        return digest

    def grown(self, filled: int) -> PartialMessage:
        """Return this part when so many bytes have come of its message."""
        if filled == self.filled:
            return self
        return PartialMessage(self.buffer, filled, self._hash, self.filled)

    @property
    def words(self) -> bytes:
        """What a PARTIAL and a CONTINUE frame say of it."""
        return PART.pack(self.size, self.filled, self.sha256)

    @property
    def large(self) -> bool:
        """Whether to continue it is worth while."""
        return self.size >= LEAST_BYTES and self.filled >= LEAST_FILLED_BYTES


class PartialMessages:
    """What came of the messages of all peers of one end; the oldest make way for new ones.

    What was offered to a peer on its new connection counts until that peer continues it, begins
    another large message, or is gone.

    Args:
        max_bytes: received bytes that are kept of all peers together.
        keep_s: how long they wait for the peer's next connection.
    """

    def __init__(self, max_bytes: int, keep_s: float) -> None:
        self._max_bytes = max_bytes
        self._keep_s = keep_s
        self._waiting: dict[str, tuple[float, list[PartialMessage]]] = {}  # the oldest first
        self._offered: dict[str, list[PartialMessage]] = {}

    @property
    def kept_bytes(self) -> int:
        """The bytes that are kept now."""
        waiting = [partials for _, partials in self._waiting.values()]
        return sum(one.filled for some in (*waiting, *self._offered.values()) for one in some)

    def keep(self, peer: str, partials: Sequence[PartialMessage], now: float) -> None:
        """Keep what came from a peer whose connection has ended; it replaces what was kept."""
        self.drop(peer)
        large = [one for one in partials if one.large]
        size = sum(one.filled for one in large)
        offered = sum(one.filled for some in self._offered.values() for one in some)
        if not large or offered + size > self._max_bytes:
            return  # it would not fit if all others made way
        while self.kept_bytes + size > self._max_bytes:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[peer] = now + self._keep_s, large

    def offered(self, peer: str, now: float) -> list[PartialMessage]:
        """Return what is kept of a peer that is connected again; what it uses must be removed."""
        self.expire(now)
        _, partials = self._waiting.pop(peer, (now, []))
        self._offered[peer] = partials
        return partials

    def drop(self, peer: str) -> None:
        """Keep nothing of a peer."""
        self._waiting.pop(peer, None)
        self._offered.pop(peer, None)

    def expire(self, now: float) -> None:
        """Drop what has waited too long."""
        for peer in [peer for peer, (ends, _) in self._waiting.items() if ends <= now]:
            del self._waiting[peer]
