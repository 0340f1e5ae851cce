"""What a session says about files, those that it sends and those that it receives."""

from __future__ import annotations

from layers.network.protocol.frames import Kind
from layers.network.protocol.handshake import (
    CONTROL,
    FileAccept,
    FileOffer,
    FileReason,
    FileStart,
)
from layers.network.protocol.outbox import Outbox
from layers.network.protocol.outgoing import OutgoingFile


class FileFrames:
    """The part of a session that is about files; its words go out ahead of all chunks."""

    _outbox: Outbox

    def offer_file(self, name: str, size: int, sha256: bytes) -> int:
        """Offer a file and return its stream."""
        stream = self._outbox.new_stream()
        self._say(Kind.FILE_OFFER, stream, FileOffer(name, size, sha256))
        return stream

    def accept_file(self, stream: int, offset: int, sha256: bytes) -> None:
        """Ask for an offered file from `offset` on, if its first bytes have this SHA-256."""
        self._say(Kind.FILE_ACCEPT, stream, FileAccept(offset, sha256))

    def start_file(self, outgoing: OutgoingFile, offset: int) -> None:
        """Send an accepted file from `offset` on."""
        self._say(Kind.FILE_START, outgoing.stream, FileStart(offset))
        self._outbox.file(outgoing)

    def confirm_file(self, stream: int) -> None:
        """Tell the peer that its file is complete and verified."""
        self._outbox.control(Kind.FILE_DONE, stream)

    def refuse_file(self, stream: int, reason: str) -> None:
        """Tell the peer that an offered file is not wanted or could not be kept."""
        self._say(Kind.FILE_REFUSED, stream, FileReason(reason[:500]))

    def cancel_file(self, stream: int, reason: str) -> None:
        """Give up a file that this end was sending."""
        self._outbox.drop_file(stream)
        self._say(Kind.FILE_CANCELLED, stream, FileReason(reason[:500]))

    def _say(self, kind: Kind, stream: int, words: object) -> None:
        self._outbox.control(kind, stream, bytes(CONTROL.encode(words)))
