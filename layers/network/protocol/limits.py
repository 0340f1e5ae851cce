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
            read from sockets. One peer may have a sixteenth of them waiting.
        max_queued_events: events of one peer that the caller has not taken yet; beyond it this peer
            is not read from.
        max_incoming_bytes: memory of the unfinished messages of all peers, and of those that the
            caller has not taken yet; beyond it a message waits until there is room. None: a quarter
            of the machine's memory.
        stall_s: while messages wait for memory, a peer whose unfinished message does not go on for
            so long is disconnected.
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
    max_queued_events: int = 64
    max_incoming_bytes: int | None = None
    stall_s: float = 30.0
    max_file_bytes: int = 1 << 36
    max_connections: int = 10_000
    max_handshakes: int = 128
    handshake_s: float = 15.0
    linger_s: float = 1.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not (value is None and item.default is None) and not value > 0:
                raise NetworkError(f"limit {item.name} must be more than 0, not {value!r}")
