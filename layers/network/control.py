"""Control messages: the frames of the handshake, of files, and of the end of a session."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, TypeVar

from layers.network.codec import MessageCodec
from layers.network.errors import MalformedMessage
from layers.network.events import (
    FileAccepted,
    FileCancelled,
    FileDone,
    FileEvent,
    FileOffered,
    FileRefused,
    FileStarted,
)
from layers.network.frames import CHUNK_BYTES, HEADER_BYTES, Frame, Kind


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


T = TypeVar("T")


def words_of(frame: Frame, expected: type[T]) -> T:
    """Return the words of a control frame.

    Raises:
        MalformedMessage: they are others than the frame's kind says.
    """
    words: Any = CONTROL.decode(frame.payload)
    if not isinstance(words, expected):
        raise MalformedMessage(f"a {frame.kind.name} frame with a {type(words).__name__}")
    return words


def file_event(frame: Frame) -> FileEvent:
    """Return what a frame about a file says.

    Raises:
        MalformedMessage: its words are not those of its kind.
    """
    match frame.kind:
        case Kind.FILE_OFFER:
            offer = words_of(frame, FileOffer)
            return FileOffered(frame.stream, offer.name, offer.size, offer.sha256)
        case Kind.FILE_ACCEPT:
            accept = words_of(frame, FileAccept)
            return FileAccepted(frame.stream, accept.offset, accept.sha256)
        case Kind.FILE_START:
            return FileStarted(frame.stream, words_of(frame, FileStart).offset)
        case Kind.FILE_DONE:
            return FileDone(frame.stream)
        case Kind.FILE_REFUSED:
            return FileRefused(frame.stream, clean(words_of(frame, FileReason).reason))
    return FileCancelled(frame.stream, clean(words_of(frame, FileReason).reason))


def clean(text: str) -> str:
    """Return a peer's text as one printable line."""
    return "".join(char if char.isprintable() else " " for char in text[:500])


DIGEST = hashlib.sha256().digest()  # any digest: all have one length


def file_wire_size(name: str, size: int) -> int:
    """Return the bytes of all frames of a file of `size` bytes, transferred at the first attempt.

    This is exactly what both ends together write for it, without TLS's own bytes: the offer, its
    acceptance, the start, the chunks, and the receiver's confirmation.
    """
    words = (FileOffer(name, size, DIGEST), FileAccept(0, DIGEST), FileStart(0))
    said = sum(HEADER_BYTES + CONTROL.encode(one).size for one in words)
    chunks = -(-size // CHUNK_BYTES)
    return said + chunks * HEADER_BYTES + size + HEADER_BYTES
