"""The handshake of a session: versions, features, limits, and proof that both ends have the token.

The server speaks first. A proof is HMAC-SHA256 under the shared token over everything sent so far,
so neither the token nor a reusable proof is ever on the wire.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterator
from dataclasses import replace

from layers.network.codec import MessageCodec
from layers.network.control import CONTROL, Greeting, Hello, Welcome, words_of
from layers.network.errors import AuthenticationFailed, NetworkError, ProtocolError, VersionMismatch
from layers.network.events import Opened, SessionEvent, Terms, Verified
from layers.network.frames import Frame, Kind
from layers.network.limits import (
    CLIENT_PATIENCE,
    Limits,
    check_heartbeat,
    check_identity,
    check_peer_limits,
)
from layers.network.session import Session, State

OLDEST_VERSION = 1
NEWEST_VERSION = 1
NONCE_BYTES = 32


class ServerSession(Session):
    """The server's end of one connection.

    `certified` is the common name of the client's certificate, None without mutual TLS.
    """

    def __init__(
        self,
        codec: MessageCodec,
        now: float,
        *,
        limits: Limits | None = None,
        features: frozenset[str] = frozenset(),
        token: bytes | None = None,
        certified: str | None = None,
        heartbeat_s: float = 5.0,
        heartbeat_timeout_s: float = 20.0,
    ) -> None:
        limits = limits or Limits()
        super().__init__(codec, limits, now, State.AWAIT_HELLO, limits.handshake_s)
        self._features = features
        self._token = token
        self._certified = certified
        self._heartbeat = (heartbeat_s, heartbeat_timeout_s)
        self._verified: tuple[Hello, Terms] | None = None
        nonce = secrets.token_bytes(NONCE_BYTES)
        self._greeting = Greeting(OLDEST_VERSION, NEWEST_VERSION, nonce, token is not None)
        self._say(Kind.GREETING, 0, self._greeting)

    def _handshake(self, frame: Frame) -> Iterator[SessionEvent]:
        hello = words_of(frame, Hello)
        self.claimed = hello.identity[:64]
        terms = self._check(hello)
        self._verified = hello, terms
        self.state = State.DECIDING
        yield Verified(terms)

    def _check(self, hello: Hello) -> Terms:
        """Return the terms that this server can agree to."""
        if not OLDEST_VERSION <= hello.version <= NEWEST_VERSION:
            raise VersionMismatch(
                f"the client chose protocol version {hello.version}, this server speaks "
                f"{OLDEST_VERSION} to {NEWEST_VERSION}: use one fedmx for both"
            )
        check_identity(hello.identity)
        if self._certified is not None and self._certified != hello.identity:
            raise AuthenticationFailed(
                f"the client claims to be {hello.identity!r}, its certificate is for "
                f"{self._certified!r}"
            )
        check_peer_limits(hello.max_message_bytes, hello.max_streams)
        if len(hello.nonce) != NONCE_BYTES:
            raise AuthenticationFailed("the client's nonce has a wrong length")
        expected = _proof(self._token, b"client", self._greeting, replace(hello, proof=b""))
        if not hmac.compare_digest(expected, hello.proof):
            raise AuthenticationFailed(f"{hello.identity!r} does not have this server's token")
        return Terms(
            hello.version,
            hello.identity,
            self._features & frozenset(hello.features),
            self._token is not None or self._certified is not None,
            hello.max_message_bytes,
            min(hello.max_streams, self._limits.max_streams),
            frozenset(hello.features),
        )

    def admit(self) -> list[SessionEvent]:
        """Open the session to the verified client; return the events.

        Raises:
            ProtocolError: no verified client waits for a decision.
        """
        if self.state is not State.DECIDING or self._verified is None:
            raise ProtocolError(f"nobody to admit while {self.state.value}")
        hello, terms = self._verified
        words = Welcome(
            sorted(terms.features),
            *self._heartbeat,
            self._limits.max_message_bytes,
            self._limits.max_streams,
            b"",
        )
        proof = _proof(self._token, b"server", self._greeting, hello, words)
        self._say(Kind.WELCOME, 0, replace(words, proof=proof))
        self._open(terms, *self._heartbeat)
        return [Opened(terms)]


class ClientSession(Session):
    """The client's end of one connection.

    `certified` says that TLS has verified the server.

    Raises:
        AuthenticationFailed: an identity that no server would accept.
    """

    def __init__(
        self,
        identity: str,
        codec: MessageCodec,
        now: float,
        *,
        limits: Limits | None = None,
        features: frozenset[str] = frozenset(),
        token: bytes | None = None,
        certified: bool = False,
    ) -> None:
        limits = limits or Limits()
        patience_s = CLIENT_PATIENCE * limits.handshake_s
        super().__init__(codec, limits, now, State.AWAIT_GREETING, patience_s)
        check_identity(identity)
        self._identity = identity
        self._features = features
        self._token = token
        self._certified = certified
        self._said: tuple[Greeting, Hello] | None = None

    def _handshake(self, frame: Frame) -> Iterator[SessionEvent]:
        if frame.kind is Kind.GREETING:
            greeting = words_of(frame, Greeting)
            hello = self._answer(greeting)
            self._said = greeting, hello
            self._say(Kind.HELLO, 0, hello)
            self.state = State.AWAIT_WELCOME
            return
        if self._said is None:
            raise NetworkError("a welcome before a greeting")
        words = words_of(frame, Welcome)
        terms = self._check(*self._said, words)
        self._open(terms, words.heartbeat_s, words.heartbeat_timeout_s)
        yield Opened(terms)

    def _answer(self, greeting: Greeting) -> Hello:
        """Return the hello that answers the server's greeting."""
        version = min(NEWEST_VERSION, greeting.newest_version)
        if version < max(OLDEST_VERSION, greeting.oldest_version):
            raise VersionMismatch(
                f"the server speaks protocol versions {greeting.oldest_version} to "
                f"{greeting.newest_version}, this client {OLDEST_VERSION} to {NEWEST_VERSION}: "
                "install the same fedmx on both"
            )
        if self._token is None and greeting.token_required:
            raise AuthenticationFailed("the server asks for a token, but this client has none")
        if self._token is not None and not greeting.token_required:
            raise AuthenticationFailed("this client has a token, but the server asks for none")
        hello = Hello(
            version,
            self._identity,
            sorted(self._features),
            secrets.token_bytes(NONCE_BYTES),
            self._limits.max_message_bytes,
            self._limits.max_streams,
            b"",
        )
        return replace(hello, proof=_proof(self._token, b"client", greeting, hello))

    def _check(self, greeting: Greeting, hello: Hello, words: Welcome) -> Terms:
        """Return the agreed terms."""
        expected = _proof(self._token, b"server", greeting, hello, replace(words, proof=b""))
        if not hmac.compare_digest(expected, words.proof):
            raise AuthenticationFailed("the server does not have this client's token")
        if not frozenset(words.features) <= frozenset(hello.features):
            raise AuthenticationFailed("the server agreed to features that were not requested")
        check_heartbeat(words.heartbeat_s, words.heartbeat_timeout_s)
        check_peer_limits(words.max_message_bytes, words.max_streams)
        return Terms(
            hello.version,
            hello.identity,
            frozenset(words.features),
            self._token is not None or self._certified,
            words.max_message_bytes,
            min(words.max_streams, hello.max_streams),
        )


def _proof(token: bytes | None, role: bytes, *said: Greeting | Hello | Welcome) -> bytes:
    if token is None:
        return b""
    mac = hmac.new(token, role, hashlib.sha256)
    for words in said:
        payload = bytes(CONTROL.encode(words))
        mac.update(len(payload).to_bytes(8, "big") + payload)
    return mac.digest()
