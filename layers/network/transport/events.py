"""What a listener and a connector tell their caller."""

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
    """Listener: a connection broke a rule and was closed; `peer` is None if it is not known."""

    address: str
    peer: str | None
    reason: str


@dataclass(frozen=True)
class Connected:
    """Connector: the session with the server is open."""

    peer: str
    features: frozenset[str]
    authenticated: bool


@dataclass(frozen=True)
class Disconnected:
    """Connector: the session is over; what was queued is dropped, another attempt follows."""

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
    """A whole message; `wire_bytes` is what it took on the wire."""

    peer: str
    message: Any
    wire_bytes: int


@dataclass(frozen=True)
class Sent:
    """The last byte of a message of the type named `message` was handed to the transport."""

    peer: str
    message: str
    wire_bytes: int


@dataclass(frozen=True)
class FileReceived:
    """A file is complete, verified and under its final name."""

    peer: str
    path: Path
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class FileSent:
    """The peer has a file that was sent to it, and has verified it."""

    peer: str
    name: str
    size_bytes: int


@dataclass(frozen=True)
class FileFailed:
    """A file was refused, could not be kept, or was given up."""

    peer: str
    name: str
    reason: str


Event = (
    Joined
    | Left
    | ConnectionRejected
    | Connected
    | Disconnected
    | Retrying
    | GaveUp
    | Received
    | Sent
    | FileReceived
    | FileSent
    | FileFailed
)
