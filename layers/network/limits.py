"""Limits on the memory, disk and time that a peer may use, and checks of its claims."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from layers.network.errors import AuthenticationFailed, LimitExceeded, NetworkError

HEARTBEAT_S = (0.1, 3600.0)  # least and most; the handshake refuses others
MOST_HEARTBEATS_TO_TIMEOUT = 100  # at most
CLIENT_PATIENCE = 4  # a client waits this many times longer than a server for a handshake


@dataclass(frozen=True)
class Limits:
    """The limits of one end; the handshake tells the peer the two on messages.

    Attributes:
        max_message_bytes: size of one message, and of all unfinished messages of a peer together.
        max_streams: number of unfinished messages of a peer.
        max_queued_bytes: bytes of events that the caller has not taken; beyond it no peer is read.
            A single peer may use a sixteenth of it.
        max_queued_events: events of one peer that the caller has not taken; beyond it the peer is
            not read.
        max_incoming_bytes: memory of all unfinished messages, and of messages that the caller has
            not taken; beyond it messages wait. None: 64 MiB, and up to a quarter of the machine's
            memory while senders are slower than this end.
        stall_s: while messages wait for memory, a peer whose unfinished message makes no progress
            for this long is disconnected.
        max_kept_bytes: bytes of interrupted messages kept for all peers, at most a quarter of
            `max_incoming_bytes`; also the longest part that is compared with a message to send.
        keep_s: how long interrupted messages are kept.
        max_file_bytes: size of one received file.
        max_connections: number of open sessions of a listener.
        max_handshakes: number of unfinished handshakes of a listener; beyond it the stalest
            handshake is evicted first.
        max_tls_handshakes: number of these that do TLS at the same time; the others wait.
        handshake_s: time for each step of a handshake with a listener: the first byte, TLS, and
            the rest. A connector waits `CLIENT_PATIENCE` times longer.
        linger_s: time for the peer to read the last message of a closing end.
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
    max_tls_handshakes: int = 512
    handshake_s: float = 15.0
    linger_s: float = 1.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not (value is None and item.default is None) and not value > 0:
                raise NetworkError(f"limit {item.name} must be more than 0, not {value!r}")


def check_heartbeat(heartbeat_s: float, heartbeat_timeout_s: float) -> None:
    """Check the heartbeat that a server demands.

    Raises:
        AuthenticationFailed: it or its timeout is too short or too long.
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
    """Check that the peer accepts any messages at all.

    Raises:
        LimitExceeded: it accepts none.
    """
    if max_message_bytes < 1 or max_streams < 1:
        raise LimitExceeded(
            f"the peer accepts messages of {max_message_bytes} bytes, {max_streams} at a time; "
            "both must be at least 1"
        )


IDENTITY = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9._@-]{0,63}")


def check_identity(identity: str) -> None:
    """Check that an identity is a valid name of a certificate and a folder.

    Raises:
        AuthenticationFailed: it is not.
    """
    if not IDENTITY.fullmatch(identity):
        raise AuthenticationFailed(
            f"identity {identity[:80]!r}: use 1 to 64 letters, digits, dots, dashes, underscores "
            "or @, and do not begin with a dot or a dash"
        )
