"""The client's end: one session with a server, opened again whenever it is lost."""

from __future__ import annotations

import asyncio
import math
import os
import random
import socket
import ssl
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layers.network.address import NO_NAME, Address
from layers.network.codec import MessageCodec
from layers.network.connection import Connection
from layers.network.endpoint import Endpoint
from layers.network.errors import (
    BOTH_OR_NEITHER,
    AddressError,
    CertificateError,
    NetworkError,
    NotConnected,
)
from layers.network.events import (
    Arrived,
    Connected,
    Disconnected,
    Ended,
    Event,
    GaveUp,
    Opened,
    Received,
    Retrying,
    SessionEvent,
)
from layers.network.files import Outgoing
from layers.network.handshake import ClientSession
from layers.network.inbox import FEATURE
from layers.network.limits import CLIENT_PATIENCE, Limits, check_identity
from layers.network.proxy import Proxy
from layers.network.tls import ClientTLS, Trust, explain, is_final
from layers.network.transfers import ExpectedFile, PeerFiles

LEAST_ATTEMPT_S = 1.0  # that an attempt may take, even if `give_up_s` is over
CERTIFICATE_CHECK_S = 3600.0  # between two checks of the certificate files in a session


@dataclass(frozen=True)
class Backoff:
    """Delays that grow from `first_s` by `factor` up to `longest_s`, each shortened at random.

    A delay d becomes uniform in [(1 - jitter) d, d], so that clients do not reconnect all at once;
    give each its own `seed`.
    """

    first_s: float = 0.2
    factor: float = 2.0
    longest_s: float = 10.0
    jitter: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 < self.first_s <= self.longest_s and self.factor >= 1 and 0 <= self.jitter <= 1):
            raise NetworkError(
                f"backoff {self}: first_s must be in (0, longest_s], factor at least 1, jitter in "
                "[0, 1]"
            )

    def delays_s(self) -> Iterator[float]:
        """Yield the delays of a series of attempts, endlessly."""
        draw = random.Random(self.seed)
        delay_s = self.first_s
        while True:
            yield delay_s * (1 - self.jitter * draw.random())
            delay_s = min(delay_s * self.factor, self.longest_s)


