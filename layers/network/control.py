"""Control messages: the payloads of the handshake, of file transfers and of a session's end."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from layers.network.codec import MessageCodec
from layers.network.errors import MalformedMessage
from layers.network.frames import CHUNK_BYTES, HEADER_BYTES, Frame, Kind

T = TypeVar("T")


@dataclass(frozen=True)
class Greeting:
    """The server's first message; Greeting and Hello keep their layout in every version."""

    oldest_version: int
    newest_version: int
    nonce: bytes
    token_required: bool


@dataclass(frozen=True)
class Hello:
    """The client's answer: the chosen version, its identity, and a proof of the token."""

    version: int
    identity: str
    features: list[str]
    nonce: bytes
    max_message_bytes: int
    max_streams: int
    proof: bytes


@dataclass(frozen=True)
class Welcome:
    """The server's consent, which opens the session."""

    features: list[str]
    heartbeat_s: float
    heartbeat_timeout_s: float
    max_message_bytes: int
    max_streams: int
    proof: bytes


@dataclass(frozen=True)
class Refusal:
    """The last message of an end that cannot continue; `final`: a retry is pointless."""

    code: str
    text: str
    final: bool


@dataclass(frozen=True)
class Goodbye:
    """The last message of an orderly end; `final`: do not reconnect."""

    reason: str
    final: bool


@dataclass(frozen=True)
class FileOffer:
    """The sender offers a file on the frame's stream."""

    name: str
    size: int
    sha256: bytes


@dataclass(frozen=True)
class FileAccept:
    """The receiver already has the first `offset` bytes, with this SHA-256."""

    offset: int
    sha256: bytes


@dataclass(frozen=True)
class FileStart:
    """The sender starts at the accepted offset, or at 0 if the receiver's bytes differ."""

    offset: int


@dataclass(frozen=True)
class FileReason:
    """Why the receiver refuses a file, or the sender cancels it."""

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


FileWords: TypeAlias = "FileOffer | FileAccept | FileStart | FileReason"
FILE_WORDS: dict[Kind, type[FileWords]] = {
    Kind.FILE_OFFER: FileOffer,
    Kind.FILE_ACCEPT: FileAccept,
    Kind.FILE_START: FileStart,
    Kind.FILE_REFUSED: FileReason,
    Kind.FILE_CANCELLED: FileReason,
}


@dataclass(frozen=True)
class FileFrame:
    """A control frame about the file on `stream`; FILE_DONE has no words."""

    kind: Kind
    stream: int
    words: FileWords | None = None


def words_of(frame: Frame, expected: type[T]) -> T:
    """Decode the payload of a control frame.

    Raises:
        MalformedMessage: it is not the message that the frame's kind requires.
    """
    words: Any = CONTROL.decode(frame.payload)
    if not isinstance(words, expected):
        raise MalformedMessage(f"a {frame.kind.name} frame with a {type(words).__name__}")
    return words


def file_frame(frame: Frame) -> FileFrame:
    """Decode a control frame about a file.

    Raises:
        MalformedMessage: its payload does not match its kind.
    """
    expected = FILE_WORDS.get(frame.kind)
    words = None if expected is None else words_of(frame, expected)
    return FileFrame(frame.kind, frame.stream, words)


def clean(text: str) -> str:
    """Return a peer's text as one printable line of at most 500 characters."""
    return "".join(char if char.isprintable() else " " for char in text[:500])


def file_wire_size(name: str, size: int) -> int:
    """Return the bytes that both ends write to transfer a file of `size` bytes at the first try.

    It counts the offer, its acceptance, the start, the chunks and the receiver's confirmation, but
    not TLS's own bytes.
    """
    digest = hashlib.sha256().digest()  # every digest has the same length
    words = (FileOffer(name, size, digest), FileAccept(0, digest), FileStart(0))
    control = sum(HEADER_BYTES + CONTROL.encode(one).size for one in words) + HEADER_BYTES
    chunks = -(-size // CHUNK_BYTES)
    return control + chunks * HEADER_BYTES + size
