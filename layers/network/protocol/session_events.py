"""What a session tells the end that owns it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from layers.network.protocol.handshake import Terms


@dataclass(frozen=True)
class Verified:
    """Server: a client has shown who it is; `admit` or `refuse` it now."""

    terms: Terms


@dataclass(frozen=True)
class Opened:
    """The session is open in both directions."""

    terms: Terms


@dataclass(frozen=True)
class Arrived:
    """A whole message, decoded."""

    message: Any
    wire_bytes: int


@dataclass(frozen=True)
class FileOffered:
    """The peer wants to send a file."""

    stream: int
    name: str
    size: int
    sha256: bytes


@dataclass(frozen=True)
class FileAccepted:
    """The peer has `offset` bytes of an offered file, whose SHA-256 is `sha256`."""

    stream: int
    offset: int
    sha256: bytes


@dataclass(frozen=True)
class FileStarted:
    """The peer sends a file from `offset` on."""

    stream: int
    offset: int


@dataclass(frozen=True)
class FileChunk:
    """Bytes of a file; `data` is valid until the session is given more to read."""

    stream: int
    data: memoryview


@dataclass(frozen=True)
class FileDone:
    """The peer has the whole file and has checked it."""

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
    """The session is over; what is still to be sent are its last words.

    `code` is "goodbye", "lost", or a refusal's; `blamed` says that the peer broke a rule; `final`
    says that there is no point in coming back.
    """

    reason: str
    code: str
    final: bool
    blamed: bool = False


FileEvent = (
    FileOffered | FileAccepted | FileStarted | FileChunk | FileDone | FileRefused | FileCancelled
)
SessionEvent = Verified | Opened | Arrived | FileEvent | Ended