class Connector(Endpoint):
    """Connects to HOST:PORT as `identity`, and again with `backoff` when the connection is lost.

    All methods may be called from any thread; only `next_event` and `close` wait. It gives up when
    the server tells it to, when the certificates do not fit, or when it has not been connected for
    `give_up_s` (None: never). It goes through the proxy of the environment (HTTPS_PROXY, NO_PROXY),
    except on this machine.

    Args:
        address: of the server; without `tls` only loopback, unless `insecure`.
        identity: the name of this client.
        codec: of the messages.
        tls: certificate files; each attempt uses their current content.
        token: a secret shared with the server; it is never sent.
        insecure: allow an unencrypted connection to another machine.
        backoff: the delays between attempts.
        limits: of this end.
        give_up_s: see above.
        files: expected files (`expect`) are received into this folder; None: they are refused.
        features: further features to name in the handshake, which the server's owner can see.

    Raises:
        AddressError: an address that cannot be read or used safely, or a proxy's.
        AuthenticationFailed: an identity that no server would accept.
    """

    def __init__(
        self,
        address: str,
        identity: str,
        codec: MessageCodec,
        *,
        tls: ClientTLS | None = None,
        token: bytes | None = None,
        insecure: bool = False,
        backoff: Backoff | None = None,
        limits: Limits | None = None,
        give_up_s: float | None = None,
        files: Path | None = None,
        features: Iterable[str] = (),
    ) -> None:
        super().__init__(codec, limits, token, files)
        self._address = Address.parse(address)
        self._address.check_safe(tls=tls is not None, insecure=insecure)
        self._proxy = Proxy.to(self._address)
        check_identity(identity)
        self._identity = identity
        self._tls = tls
        self._trust: Trust | None = None
        self._backoff = backoff or Backoff()
        self._give_up_s = give_up_s
        self._features = frozenset({FEATURE, *features})
        self._open: Connection | None = None
        self._was_open = False  # whether there ever was an open session
        self._ended: Ended | None = None
        self._seeking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    # Called by the user, in any thread

    @property
    def address(self) -> str:
        """The server's address."""
        return str(self._address)

    def start(self) -> None:
        """Connect in the background; a `Connected` event follows.

        Raises:
            CertificateError: a certificate file is unusable.
        """
        self._trust = Trust(self._tls) if self._tls else None
        self._begin(f"fedmx-connector-{self._identity}").run(self._seek_in_background())

    def send(self, message: object) -> int:
        """Queue a message, or a `Payload` of the codec; return its bytes on the wire.

        Arrays are not copied: they must not change until the `Sent` event. The queue is dropped
        when the connection is lost.

        Raises:
            NotConnected: there is no open session; wait for `Connected`.
            MessageTypeError: the message cannot be encoded.
            LimitExceeded: it is larger than the server allows.
        """
        connection = self._open
        if connection is None:
            raise NotConnected(f"{self._identity} is not connected to {self.address} now")
        return self._send(connection, message)

    def expect(self, files: Iterable[ExpectedFile]) -> None:
        """Declare which files the server may send; offers wait until then.

        Any other file breaks a rule: the connection ends, and is not opened again. A second call
        replaces the files of the first.
        """
        self._soon(self._transfers.expect, tuple(files))

    def send_file(self, path: Path, name: str | None = None) -> None:
        """Send a file; it is resumed on the next connection, until the `FileSent` event.

        The file is read once, for its SHA-256, before this returns.

        Raises:
            TransferError: the file cannot be read, or its name is not allowed.
        """
        self._soon(self._transfers.queue, self.address, Outgoing.measure(Path(path), name))

    def close(self, drain_s: float = 5.0) -> None:
        """Send the queue, for at most `drain_s`, say goodbye, and release everything."""
        if self._thread is not None:
            self._thread.run(self._end(drain_s))
        self._stop()

    # In the loop's thread

    async def _seek_in_background(self) -> None:
        self._seeking = self._loop.create_task(self._seek())
        self._seeking.add_done_callback(self._sought)
        if self._trust is not None:
            self._watching = self._loop.create_task(self._watch(self._trust))

    async def _watch(self, trust: Trust) -> None:
        """Give the warnings of long sessions; each attempt to connect gives them, too."""
        while True:
            await asyncio.sleep(CERTIFICATE_CHECK_S)
            self._renewed(trust)

    async def _end(self, drain_s: float) -> None:
        for task in (self._seeking, self._watching):
            if task is not None:
                task.cancel()
        await self._drain(drain_s, "the client closes", False)

    async def _seek(self) -> None:
        """Connect, wait until the connection ends, and repeat."""
        delays_s = self._backoff.delays_s()
        connected_at = self._loop.time()
        limit_s = math.inf if self._give_up_s is None else self._give_up_s
        while True:
            until = max(connected_at + limit_s, self._loop.time() + LEAST_ATTEMPT_S)
            ended = await self._attempt(until)
            was_open, self._open = self._open is not None, None
            if was_open:
                delays_s = self._backoff.delays_s()
                connected_at = self._loop.time()
                self._report(Disconnected(ended.reason))
            if ended.final:
                return self._give_up(GaveUp(ended.reason, True))
            delay_s = next(delays_s)
            if self._loop.time() + delay_s > connected_at + limit_s:
                return self._give_up(GaveUp(f"{self.address}: {ended.reason}", False))
            if not was_open:
                self._report(Retrying(f"{self.address}: {ended.reason}", delay_s))
            await asyncio.sleep(delay_s)

    def _sought(self, seeking: asyncio.Task[None]) -> None:
        """Give up if `_seek` failed: no other event would follow."""
        error = None if seeking.cancelled() else seeking.exception()
        if error is not None:
            what = "a client cannot go on to connect"
            self._loop.call_exception_handler(
                {"message": what, "exception": error, "task": seeking}
            )
            self._give_up(GaveUp(f"{self.address}: {type(error).__name__}: {error}", True))

    def _give_up(self, event: GaveUp) -> None:
        """Report the last event; a caller that waits for the next one gets None."""
        self._report(event)
        self._events.close()

    async def _attempt(self, until: float) -> Ended:
        """Connect once and return how it ended; without a session at `until` it ends then."""
        self._ended = None
        left_s = until - self._loop.time()
        context = None if self._trust is None else self._renewed(self._trust)
        patience_s = min(CLIENT_PATIENCE * self._limits.handshake_s, left_s)
        by = "" if self._proxy is None else f" by the proxy {self._proxy}"
        try:
            connecting = self._connect(context, patience_s)
            connection = await asyncio.wait_for(connecting, min(2 * patience_s, left_s))
        except ssl.SSLError as error:
            # A client that was connected knows the right server: another answer may be anybody's.
            final = is_final(error) and not self._was_open
            return Ended(explain(error, f"{self.address}{by}"), CertificateError.code, final)
        except asyncio.TimeoutError:
            return Ended(f"no answer{by}", "lost", final=False)
        except socket.gaierror as error:
            return Ended(f"unknown host ({error.strerror})", "lost", final=False)
        except UnicodeError:
            unknown = f"{self.address}: unknown host ({NO_NAME}): check the name"
            return Ended(unknown, AddressError.code, final=True)
        except OSError as error:
            return Ended(
                os.strerror(error.errno) if error.errno else str(error), "lost", final=False
            )
        late = None if until == math.inf else self._loop.call_at(until, self._too_late, connection)
        # Shielded: others still wait for the connection's end when this task is cancelled.
        await asyncio.shield(connection.closed)
        if late is not None:
            late.cancel()
        ended = self._ended or Ended("this end closed the connection", "goodbye", final=False)
        if self._trust is None and not connection.session.meter.read().received_bytes:
            hint = "a server with TLS sends nothing to a client without"
            return replace(ended, reason=f"{ended.reason}; {hint}: {BOTH_OR_NEITHER}")
        return ended

    async def _connect(self, context: ssl.SSLContext | None, patience_s: float) -> Connection:
        """Return a new connection, whose TLS handshake takes at most `patience_s`."""
        host = self._address.host
        if self._proxy is None:
            where: dict[str, Any] = {"host": host, "port": self._address.port}
        else:
            where = {"sock": await self._proxy.connect(self._address)}
        _, connection = await self._loop.create_connection(
            lambda: self._connection(self._session),
            **where,
            ssl=context,
            server_hostname=host if context else None,
            ssl_handshake_timeout=patience_s if context else None,
        )
        return connection

    def _too_late(self, connection: Connection) -> None:
        """End a connection whose handshake has not ended."""
        if self._open is None:
            connection.handle(connection.session.lost("no answer"))
            connection.abort()

    def _renewed(self, trust: Trust) -> ssl.SSLContext:
        """Return the TLS context from the current content of the files."""
        for event in trust.check(patient=False):
            self._report(event)
        return trust.context

    def _session(self, transport: asyncio.Transport) -> ClientSession:
        return ClientSession(
            self._identity,
            self._codec,
            self._loop.time(),
            limits=self._limits,
            features=self._features,
            token=self._token,
            certified=self._trust is not None,
        )

    def _take(self, connection: Connection, event: SessionEvent) -> None:
        match event:
            case Opened(terms):
                self._open, self._was_open = connection, True
                self._report(Connected(self.address, terms.authenticated))
                self._transfers.opened(PeerFiles(connection, self.address, self._files))
            case Arrived(message, wire_bytes, reserved, values, number):
                received = Received(self.address, message, wire_bytes, number)
                self._events.put(received, self.address, reserved, values)
            case Ended():
                self._ended = event

    def _peer_of(self, connection: Connection) -> str | None:
        return self.address

    def _connection_of(self, peer: str) -> Connection | None:
        return self._open

    def _report(self, event: Event) -> None:
        self._events.put(event, self.address)

    def _closed(self, connection: Connection) -> None:
        pass
