"""Limits: how much of its memory, disk and time one end gives to the other."""

from __future__ import annotations

from dataclasses import dataclass, fields

from layers.network.errors import NetworkError

HEARTBEAT_S = (0.1, 3600.0)  # the least and the most; the handshake refuses any other
HEARTBEATS_TO_TIMEOUT = 100  # the most heartbeats until a silent peer is lost


@dataclass(frozen=True)
class Limits:
    """The limits of one end; the handshake tells the peer those on messages.

    Attributes:
        max_message_bytes: size of one message, and of all unfinished messages of a peer together.
        max_streams: number of unfinished messages of a peer.
        max_queued_bytes: bytes of events that the caller has not taken yet; beyond it nothing is
            read from sockets.
        max_file_bytes: size of one received file.
        max_connections: number of open sessions of a listener.
        max_handshakes: number of unfinished handshakes of a listener; further connections wait in
            the operating system's queue.
        handshake_s: time for a handshake.
        linger_s: time that a closing end gives the other to read its last message.
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
