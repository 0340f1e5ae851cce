"""What one end allows the other to take of its memory, disk and time."""

from __future__ import annotations

from dataclasses import dataclass, fields

from layers.network.errors import NetworkError


@dataclass(frozen=True)
class Limits:
    """Limits of one end; the peer learns those on messages when they meet.

    Attributes:
        max_message_bytes: of one message, and of all unfinished messages of a peer together.
        max_streams: unfinished messages of a peer.
        max_queued_bytes: received and not yet taken by the caller; beyond it nothing is read.
        max_file_bytes: of one received file.
        max_connections: open sessions of a listener.
        max_handshakes: connections of a listener whose peer has not shown yet who it is; further
            ones wait in the operating system's queue.
        handshake_s: within which a peer shows who it is.
        linger_s: for which a closing end waits until the other has read the last words.
    """

    max_message_bytes: int = 1 << 30
    max_streams: int = 8
    max_queued_bytes: int = 256 << 20
    max_file_bytes: int = 1 << 36
    max_connections: int = 10_000
    max_handshakes: int = 128
    handshake_s: float = 15.0
    linger_s: float = 1.0

    def __post_init__(self) -> None:
        for item in fields(self):
            if not getattr(self, item.name) > 0:
                raise NetworkError(
                    f"limit {item.name} must be more than 0, not {getattr(self, item.name)!r}"
                )
