"""The handshake of a session: versions, features, limits, and proofs that both ends have the token.

The server speaks first. A proof is HMAC-SHA256 under the shared token over everything that was
sent so far, so neither the token nor a reusable proof is ever on the wire.
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
        self._own_limits = limits or Limits()
        patience_s = self._own_limits.handshake_s
        super().__init__(codec, self._own_limits, now, State.AWAIT_HELLO, patience_s)
        self.claimed: str | None = None  # not verified: for reports only
        self._features = features
        self._token = token
        self._certified = certified
        self._rhythm = (heartbeat_s, heartbeat_timeout_s)
        self._verified: tuple[Hello, Terms] | None = None
        self._greeting = greet(token)
        self._say(Kind.GREETING, 0, self._greeting)

    def _handshake(self, frame: Frame) -> Iterator[SessionEvent]:
        hello = words_of(frame, Hello)
        self.claimed = hello.identity[:64]
        terms = check_hello(
            self._greeting,
            hello,
            self._features,
            self._token,
            self._certified,
            self._own_limits,
        )
        self._verified = hello, terms
        self.state = State.DECIDING
        yield Verified(terms)

    def admit(self) -> list[SessionEvent]:
        """Open the session to the verified client; return the events.

        Raises:
            ProtocolError: there is no verified client that waits for a decision.
        """
        if self.state is not State.DECIDING or self._verified is None:
            raise ProtocolError(f"nobody to admit while {self.state.value}")
        hello, terms = self._verified
        words = welcome(self._greeting, hello, terms, self._token, self._own_limits, *self._rhythm)
        self._say(Kind.WELCOME, 0, words)
        self._open(terms, *self._rhythm)
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
        self._own_limits = limits or Limits()
        patience_s = CLIENT_PATIENCE * self._own_limits.handshake_s
        super().__init__(codec, self._own_limits, now, State.AWAIT_GREETING, patience_s)
        check_identity(identity)
        self._identity = identity
        self._features = features
        self._token = token
        self._certified = certified
        self._said: tuple[Greeting, Hello] | None = None

    def _handshake(self, frame: Frame) -> Iterator[SessionEvent]:
        if frame.kind is Kind.GREETING:
            greeting = words_of(frame, Greeting)
            hello = answer_greeting(
                greeting, self._identity, self._features, self._token, self._own_limits
            )
            self._said = greeting, hello
            self._say(Kind.HELLO, 0, hello)
            self.state = State.AWAIT_WELCOME
            return
        if self._said is None:
            raise NetworkError("a welcome before a greeting")
        words = words_of(frame, Welcome)
        terms = check_welcome(*self._said, words, self._token, self._certified)
        self._open(terms, words.heartbeat_s, words.heartbeat_timeout_s)
        yield Opened(terms)


def greet(token: bytes | None) -> Greeting:
    """Return the server's greeting, with a fresh nonce."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    return Greeting(OLDEST_VERSION, NEWEST_VERSION, nonce, token is not None)


def answer_greeting(
    greeting: Greeting, identity: str, features: frozenset[str], token: bytes | None, limits: Limits
) -> Hello:
    """Return the client's hello.

    Raises:
        VersionMismatch: no common version.
        AuthenticationFailed: one end has a token and the other has none.
    """
    version = min(NEWEST_VERSION, greeting.newest_version)
    if version < max(OLDEST_VERSION, greeting.oldest_version):
        raise VersionMismatch(
            f"the server speaks protocol versions {greeting.oldest_version} to "
            f"{greeting.newest_version}, this client {OLDEST_VERSION} to {NEWEST_VERSION}: "
            "install the same fedmx on both"
        )
    if token is None and greeting.token_required:
        raise AuthenticationFailed("the server asks for a token and this client was given none")
    if token is not None and not greeting.token_required:
        raise AuthenticationFailed("this client was given a token and the server asks for none")
    hello = Hello(
        version,
        identity,
        sorted(features),
        secrets.token_bytes(NONCE_BYTES),
        limits.max_message_bytes,
        limits.max_streams,
        b"",
    )
    return replace(hello, proof=_proof(token, b"client", greeting, hello))


def check_hello(
    greeting: Greeting,
    hello: Hello,
    features: frozenset[str],
    token: bytes | None,
    certified: str | None,
    limits: Limits,
) -> Terms:
    """Return the terms that the server can agree to; `certified` is the certificate's name.

    `limits` are the server's own: it sends no more messages at a time than it takes itself.

    Raises:
        VersionMismatch: not a version that was offered.
        AuthenticationFailed: a bad identity or proof, or a certificate of another identity.
        LimitExceeded: the client takes no messages at all.
    """
    if not greeting.oldest_version <= hello.version <= greeting.newest_version:
        raise VersionMismatch(
            f"the client chose protocol version {hello.version}, this server speaks "
            f"{greeting.oldest_version} to {greeting.newest_version}: use one fedmx for both"
        )
    check_identity(hello.identity)
    if certified is not None and certified != hello.identity:
        raise AuthenticationFailed(
            f"the client says that it is {hello.identity!r}, its certificate is for {certified!r}"
        )
    check_peer_limits(hello.max_message_bytes, hello.max_streams)
    if len(hello.nonce) != NONCE_BYTES:
        raise AuthenticationFailed("the client's nonce has a wrong length")
    expected = _proof(token, b"client", greeting, replace(hello, proof=b""))
    if not hmac.compare_digest(expected, hello.proof):
        raise AuthenticationFailed(f"{hello.identity!r} does not have this server's token")
    return Terms(
        hello.version,
        hello.identity,
        features & frozenset(hello.features),
        token is not None or certified is not None,
        hello.max_message_bytes,
        min(hello.max_streams, limits.max_streams),
    )


def welcome(
    greeting: Greeting,
    hello: Hello,
    terms: Terms,
    token: bytes | None,
    limits: Limits,
    heartbeat_s: float,
    heartbeat_timeout_s: float,
) -> Welcome:
    """Return the server's welcome, with its own proof of the token."""
    words = Welcome(
        sorted(terms.features),
        heartbeat_s,
        heartbeat_timeout_s,
        limits.max_message_bytes,
        limits.max_streams,
        b"",
    )
    return replace(words, proof=_proof(token, b"server", greeting, hello, words))


def check_welcome(
    greeting: Greeting, hello: Hello, words: Welcome, token: bytes | None, certified: bool
) -> Terms:
    """Return the terms on the client's end; its own limits are those of `hello`.

    Raises:
        AuthenticationFailed: the server does not have the token, or its welcome has features that
            were not asked for, or a heartbeat that makes no sense.
        LimitExceeded: the server takes no messages at all.
    """
    expected = _proof(token, b"server", greeting, hello, replace(words, proof=b""))
    if not hmac.compare_digest(expected, words.proof):
        raise AuthenticationFailed("the server does not have this client's token")
    if not frozenset(words.features) <= frozenset(hello.features):
        raise AuthenticationFailed("the server agreed to features that were not asked for")
    check_heartbeat(words.heartbeat_s, words.heartbeat_timeout_s)
    check_peer_limits(words.max_message_bytes, words.max_streams)
    return Terms(
        hello.version,
        hello.identity,
        frozenset(words.features),
        token is not None or certified,
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
