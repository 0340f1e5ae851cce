"""Who may stay in the handshake: a state machine that knows neither sockets nor clocks.

A handshake has up to three steps, and each is due in its time: the first byte, the end of TLS, the
end of the handshake. Bytes that complete no step do not count, so dribbling them gains nothing.

=================  =====================================  ========================================
handshakes         a step is due within                   a new connection
=================  =====================================  ========================================
below 3/4          `handshake_s`                          comes in
from 3/4 on        `PRESSED_S`, at most `handshake_s`     comes in
as many as may be  the same                               comes in when another one makes way
=================  =====================================  ========================================

Handshakes count by party: by the address they come from (IPv6: its /64 network), and after TLS by
the identity in their certificate. The party with the most handshakes makes way first, by the one
whose last step is longest ago, unless that was only just, within `GRACE_S`. So strangers and one
client's stolen certificate crowd out themselves, and many honest clients at one address do not
crowd out each other: they take their steps. A session that is open does not count.
"""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from typing import Generic, TypeVar

from layers.network.protocol.limits import Limits

K = TypeVar("K")
PRESSED_S = 1.0
GRACE_S = 0.25


@dataclass(frozen=True)
class _Handshake:
    party: str
    stepped_at: float


class Admission(Generic[K]):
    """The unfinished handshakes of a listener, each under a key of the caller's.

    `now` is a monotonic time in seconds; it never goes back from one call to the next.
    """

    def __init__(self, limits: Limits) -> None:
        self._most = limits.max_handshakes
        self._relaxed_s = limits.handshake_s
        self._all: dict[K, _Handshake] = {}  # by the time of the last step
        self._parties: dict[str, dict[K, _Handshake]] = {}  # the same, by party

    def __len__(self) -> int:
        return len(self._all)

    def arrive(self, key: K, address: str, now: float) -> None:
        """Take note of a new connection from an IP address."""
        self._put(key, _Handshake(_network(address), now))

    def step(self, key: K, now: float, identity: str | None = None) -> None:
        """Take note of a step of a handshake; `identity`: that of its certificate, now verified.

        A handshake that has left is not taken in again.
        """
        before = self._pop(key)
        if before is not None:
            party = before.party if identity is None else f"identity {identity}"
            self._put(key, _Handshake(party, now))

    def leave(self, key: K) -> None:
        """Forget a handshake that has succeeded or failed, or do nothing if it has left before."""
        self._pop(key)

    @property
    def full(self) -> bool:
        """Whether another handshake must make way before a connection is accepted."""
        return len(self._all) >= self._most

    def make_way(self, now: float) -> K | None:
        """Take out a handshake that makes way for a new one, and return it.

        None: the party with the most handshakes is busy; no other one makes way in its place.
        """
        chosen: K | None = None
        most = (0, 0.0)
        for party in self._parties.values():
            key, oldest = next(iter(party.items()))
            if (len(party), now - oldest.stepped_at) > most:
                chosen, most = key, (len(party), now - oldest.stepped_at)
        if chosen is None or most[1] < GRACE_S:
            return None
        self._pop(chosen)
        return chosen

    def expire(self, now: float, *, pressed: bool = False) -> list[K]:
        """Take out the handshakes whose next step is overdue, and return them, the oldest first.

        `pressed`: room is scarce for a reason of the caller's own.
        """
        late: list[K] = []
        while self._all:
            key, oldest = next(iter(self._all.items()))
            if now - oldest.stepped_at < self.patience_s(pressed=pressed):
                break
            self._pop(key)
            late.append(key)
        return late

    def patience_s(self, *, pressed: bool = False) -> float:
        """Return how long a step may take now."""
        if pressed or len(self._all) >= math.ceil(0.75 * self._most):
            return min(PRESSED_S, self._relaxed_s)
        return self._relaxed_s

    def _put(self, key: K, handshake: _Handshake) -> None:
        self._all[key] = handshake
        self._parties.setdefault(handshake.party, {})[key] = handshake

    def _pop(self, key: K) -> _Handshake | None:
        handshake = self._all.pop(key, None)
        if handshake is not None:
            party = self._parties[handshake.party]
            del party[key]
            if not party:
                del self._parties[handshake.party]
        return handshake


def _network(address: str) -> str:
    """Return what one stranger can have of addresses: an IPv4 address, or a /64 of IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
