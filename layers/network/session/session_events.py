"""The events of one session, for the listener or the connector that owns it.

They are what bytes and time mean to this connection. The owner handles the handshake and the files
itself, and tells its caller the rest in the events of `transport.events`: `Arrived` becomes
`Received`, `Opened` becomes `Joined` or `Connected`, `Ended` becomes `Left` or `Disconnected`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from layers.network.protocol.handshake import Terms


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
