"""The handshake: versions, features, limits, and proofs that both ends have the token.

The server speaks first. A proof is HMAC-SHA256 under the shared token over everything that was
sent so far, so neither the token nor a proof that could be used again is ever on the wire.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, replace

from layers.network.encoding.codec import MessageCodec
from layers.network.errors import AuthenticationFailed, VersionMismatch
from layers.network.protocol.frames import Kind
from layers.network.protocol.limits import Limits, check_heartbeat, check_peer_limits

OLDEST_VERSION = 1
NEWEST_VERSION = 1
NONCE_BYTES = 32
IDENTITY = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True)
class Greeting:
    """The server's first message. Greeting and Hello have the same layout in every version."""

    oldest_version: int
    newest_version: int
    nonce: bytes
    token_required: bool


@dataclass(frozen=True)
class Hello:
    """The client's answer: the version it chose, who it claims to be, and the proof of it."""

    version: int
    identity: str
    features: list[str]
    nonce: bytes
    max_message_bytes: int
    max_streams: int
    proof: bytes


@dataclass(frozen=True)
class Welcome:
    """The server's agreement: the session is open."""

    features: list[str]
    heartbeat_s: float
    heartbeat_timeout_s: float
    max_message_bytes: int
    max_streams: int
    proof: bytes


@dataclass(frozen=True)
class Refusal:
    """The last message of an end that cannot go on; `final`: do not come back unchanged."""

    code: str
    text: str
    final: bool


@dataclass(frozen=True)
class Goodbye:
    """The last message of an end when nothing is wrong; `final`: do not come back."""

    reason: str
    final: bool


@dataclass(frozen=True)
class FileOffer:
    """A file that the sender wants to send on the frame's stream."""

    name: str
    size: int
    sha256: bytes


@dataclass(frozen=True)
class FileAccept:
    """How many bytes of the file the receiver has already, and their SHA-256."""

    offset: int
    sha256: bytes


@dataclass(frozen=True)
class FileStart:
    """Where the sender begins: the accepted offset, or 0 if the receiver's bytes are others."""

    offset: int


@dataclass(frozen=True)
class FileReason:
    """Why the receiver refuses a file, or the sender gives it up."""

    reason: str


CONTROL = MessageCodec(
    {
        Kind.GREETING: Greeting,
        Kind.HELLO: Hello,
        Kind.WELCOME: Welcome,
        Kind.REFUSAL: Refusal,
        Kind.GOODBYE: Goodbye,
        Kind.FILE_OFFER: FileOffer,
        Kind.FILE_ACCEPT: FileAccept,
        Kind.FILE_START: FileStart,
        Kind.FILE_REFUSED: FileReason,
    }
)


@dataclass(frozen=True)
class Terms:
    """What both ends agreed on; `peer_max_streams` is not above this end's own `max_streams`."""

    version: int
    identity: str
    features: frozenset[str]
    authenticated: bool
    peer_max_message_bytes: int
    peer_max_streams: int


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


def check_identity(identity: str) -> None:
    """Check that an identity can be the name of a certificate and of a folder.

    Raises:
        AuthenticationFailed: it cannot.
    """
    if not IDENTITY.fullmatch(identity):
        raise AuthenticationFailed(
            f"identity {identity[:80]!r}: use 1 to 64 letters, digits, dots, dashes, underscores "
            "or @, and do not begin with a dot or a dash"
        )


def _proof(token: bytes | None, role: bytes, *said: Greeting | Hello | Welcome) -> bytes:
    if token is None:
        return b""
    mac = hmac.new(token, role, hashlib.sha256)
    for words in said:
        payload = bytes(CONTROL.encode(words))
        mac.update(len(payload).to_bytes(8, "big") + payload)
    return mac.digest()
