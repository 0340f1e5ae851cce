"""Accepts connections and brings each through its handshake, or lets it make way for others."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from layers.network.errors import BOTH_OR_NEITHER, ProtocolError
from layers.network.protocol.admission import GRACE_S, Admission
from layers.network.protocol.limits import Limits
from layers.network.transport.address import Address
from layers.network.transport.connection import Connection, peer_certificate
from layers.network.transport.events import ConnectionRejected, Crowded, RoomAgain
from layers.network.transport.server_socket import (
    KEPT_FOR_HANDSHAKES,
    file_limit,
    free_descriptors,
)
from layers.network.trust.tls import FAILURES, common_name, explain

WATCH_S = 0.25  # how often overdue handshakes are looked for
ACCEPTS_A_TURN = 32


@dataclass(eq=False)
class _Meeting:
    """One connection on its way through the handshake."""

    address: Address
    task: asyncio.Task[None] | None = None
    connection: Connection | None = None  # since TLS is done
    silent: bool = False  # TLS is to begin, and nothing was received


class Acceptor:
    """Accepts from a listening socket, in the loop's thread, until `close`.

    Args:
        listening: the socket.
        limits: how many handshakes there may be, and how long they may take.
        tls: returns what makes a new connection secure; it returns None for plain TCP.
        make_connection: returns asyncio's protocol for an accepted connection.
        report: takes the rejections of connections that have no session yet, and whether there is
            room for clients.
    """

    def __init__(
        self,
        listening: socket.socket,
        limits: Limits,
        tls: Callable[[], ssl.SSLContext | None],
        make_connection: Callable[[], Connection],
        report: Callable[[ConnectionRejected | Crowded | RoomAgain], None],
    ) -> None:
        self._listening = listening
        self._limits = limits
        self._tls = tls
        self._make_connection = make_connection
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._admission: Admission[_Meeting] = Admission(limits)
        # Counted once: handshakes that are silent make way, so what they hold is not lost.
        self._room = max(free_descriptors() - KEPT_FOR_HANDSHAKES, 1)
        self._crowded = False
        self._some = asyncio.Event()  # set while there are handshakes
        self._tasks = {self._loop.create_task(work) for work in (self._accept(), self._watch())}

    def crowd(self, clients: int) -> str | None:
        """Return why no client fits beside so many others, or None; report when that changes."""
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
            # A client may have knocked already: asyncio would accept it for a task that has ended.
            self._loop.remove_reader(self._listening)
        self._listening.close()

    async def _accept(self) -> None:
        accepts = 0
        while True:
            await self._make_room()
            try:
                # Nothing here keeps what was accepted: a connection that is over leaves no memory.
                self._begin(*await self._loop.sock_accept(self._listening))
            except OSError:
                # The client has gone, or the whole system is out of descriptors: both pass.
                await asyncio.sleep(0.05)
                continue
            accepts += 1
            if accepts % ACCEPTS_A_TURN == 0:
                await asyncio.sleep(0)  # `sock_accept` does not wait while others knock

    def _begin(self, accepted: socket.socket, where: tuple[Any, ...]) -> None:
        meeting = _Meeting(Address(where[0], where[1]))
        self._admission.arrive(meeting, where[0], self._loop.time())
        self._some.set()
        meeting.task = self._loop.create_task(self._meet(meeting, accepted))
        self._tasks.add(meeting.task)
        meeting.task.add_done_callback(self._tasks.discard)

    async def _make_room(self) -> None:
        """Wait until a connection can be accepted; handshakes that are silent make way for it."""
        while (tight := free_descriptors() < 1) or self._admission.full:
            silent = self._admission.make_way(self._loop.time())
            if silent is not None:
                self._end(silent, "the handshake was silent, and made way for others")
            if silent is None:
                await asyncio.sleep(GRACE_S / 2)
            elif tight:
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
        if not len(self._admission):
            self._some.clear()

    async def _meet(self, meeting: _Meeting, accepted: socket.socket) -> None:
        """Wait for the first byte, then do TLS and the handshake."""
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        failures: list[ssl.SSLError] = []
        FAILURES.set(failures)
        try:
            if self._tls() is not None:  # then the client speaks first; TLS takes memory
                meeting.silent = True
                await self._first_byte(accepted)
                meeting.silent = False
                self._admission.step(meeting, self._loop.time())
            context = self._tls()
            transport, meeting.connection = await self._loop.connect_accepted_socket(
                self._make_connection,
                accepted,
                ssl=context,
                ssl_handshake_timeout=self._limits.handshake_s if context else None,
            )
            identity = common_name(peer_certificate(transport))
            self._admission.step(meeting, self._loop.time(), identity)
            await meeting.connection.settled.wait()
        except OSError as error:
            reason = _reason(failures[0] if failures else error, meeting.address)
            self._report(ConnectionRejected(str(meeting.address), None, reason))
            for one in (error, *failures):  # a traceback holds the connection, and what it received
                one.with_traceback(None)
        finally:
            failures.clear()
            self._admission.leave(meeting)
            meeting.connection = meeting.task = None  # nothing may outlive its connection

    async def _first_byte(self, accepted: socket.socket) -> None:
        """Wait until there is something to read, or the peer has closed."""
        readable = asyncio.Event()
        self._loop.add_reader(accepted, readable.set)
        try:
            await readable.wait()
        except BaseException:
            self._loop.remove_reader(accepted)
            accepted.close()
            raise
        self._loop.remove_reader(accepted)

    def _end(self, meeting: _Meeting, reason: str) -> None:
        if meeting.connection is not None:  # its session is told, and reports it
            if not meeting.connection.settled.is_set():
                meeting.connection.refuse(ProtocolError(reason))
                meeting.connection.abort()
        elif meeting.task is not None and meeting.task.cancel():
            if meeting.silent:  # as a client without TLS is, which waits for the server
                reason += f"; this server has TLS, and the client began none: {BOTH_OR_NEITHER}"
            self._report(ConnectionRejected(str(meeting.address), None, reason))


def _reason(failure: OSError, address: Address) -> str:
    """Return why there is no connection with a client."""
    if isinstance(failure, ssl.SSLError):
        return explain(failure, str(address))
    return f"no TLS handshake ({failure})"
