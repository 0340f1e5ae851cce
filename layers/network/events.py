"""Events of a listener or connector, for its caller, and events of a session, for its owner."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layers.network.control import FileFrame
from layers.network.expiry import CertificateExpires


@dataclass(frozen=True)
class Joined:
    """Listener: a client is connected.

    Attributes:
        peer: its name.
        address: its address.
        authenticated: whether it has proved its name.
        named: the features that it has named, also those that this end does not have.
        successor_of: the live client that it replaces with `Listener.take_over`, and whose name it
            gets then, in a second event; None: it has its own name.
        role: the role in its certificate (organizational unit); None: it has none.
        identity: the name that it has proved, also where its connection has a name of its own.
    """

    peer: str
    address: str
    authenticated: bool
    named: frozenset[str] = frozenset()
    successor_of: str | None = None
    role: str | None = None
    identity: str = ""


@dataclass(frozen=True)
class Left:
    """Listener: a client is no longer connected; its queued messages are dropped."""

    peer: str
    reason: str


@dataclass(frozen=True)
class ConnectionRejected:
    """Listener: a connection was closed before its session was open, or because it broke a rule.

    Attributes:
        address: the peer's address.
        peer: the identity that it claimed, if any.
        reason: one line.
        final: whether it was told not to reconnect.
        told: whether a `Crowded` or `Contested` event has told why.
    """

    address: str
    peer: str | None
    reason: str
    final: bool = False
    told: bool = False


@dataclass(frozen=True)
class CertificatesRenewed:
    """TLS files have changed; new connections use them."""

    what: str


@dataclass(frozen=True)
class CertificatesRefused:
    """TLS files have changed but are unusable; their previous content stays in use."""

    reason: str


@dataclass(frozen=True)
class Crowded:
    """Listener: there is no room for another client; new ones are rejected."""

    reason: str


@dataclass(frozen=True)
class Contested:
    """Listener: two processes use one identity; newer connections are rejected for a while."""

    peer: str
    reason: str


@dataclass(frozen=True)
class RoomAgain:
    """Listener: after `Crowded`, a client was admitted again."""


@dataclass(frozen=True)
class Connected:
    """Connector: the session with the server is open."""

    peer: str
    authenticated: bool


@dataclass(frozen=True)
class Disconnected:
    """Connector: the session is over and its queue dropped; a retry or `GaveUp` follows."""

    reason: str


@dataclass(frozen=True)
class Retrying:
    """Connector: an attempt to connect failed; the next one follows in `delay_s`."""

    reason: str
    delay_s: float


@dataclass(frozen=True)
class GaveUp:
    """Connector: it will not try again; `final`: another attempt would fail, too."""

    reason: str
    final: bool


@dataclass(frozen=True, eq=False)
class Received:
    """A message was received.

    Attributes:
        peer: who has sent it.
        message: the message.
        wire_bytes: its size on the wire.
        number: grows in the order in which the peer has sent messages on this connection. A small
            message may arrive before a large one that was sent first.
    """

    peer: str
    message: Any
    wire_bytes: int
    number: int = 0


@dataclass(frozen=True)
class Sent:
    """The last byte of a message was written; `message` is the name of its type."""

    peer: str
    message: str
    wire_bytes: int


@dataclass(frozen=True)
class Replaced:
    """Listener: a queued message was dropped unsent because a newer one replaced it."""

    peer: str
    message: str
    wire_bytes: int


@dataclass(frozen=True)
class FileReceived:
    """A file was received, verified and given its name."""

    peer: str
    path: Path
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class FileSent:
    """The peer has received and verified a file."""

    peer: str
    name: str
    size_bytes: int


@dataclass(frozen=True)
class FileFailed:
    """A file was refused, could not be stored, or was cancelled by its sender."""

    peer: str
    name: str
    reason: str


Event = (
    Joined
    | Left
    | ConnectionRejected
    | CertificatesRenewed
    | CertificatesRefused
    | CertificateExpires
    | Contested
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


# Events of a session


@dataclass(frozen=True)
class Terms:
    """The agreement of both ends.

    `peer_max_streams` is at most this end's own `max_streams`; `features` are those of both ends,
    and `named` those that the peer has named.
    """

    version: int
    identity: str
    features: frozenset[str]
    authenticated: bool
    peer_max_message_bytes: int
    peer_max_streams: int
    named: frozenset[str] = frozenset()


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
    """A message was received.

    Attributes:
        message: the decoded message.
        wire_bytes: its size on the wire.
        reserved_bytes: memory reserved for it, to be released when the caller takes it.
        values: number of values in it; each costs memory beyond its bytes.
        number: as in `Received`.
    """

    message: Any
    wire_bytes: int
    reserved_bytes: int = 0
    values: int = 0
    number: int = 0


@dataclass(frozen=True)
class FileChunk:
    """Bytes of a file were received; `data` is valid until the session reads on."""

    stream: int
    data: memoryview


@dataclass(frozen=True)
class Ended:
    """The session is over; only its last message may still have to be sent.

    Attributes:
        reason: one line.
        code: "goodbye", "lost", "superseded" (by a newer connection) or the code of a refusal.
        final: whether another connection would fail, too.
        blamed: whether the peer broke a rule.
    """

    reason: str
    code: str
    final: bool
    blamed: bool = False


SessionEvent = Verified | Opened | Arrived | FileFrame | FileChunk | Ended
