"""Reads control frames: the words in them, and the events of those about files."""

from __future__ import annotations

from typing import Any, TypeVar

from layers.network.errors import MalformedMessage
from layers.network.protocol.frames import Frame, Kind
from layers.network.protocol.handshake import (
    CONTROL,
    FileAccept,
    FileOffer,
    FileReason,
    FileStart,
)
from layers.network.session.session_events import (
    FileAccepted,
    FileCancelled,
    FileDone,
    FileEvent,
    FileOffered,
    FileRefused,
    FileStarted,
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
