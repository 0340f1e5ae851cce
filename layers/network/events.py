"""Events of a session, for its owner, and events of a listener or connector, for their caller."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Joined:
    """Listener: a client is connected."""

    peer: str
    address: str
    features: frozenset[str]
    authenticated: bool


@dataclass(frozen=True)
class Left:
    """Listener: a client is no longer connected; what was queued for it is dropped."""

    peer: str
    reason: str


@dataclass(frozen=True)
class ConnectionRejected:
    """Listener: a connection was closed before its session was open, or because it broke a rule.

    `peer` is the identity that it claimed, or None. `final`: it was told not to come back.
    `crowded`: there was no room for another client; an event `Crowded` has said so before.
    """

    address: str
    peer: str | None
    reason: str
    final: bool = False
    crowded: bool = False


@dataclass(frozen=True)
class CertificatesRenewed:
    """TLS files have changed: from now on, new connections use what is in them."""

    what: str


@dataclass(frozen=True)
class CertificatesRefused:
    """TLS files have changed and cannot be used: what was in them before stays in use."""

    reason: str


@dataclass(frozen=True)
class Crowded:
    """Listener: there is no room for another client; those who come are rejected."""

    reason: str


@dataclass(frozen=True)
class RoomAgain:
    """Listener: after `Crowded`, a client was let in again."""


@dataclass(frozen=True)
class Connected:
    """Connector: the session with the server is open."""

    peer: str
    features: frozenset[str]
    authenticated: bool


@dataclass(frozen=True)
class Disconnected:
    """Connector: the session is over, what was queued is dropped; it tries again or gives up."""

    reason: str


@dataclass(frozen=True)
class Retrying:
    """Connector: an attempt to connect failed; the next one follows in `delay_s`."""

    reason: str
    delay_s: float


@dataclass(frozen=True)
class GaveUp:
    """Connector: there will be no further attempt; `final`: another one would be pointless."""

    reason: str
    final: bool


@dataclass(frozen=True, eq=False)
class Received:
    """A whole message was received; `wire_bytes` is what it took on the wire."""

    peer: str
    message: Any
    wire_bytes: int


@dataclass(frozen=True)
class Sent:
    """A message was sent: its last byte is with the transport. `message` is its type's name."""

    peer: str
    message: str
    wire_bytes: int


@dataclass(frozen=True)
class Replaced:
    """Listener: nothing of a message was sent, because a newer one took its place."""

    peer: str
    message: str
    wire_bytes: int


@dataclass(frozen=True)
class FileReceived:
    """A whole file was received, verified and given its name."""

    peer: str
    path: Path
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class FileSent:
    """A file was sent: the peer has received and verified it."""

    peer: str
    name: str
    size_bytes: int


@dataclass(frozen=True)
class FileFailed:
    """A file was refused, could not be kept, or was given up by its sender."""

    peer: str
    name: str
    reason: str


Event = (
    Joined
    | Left
    | ConnectionRejected
    | CertificatesRenewed
    | CertificatesRefused
    | Crowded
    | RoomAgain
    | Connected
    | Disconnected
    | Retrying
    | GaveUp
    | Received
    | Sent
    | Replaced
    | FileReceived
    | FileSent
    | FileFailed
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


@dataclass(frozen=True)
class Verified:
    """Server: the client has proved its identity; `admit` or `refuse` it now."""

    terms: Terms


@dataclass(frozen=True)
class Opened:
    """The session is open in both directions."""

    terms: Terms


@dataclass(frozen=True)
class Arrived:
    """A whole message was received; `wire_bytes` is what it took on the wire.

    `reserved_bytes` is the memory that was reserved for it, to be released when it is taken;
    `values` is how many values the message has, which take memory besides.
    """

    message: Any
    wire_bytes: int
    reserved_bytes: int = 0
    values: int = 0


@dataclass(frozen=True)
class FileOffered:
    """The peer offers a file."""

    stream: int
    name: str
    size: int
    sha256: bytes


@dataclass(frozen=True)
class FileAccepted:
    """The peer takes an offered file; it has `offset` bytes already, whose SHA-256 is `sha256`."""

    stream: int
    offset: int
    sha256: bytes


@dataclass(frozen=True)
class FileStarted:
    """The peer begins to send a file, from `offset` on."""

    stream: int
    offset: int


@dataclass(frozen=True)
class FileChunk:
    """Bytes of a file were received; `data` is valid until the session is given more to read."""

    stream: int
    data: memoryview


@dataclass(frozen=True)
class FileDone:
    """The peer has received the whole file and verified it."""

    stream: int


@dataclass(frozen=True)
class FileRefused:
    """The peer does not want an offered file, or could not keep it."""

    stream: int
    reason: str


@dataclass(frozen=True)
class FileCancelled:
    """The peer gave up a file that it was sending."""

    stream: int
    reason: str


@dataclass(frozen=True)
class Ended:
    """The session is over; only its last message may still have to be sent.

    Attributes:
        reason: one line.
        code: "goodbye", "lost", "superseded" by a newer connection, or a refusal's.
        final: whether it is pointless to connect again.
        blamed: whether the peer broke a rule.
    """

    reason: str
    code: str
    final: bool
    blamed: bool = False


FileEvent = (
    FileOffered | FileAccepted | FileStarted | FileChunk | FileDone | FileRefused | FileCancelled
)
SessionEvent = Verified | Opened | Arrived | FileEvent | Ended
