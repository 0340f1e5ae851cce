"""Accepts connections, and admits, expires or evicts their handshakes.

A handshake has up to three steps, and each has a deadline: the first byte, the end of TLS, the end
of the handshake. Bytes that complete no step do not count, so dribbling them gains nothing.

=====================  =====================================  ====================================
handshakes             deadline of a step                     a new connection
=====================  =====================================  ====================================
below 3/4 of the most  `handshake_s`                          is accepted
from 3/4 on            `PRESSED_S`, at most `handshake_s`     is accepted
at the most            the same                               is accepted when another is evicted
=====================  =====================================  ====================================

The stalest handshake is evicted first. Handshakes count by party: the address of a connection (for
IPv6 its /64 network), and after TLS the identity in its certificate. The party with the most
handshakes loses the one whose last step is oldest, unless that was within `GRACE_S`. So attackers,
and users of one stolen certificate, evict only each other, while many honest clients behind one
address keep taking steps. An open session does not count.

TLS costs memory before the peer has shown a certificate. So no more than `max_tls_handshakes` do it
at a time, each with few bytes (`layers.network.securing`); the others wait after their first byte,
which the system keeps. The party with the most gives way at once to a party with fewer, and to its
own waiting ones after `PRESSED_S`. When half of many handshakes have left, memory is returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from layers.network import client_hello, handed
from layers.network.address import KEPT_FOR_HANDSHAKES, Address, file_limit, free_descriptors
from layers.network.connection import Connection
from layers.network.errors import BOTH_OR_NEITHER, ProtocolError
from layers.network.events import ConnectionRejected, Crowded, RoomAgain
from layers.network.limits import Limits
from layers.network.securing import return_memory, secure
from layers.network.tls import FAILURES, common_name, explain

K = TypeVar("K")
Route = Callable[[str], socket.socket | None]
PRESSED_S = 1.0
GRACE_S = 0.25
WATCH_S = 0.25  # between two searches for overdue handshakes
ACCEPTS_A_TURN = 32
PEEK_S = 0.02  # between two looks at a client's hello that comes in parts
EVICTED = "the handshake was silent, and evicted for others"
MANY = 64  # handshakes whose memory is worth returning


@dataclass(frozen=True)
class _Handshake:
    party: str
    stepped_at: float


class Admission(Generic[K]):
    """The unfinished handshakes of a listener by key: a state machine without sockets or clocks.

    `now` is a monotonic time in seconds.
    """

    def __init__(self, limits: Limits, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._most = limits.max_handshakes
        self._relaxed_s = limits.handshake_s
        self._all: dict[K, _Handshake] = {}  # by the time of the last step
        self._parties: dict[str, dict[K, _Handshake]] = {}  # the same, by party

    def __len__(self) -> int:
        return len(self._all)

    def arrive(self, key: K, address: str, now: float) -> None:
        """Add a new connection from an IP address."""
        self._put(key, _Handshake(_network(address), now))

    def step(self, key: K, now: float, identity: str | None = None) -> None:
        """Record a step, unless the handshake has left; `identity`: of a verified certificate."""
        before = self._pop(key)
        if before is not None:
            party = before.party if identity is None else f"identity {identity}"
            self._put(key, _Handshake(party, now))

    def leave(self, key: K) -> None:
        """Remove a handshake that has succeeded or failed, if it is still there."""
        self._pop(key)

    @property
    def full(self) -> bool:
        """Whether a handshake must be evicted before a connection is accepted."""
        return len(self._all) >= self._most

    def evict(self, now: float, newcomer: str | None = None) -> K | None:
        """Remove and return the handshake to evict.

        None: the party with the most handshakes is active; no other party suffers in its place.

        Args:
            now: the time.
            newcomer: the IP address for which room is made (see `goes_first`); None: unknown.
        """
        chosen: K | None = None
        most = (0, 0.0)
        for party in self._parties.values():
            key, oldest = next(iter(party.items()))
            if (len(party), now - oldest.stepped_at) > most:
                chosen, most = key, (len(party), now - oldest.stepped_at)
        waits = newcomer is None or not self.goes_first(newcomer)
        if chosen is None or (waits and most[1] < self._grace_s):
            return None
        self._pop(chosen)
        return chosen

    def goes_first(self, address: str) -> bool:
        """Return whether another party has more handshakes than that of a new one would have.

        Then that party gives way, even if it is active.
        """
        own = 1 + len(self._parties.get(_network(address), ()))
        return any(len(party) > own for party in self._parties.values())

    def expire(self, now: float, *, pressed: bool = False) -> list[K]:
        """Remove and return the handshakes whose next step is overdue, the oldest first.

        `pressed`: descriptors are scarce.
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
        """Return the current deadline of a step."""
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
    """Return the network that one attacker may own: an IPv4 address, or a /64 of IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


@dataclass(eq=False)
class _Attempt:
    """One connection during its handshake."""

    address: Address
    task: asyncio.Task[None] | None = None
    connection: Connection | None = None  # since TLS is done
    silent: bool = False  # waits for the first byte of TLS


class Acceptor:
    """Accepts from a listening socket, in the loop's thread, until `close`.

    Args:
        listening: the socket; one of Unix takes connections that another process has accepted.
        limits: how many handshakes there may be, and how long they may take.
        tls: returns the TLS context of a new connection, None for plain TCP.
        make_connection: returns asyncio's protocol for an accepted connection.
        report: takes rejections of connections without a session, and whether there is room.
        route: returns the other process that serves a protocol of TLS (ALPN), by the giving end of
            `handed.pair`; None: this one does. Without a route there is no other.
    """

    def __init__(
        self,
        listening: socket.socket,
        limits: Limits,
        tls: Callable[[], ssl.SSLContext | None],
        make_connection: Callable[[], Connection],
        report: Callable[[ConnectionRejected | Crowded | RoomAgain], None],
        route: Route | None = None,
    ) -> None:
        self._listening = listening
        self._limits = limits
        self._tls = tls
        self._make_connection = make_connection
        self._report = report
        self._route = route
        self._loop = asyncio.get_running_loop()
        self._admission: Admission[_Attempt] = Admission(limits)
        most = min(limits.max_tls_handshakes, limits.max_handshakes)
        # Longer than a turn of the loop with this number of handshakes.
        self._securing: Admission[_Attempt] = Admission(
            replace(limits, max_handshakes=most), PRESSED_S
        )
        self._turn = asyncio.Lock()  # of those that wait for TLS
        self._peak = 0  # the most handshakes since memory was returned
        # Counted once: descriptors of evicted handshakes become free again.
        self._room = max(free_descriptors() - KEPT_FOR_HANDSHAKES, 1)
        self._crowded = False
        self._some = asyncio.Event()  # set while there are handshakes
        self._tasks = {self._loop.create_task(work) for work in (self._accept(), self._watch())}

    def crowd(self, clients: int) -> str | None:
        """Return why there is no room for another client, if so; report when that changes."""
        reason = None
        if clients >= self._limits.max_connections:
            reason = f"the server has {clients} clients, which is its limit"
        elif clients >= self._room:
            reason = (
                f"the server has {clients} clients, as many as fit into its limit of "
                f"{file_limit()} open files; raise it for more (ulimit -n, LimitNOFILE)"
            )
        if (reason is not None) is not self._crowded:
            self._crowded = reason is not None
            self._report(RoomAgain() if reason is None else Crowded(reason))
        return reason

    def close(self) -> None:
        """Accept nothing more, and end all handshakes."""
        for task in list(self._tasks):
            task.cancel()
        if self._listening.fileno() >= 0:
            # Otherwise asyncio would accept a waiting client for a task that has ended.
            self._loop.remove_reader(self._listening)
        self._listening.close()

    async def _accept(self) -> None:
        accepts = 0
        while True:
            await self._make_room()
            try:
                # No variable may keep the accepted socket: a closed connection leaves no memory.
                if self._listening.family == socket.AF_UNIX:
                    self._begin(*await handed.take(self._listening))
                else:
                    self._begin(*await self._loop.sock_accept(self._listening))
            except OSError:
                # The client has left, or the system is out of descriptors: both pass.
                await asyncio.sleep(0.05)
                continue
            accepts += 1
            if accepts % ACCEPTS_A_TURN == 0:
                await asyncio.sleep(0)  # `sock_accept` does not yield while clients wait

    def _begin(self, accepted: socket.socket, where: tuple[Any, ...]) -> None:
        attempt = _Attempt(Address(where[0], where[1]))
        self._admission.arrive(attempt, where[0], self._loop.time())
        self._some.set()
        attempt.task = self._loop.create_task(self._shake_hands(attempt, accepted))
        self._tasks.add(attempt.task)
        attempt.task.add_done_callback(self._tasks.discard)

    async def _make_room(self) -> None:
        """Wait until a connection can be accepted; evict stale handshakes for it."""
        while (tight := free_descriptors() < 1) or self._admission.full:
            stale = self._admission.evict(self._loop.time())
            if stale is None:
                await asyncio.sleep(GRACE_S / 2)
                continue
            self._end(stale, EVICTED)
            if tight:
                await asyncio.sleep(0.001)  # its socket is closed in one of the loop's next turns

    async def _watch(self) -> None:
        """End the handshakes whose next step is overdue."""
        while True:
            await self._some.wait()
            await asyncio.sleep(min(WATCH_S, self._limits.handshake_s / 4))
            self._expire()

    def _expire(self) -> None:
        pressed = free_descriptors() < KEPT_FOR_HANDSHAKES
        patience_s = self._admission.patience_s(pressed=pressed)
        for late in self._admission.expire(self._loop.time(), pressed=pressed):
            self._end(late, f"no step of the handshake within {patience_s:g} s")
        left = len(self._admission)
        self._peak = max(self._peak, left)
        if self._peak >= MANY and left <= self._peak // 2:
            self._peak = left
            return_memory()
        if not left:
            self._some.clear()

    async def _shake_hands(self, attempt: _Attempt, accepted: socket.socket) -> None:
        """Wait for the first byte, then do TLS and the handshake."""
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        failures: list[ssl.SSLError] = []
        FAILURES.set(failures)
        try:
            if self._tls() is not None:  # the client speaks first; TLS costs memory
                try:
                    attempt.silent = True
                    await self._first_byte(accepted)
                    attempt.silent = False
                    if self._route is not None and await self._handed_on(accepted, self._route):
                        return
                    self._admission.step(attempt, self._loop.time())
                    await self._room_for_tls(attempt)
                except BaseException:
                    accepted.close()
                    raise
            attempt.connection = await self._open(accepted)
            self._securing.leave(attempt)
            identity = common_name(attempt.connection.certificate)
            self._admission.step(attempt, self._loop.time(), identity)
            await attempt.connection.settled.wait()
        except OSError as error:
            reason = _reason(failures[0] if failures else error, attempt.address)
            self._report(ConnectionRejected(str(attempt.address), None, reason))
            for one in (error, *failures):  # a traceback holds the connection and its bytes
                one.with_traceback(None)
        finally:
            failures.clear()
            self._securing.leave(attempt)
            self._admission.leave(attempt)
            attempt.connection = attempt.task = None  # nothing may outlive the connection

    async def _open(self, accepted: socket.socket) -> Connection:
        """Return the connection of an accepted socket, after TLS if this listener has it."""
        made = [self._make_connection()]
        try:
            context = self._tls()
            if context is None:
                await self._loop.connect_accepted_socket(lambda: made[0], accepted)
            else:
                await secure(accepted, made[0], context, self._limits.handshake_s)
            return made[0]
        finally:
            made.clear()  # a traceback that holds this frame must not hold the connection

    async def _room_for_tls(self, attempt: _Attempt) -> None:
        """Wait until this handshake can do TLS; evict another one for it."""
        address, now = attempt.address.host, self._loop.time
        async with contextlib.AsyncExitStack() as waiting:
            if not self._securing.goes_first(address):
                await waiting.enter_async_context(self._turn)
            while self._securing.full:
                stale = self._securing.evict(now(), address)
                if stale is not None:
                    self._end(stale, EVICTED)
                else:
                    await asyncio.sleep(GRACE_S / 8)
        self._securing.arrive(attempt, address, now())

    async def _handed_on(self, accepted: socket.socket, route: Route) -> bool:
        """Return whether another process has the connection now.

        Raises:
            ConnectionAbortedError: its first bytes are not those of TLS, or that process is gone.
        """
        asked: tuple[str, ...] | None = None
        while asked is None:
            with contextlib.suppress(BlockingIOError):
                received = accepted.recv(client_hello.MOST_BYTES, socket.MSG_PEEK)
                if not received:
                    raise ConnectionAbortedError("the client has left")
                try:
                    asked = client_hello.protocols(received)
                except client_hello.Malformed as error:
                    raise ConnectionAbortedError(str(error)) from None
            if asked is None:
                await asyncio.sleep(PEEK_S)  # the deadline of this step ends it
        for name in asked:
            giving = route(name)
            if giving is not None:
                if not handed.give(giving, accepted):
                    raise ConnectionAbortedError(f"nobody serves {name} now")
                return True
        return False

    async def _first_byte(self, accepted: socket.socket) -> None:
        """Wait until there are bytes to read, or the peer has closed."""
        readable = asyncio.Event()
        self._loop.add_reader(accepted, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(accepted)

    def _end(self, attempt: _Attempt, reason: str) -> None:
        if attempt.connection is not None:  # its session reports it
            if not attempt.connection.settled.is_set():
                attempt.connection.refuse(ProtocolError(reason))
                attempt.connection.abort()
        elif attempt.task is not None and attempt.task.cancel():
            if attempt.silent:  # probably a client without TLS, which waits for the server
                reason += f"; this server requires TLS, the client started none: {BOTH_OR_NEITHER}"
            self._report(ConnectionRejected(str(attempt.address), None, reason))


def _reason(failure: OSError, address: Address) -> str:
    """Return why a handshake failed."""
    if isinstance(failure, ssl.SSLError):
        return explain(failure, str(address))
    return f"no TLS handshake ({str(failure) or type(failure).__name__})"
