"""Limits: how much of its memory, disk and time one end gives to the other."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from layers.network.errors import AuthenticationFailed, LimitExceeded, NetworkError

HEARTBEAT_S = (0.1, 3600.0)  # the least and the most; the handshake refuses any other
MOST_HEARTBEATS_TO_TIMEOUT = 100  # the most heartbeats until a silent peer is lost
CLIENT_PATIENCE = 4  # how many times as long as a server a client waits for a handshake


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
            caller has not taken yet; beyond it a message waits until there is room. None: 64 MiB,
            and up to a quarter of the machine's memory while the senders are what is slow.
        stall_s: while messages wait for memory, a peer whose unfinished message does not go on for
            so long is disconnected.
        max_kept_bytes: bytes of messages that broke off, of all peers, which wait for the next
            connection, a quarter of `max_incoming_bytes` at the most; and how much of a message is
            compared with what a peer says that it has.
        keep_s: how long they wait.
        max_file_bytes: size of one received file.
        max_connections: number of open sessions of a listener.
        max_handshakes: number of unfinished handshakes of a listener; when there are as many, the
            one that has been silent longest makes way for a new one.
        handshake_s: time that a listener gives to each step of a handshake: the first byte, TLS,
            and the rest. A connector is more patient, by `CLIENT_PATIENCE`.
        linger_s: time that a closing end gives the other to read its last message.
    """

    max_message_bytes: int = 1 << 30
    max_streams: int = 8
    max_queued_bytes: int = 256 << 20
    max_queued_events: int = 64
    max_incoming_bytes: int | None = None
    stall_s: float = 30.0
    max_kept_bytes: int = 256 << 20
    keep_s: float = 60.0
    max_file_bytes: int = 1 << 36
    max_connections: int = 10_000
    max_handshakes: int = 2048
    handshake_s: float = 15.0
    linger_s: float = 1.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not (value is None and item.default is None) and not value > 0:
                raise NetworkError(f"limit {item.name} must be more than 0, not {value!r}")


def check_heartbeat(heartbeat_s: float, heartbeat_timeout_s: float) -> None:
    """Check a server's heartbeat by limits that both ends know.

    Raises:
        AuthenticationFailed: it is too short or too long, or its timeout is.
    """
    least, most = HEARTBEAT_S
    if not least <= heartbeat_s <= most:
        raise AuthenticationFailed(
            f"the server's heartbeat is {heartbeat_s:g} s; it must be {least:g} to {most:g} s"
        )
    if not heartbeat_s < heartbeat_timeout_s <= MOST_HEARTBEATS_TO_TIMEOUT * heartbeat_s:
        raise AuthenticationFailed(
            f"the server's heartbeat times out after {heartbeat_timeout_s:g} s; it must be more "
            f"than one and at most {MOST_HEARTBEATS_TO_TIMEOUT} heartbeats of {heartbeat_s:g} s"
        )


def check_peer_limits(max_message_bytes: int, max_streams: int) -> None:
    """Check that the other end takes any messages at all.

    Raises:
        LimitExceeded: it takes none.
    """
    if max_message_bytes < 1 or max_streams < 1:
        raise LimitExceeded(
            f"the other end takes messages of {max_message_bytes} bytes, {max_streams} at a time; "
            "both must be at least 1"
        )


IDENTITY = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9._@-]{0,63}")


def check_identity(identity: str) -> None:
    """Check that an identity can be the name of a certificate and of a folder.

    Raises:
        AuthenticationFailed: it cannot.
    """
    if not IDENTITY.fullmatch(identity):
        raise AuthenticationFailed(
            f"identity {identity[:80]!r}: use 1 to 64 letters, digits, dots, dashes, underscores "
            "or @, and do not begin with a dot or a dash"
        )
