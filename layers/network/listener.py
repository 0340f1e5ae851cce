"""The server's end: accepts clients and keeps a session with each, in one thread."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Set
from pathlib import Path

from layers.network.acceptor import Acceptor, Route
from layers.network.address import Address, listen, raise_file_limit
from layers.network.codec import MessageCodec
from layers.network.connection import Connection, peer_certificate
from layers.network.endpoint import Endpoint
from layers.network.errors import (
    AuthenticationFailed,
    IdentityContested,
    IdentityTaken,
    LimitExceeded,
    NetworkError,
    NotConnected,
)
from layers.network.event_queue import NOBODY
from layers.network.events import (
    Arrived,
    CertificatesRenewed,
    ConnectionRejected,
    Contested,
    Ended,
    Event,
    Joined,
    Left,
    Opened,
    Received,
    SessionEvent,
    Terms,
    Verified,
)
from layers.network.expiry import Expiry
from layers.network.files import Measured
from layers.network.handshake import ServerSession
from layers.network.inbox import FEATURE
from layers.network.limits import HEARTBEAT_S, Limits
from layers.network.tls import ServerTLS, Trust, common_name, role
from layers.network.transfers import PeerFiles

HEARTBEATS_TO_TIMEOUT = 4
HEARTBEATS_OF_LIFE = 2  # a connection that was heard within these is alive
TAKEOVERS, TAKEOVERS_S = 5, 3600.0  # a live connection is replaced so often in this time
MOST_CONNECTIONS = 16  # of a certificate whose role may have several
CERTIFICATE_CHECK_S = 0.25  # between two checks of the certificate files


class Listener(Endpoint):
    """Listens at HOST:PORT (port 0: a free one) and reports events.

    All methods may be called from any thread; only `start`, `next_event` and `close` wait.

    Args:
        address: where to listen; without `tls` only on loopback, unless `insecure`.
        codec: of the messages.
        tls: certificate files. They may change at any time: new connections use the new content,
            and a client whose certificate appears in the revocation list is disconnected.
        token: a secret shared with the clients; it is never sent.
        insecure: allow unencrypted connections from other machines.
        heartbeat_s: how often each end sends a sign of life.
        limits: of this end.
        files: files of a client are received into this folder/CLIENT; None: they are refused.
        successors: whether the newer connection of a live client waits for `take_over`, under a
            name of its own; if not, it replaces the older one at once.
        taking: takes the connections that another process accepts at `address` (`handed.pair`);
            None: this process listens there.
        route: see `Acceptor`.
        several: the roles in certificates of which each may have `MOST_CONNECTIONS` connections,
            under names of their own.

    With mutual TLS or a token, a reconnecting client replaces its older connection, but a live one
    only `TAKEOVERS` times in a row within `TAKEOVERS_S` (event `Contested`); otherwise the newer
    one is refused while the older is alive.

    Raises:
        AddressError: an address that cannot be read or used safely.
    """

    def __init__(
        self,
        address: str,
        codec: MessageCodec,
        *,
        tls: ServerTLS | None = None,
        token: bytes | None = None,
        insecure: bool = False,
        heartbeat_s: float = 5.0,
        limits: Limits | None = None,
        files: Path | None = None,
        successors: bool = False,
        taking: socket.socket | None = None,
        route: Route | None = None,
        several: Set[str] = frozenset(),
    ) -> None:
        super().__init__(codec, limits, token, files)
        self._several = several
        self._taking, self._route = taking, route
        self._successors = successors
        self._address = Address.parse(address)
        self._address.check_safe(tls=tls is not None, insecure=insecure)
        least, most = HEARTBEAT_S
        if not least <= heartbeat_s <= most:
            raise NetworkError(f"heartbeat_s must be {least:g} to {most:g}, not {heartbeat_s!r}")
        self._tls = tls
        self._trust: Trust | None = None
        self._heartbeat_s = heartbeat_s
        self._acceptor: Acceptor
        self._watching: asyncio.Task[None] | None = None
        self._peers: dict[str, Connection] = {}
        self._measured = Measured()

    # Called by the user, in any thread

    @property
    def address(self) -> str:
        """Where it listens, with the real port after `start`."""
        return str(self._address)

    @property
    def peers(self) -> frozenset[str]:
        """The connected clients."""
        return frozenset(self._peers.copy())

    @property
    def ends(self) -> tuple[Expiry, ...]:
        """When its certificates end, and the next revocation list is due."""
        return () if self._trust is None else self._trust.ends

    def start(self) -> None:
        """Listen, and accept clients in the background.

        Raises:
            AddressError: the port is in use, or the address is not this machine's.
            CertificateError: a certificate file is unusable.
        """
        self._trust = Trust(self._tls) if self._tls else None
        listening = self._taking
        if listening is None:
            listening = listen(self._address)
            self._address = Address(self._address.host, listening.getsockname()[1])
        raise_file_limit()
        self._begin("fedmx-listener").run(self._open(listening))

    def send(
        self, peer: str, message: object, address: str | None = None, replace: bool = False
    ) -> int:
        """Queue a message, or a `Payload` of the codec; return its bytes on the wire.

        Arrays are not copied: they must not change until the `Sent` event. The queue is dropped
        when the client leaves.

        Args:
            peer: the client.
            message: the message.
            address: send only on the connection from there (`Joined.address`).
            replace: drop queued, unsent messages of the same type (event `Replaced`), so that the
                queue of a client that does not read stays short.

        Raises:
            NotConnected: there is no such client, or it has another connection.
            MessageTypeError: the message cannot be encoded.
            LimitExceeded: it is larger than the client allows.
        """
        connection = self._peers.get(peer)
        if connection is None or address not in (None, connection.address):
            raise NotConnected(f"{peer!r} is not connected to {self.address}")
        return self._send(connection, message, replace)

    def send_file(self, peer: str, path: Path, name: str | None = None) -> None:
        """Send a file; it is resumed on the client's next connection, until the `FileSent` event.

        The file is first read for its SHA-256, once for all clients while it does not change.

        Raises:
            NotConnected: there is no such client.
            TransferError: the file cannot be read, or its name is not allowed.
        """
        if peer not in self._peers:
            raise NotConnected(f"{peer!r} is not connected to {self.address}")
        self._soon(self._transfers.queue, peer, self._measured.measure(Path(path), name))

    def disconnect(self, peer: str, reason: str, final: bool = False) -> None:
        """Say goodbye to a client, and drop its queue; `final`: it must not reconnect."""
        connection = self._peers.get(peer)
        if connection is not None:
            self._soon(connection.leave, reason, final)

    def take_over(self, peer: str) -> None:
        """Let a successor replace the connection of its client: `Left` and `Joined` follow."""
        self._soon(self._take_over, peer)

    def renew_certificates(self) -> None:
        """Check the files of `tls` now, not only at the next interval."""
        if self._trust is not None and self._thread is not None:
            self._soon(self._renew, self._trust, False)

    def close(
        self, drain_s: float = 5.0, reason: str = "the server closes", final: bool = False
    ) -> None:
        """Send the queue, for at most `drain_s`, say goodbye, and release everything.

        `final`: the clients must not reconnect.
        """
        if self._thread is not None:
            self._thread.run(self._end(drain_s, reason, final))
        self._stop()

    # In the loop's thread

    async def _open(self, listening: socket.socket) -> None:
        self._acceptor = Acceptor(
            listening,
            self._limits,
            lambda: None if self._trust is None else self._trust.context,
            lambda: self._connection(self._session),
            self._events.put,
            self._route,
        )
        if self._trust is not None:
            self._watching = self._loop.create_task(self._watch(self._trust))

    async def _watch(self, trust: Trust) -> None:
        while True:
            await asyncio.sleep(CERTIFICATE_CHECK_S)
            self._renew(trust, True)

    def _renew(self, trust: Trust, patient: bool) -> None:
        """Use changed certificate files, and end the sessions of revoked certificates."""
        events = trust.check(patient)
        for event in events:
            self._events.put(event)
        if any(isinstance(event, CertificatesRenewed) for event in events):
            for connection in list(self._connections):
                if trust.is_revoked(connection.certificate):
                    self._revoke(connection)

    def _revoke(self, connection: Connection) -> None:
        """End a session whose certificate was revoked; drop its messages in the event queue."""
        peer = self._peer_of(connection)
        if peer is not None and self._is_current(connection):
            self._events.drop(peer)
        connection.refuse(_revoked(), blamed=True)

    def _session(self, transport: asyncio.Transport) -> ServerSession:
        certified = None
        if self._tls is not None and self._tls.mutual:
            # A certificate without exactly one common name proves no identity.
            certified = common_name(peer_certificate(transport)) or ""
        return ServerSession(
            self._codec,
            self._loop.time(),
            limits=self._limits,
            features=frozenset({FEATURE}),
            token=self._token,
            certified=certified,
            heartbeat_s=self._heartbeat_s,
            heartbeat_timeout_s=self._heartbeat_s * HEARTBEATS_TO_TIMEOUT,
        )

    async def _end(self, drain_s: float, reason: str, final: bool) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._acceptor.close()
        await self._drain(drain_s, reason, final)

    def _take(self, connection: Connection, event: SessionEvent) -> None:
        match event:
            case Verified(terms):
                # Kept, because a closed connection shows no certificate.
                connection.is_one_of_several = role(connection.certificate) in self._several
                older = self._peers.get(self._name_of(connection, terms))
                if older is None or not terms.authenticated:
                    self._decide(connection, terms)
                else:
                    # Bytes that have arrived on the older connection count, even if unread.
                    older.catch_up(lambda: self._decide(connection, terms))
            case Opened(terms):
                self._join(connection, terms)
            case Arrived(message, wire_bytes, reserved, values, number):
                if self._is_current(connection):
                    peer = self._peer_of(connection) or ""
                    received = Received(peer, message, wire_bytes, number)
                    self._events.put(received, peer, reserved, values)
                else:
                    self._memory.budget.release(reserved)
            case Ended(reason=reason):
                peer_known = self._peer_of(connection)
                if event.blamed or peer_known is None:
                    claimed = connection.session.claimed
                    told = not event.blamed and not connection.session.peer_left
                    told = told and event.code in (LimitExceeded.code, IdentityContested.code)
                    # A peer that only claims a name must not use that name's turns.
                    self._events.put(
                        ConnectionRejected(
                            connection.address, peer_known or claimed, reason, event.final, told
                        ),
                        peer_known or NOBODY,
                    )
                self._forget(connection, reason)

    def _decide(self, connection: Connection, terms: Terms) -> None:
        """Admit a verified client, unless its identity is taken or there are too many clients."""
        older = self._peers.get(self._name_of(connection, terms))
        session = connection.session
        assert isinstance(session, ServerSession)
        if session.ended:  # the client has left meanwhile
            return
        if self._trust is not None and self._trust.is_revoked(connection.certificate):
            connection.refuse(_revoked())
        elif older is not None and not terms.authenticated:
            error: NetworkError = IdentityTaken(
                f"{terms.identity!r} is connected already, from {older.address}: choose another "
                "identity, or wait until that connection has ended"
            )
            connection.refuse(error)
        elif older is None and (crowd := self._acceptor.crowd(len(self._peers))):
            connection.refuse(LimitExceeded(crowd))
        elif connection.is_one_of_several and self._count(terms.identity) >= MOST_CONNECTIONS:
            reason = f"{terms.identity!r} has {MOST_CONNECTIONS} connections; end one of them first"
            connection.refuse(LimitExceeded(reason))
        elif older is not None and (contest := self._contest(connection, older, terms.identity)):
            connection.refuse(contest)
        else:
            if older is not None and self._successors and self._is_alive(older):
                for other in [*self._peers.values()]:
                    if other.successor_of == terms.identity:
                        _supersede(other, connection)
                connection.successor_of = terms.identity
            elif older is not None:
                _supersede(older, connection)
            connection.handle(session.admit())

    def _join(self, connection: Connection, terms: Terms) -> None:
        peer = self._peer_of(connection) or ""
        self._peers[peer] = connection
        self._report(
            Joined(
                peer,
                connection.address,
                terms.authenticated,
                terms.named,
                connection.successor_of,
                role(connection.certificate),
                terms.identity,
            )
        )
        folder = self._files / terms.identity if self._files else None
        self._transfers.opened(PeerFiles(connection, peer, folder, any_file=True))

    def _take_over(self, peer: str) -> None:
        newer = self._peers.get(peer)
        if newer is None or newer.successor_of is None:
            return  # it has left meanwhile, or it has a name of its own by now
        older = self._peers.get(newer.successor_of)
        if older is None:
            self._rename(newer)
        else:
            # Bytes that have arrived on the older connection count, even if unread.
            older.catch_up(lambda: self._rename(newer))

    def _rename(self, connection: Connection) -> None:
        """Give a successor the name of its client."""
        identity, terms = connection.successor_of, connection.session.terms
        if identity is None or terms is None or not self._is_current(connection):
            return
        older = self._peers.get(identity)
        if older is not None:
            _supersede(older, connection)
        del self._peers[self._peer_of(connection) or ""]
        connection.successor_of = None
        self._join(connection, terms)
        self._expect_partials(connection)

    def _contest(
        self, newer: Connection, older: Connection, identity: str
    ) -> IdentityContested | None:
        """Return why a newer connection may not replace a live one, if so; report it once."""
        if not self._is_alive(older):
            return None
        now = self._loop.time()
        recent = [one for one in older.takeovers if now - one < TAKEOVERS_S]
        if len(recent) < TAKEOVERS:
            newer.takeovers = [*recent, now]
            return None
        reason = (
            f"{identity!r} is connected from {older.address}, and connections from elsewhere have "
            f"replaced it {len(recent)} times; {newer.address} uses the same certificate or name: "
            "stop one of the two processes, or revoke the certificate"
        )
        if not older.contested:
            older.contested = True
            self._report(Contested(identity, reason))
        return IdentityContested(reason)

    def _is_alive(self, connection: Connection) -> bool:
        now = self._loop.time()
        return connection.session.heard_within(HEARTBEATS_OF_LIFE * self._heartbeat_s, now)

    def _peer_of(self, connection: Connection) -> str | None:
        terms = connection.session.terms
        if terms is None:
            return None
        return self._name_of(connection, terms)

    def _name_of(self, connection: Connection, terms: Terms) -> str:
        if connection.successor_of is not None or connection.is_one_of_several:
            return f"{terms.identity} at {connection.address}"
        return terms.identity

    def _count(self, identity: str) -> int:
        all_terms = (connection.session.terms for connection in self._peers.values())
        return sum(terms is not None and terms.identity == identity for terms in all_terms)

    def _connection_of(self, peer: str) -> Connection | None:
        return self._peers.get(peer)

    def _report(self, event: Event) -> None:
        self._events.put(event, getattr(event, "peer", None) or NOBODY)

    def _is_current(self, connection: Connection) -> bool:
        return self._peers.get(self._peer_of(connection) or "") is connection

    def _forget(self, connection: Connection, reason: str) -> None:
        peer = self._peer_of(connection)
        if peer is not None and self._is_current(connection):
            del self._peers[peer]
            connection.successor_of = None
            if connection.is_one_of_several:
                self._transfers.drop(peer)
            self._report(Left(peer, reason))

    def _closed(self, connection: Connection) -> None:
        self._forget(connection, "this end closed the connection")


def _supersede(older: Connection, newer: Connection) -> None:
    """End a connection in favour of a newer one."""
    reason = (
        f"superseded by a newer connection, from {newer.address}: stop one of the two processes, "
        "or give each an identity of its own"
    )
    older.leave(reason, True, "superseded")


def _revoked() -> AuthenticationFailed:
    return AuthenticationFailed("the client's certificate was revoked: ask for a new one")
