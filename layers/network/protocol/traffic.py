"""Bytes that crossed a connection, by what they were for."""

from __future__ import annotations

from dataclasses import dataclass, fields

from layers.network.protocol.frames import FILE_KINDS, MESSAGE_KINDS, Kind


@dataclass(frozen=True)
class ConnectionTraffic:
    """Bytes so far, without TLS's own; the three kinds together are all bytes of the socket."""

    message_bytes_sent: int = 0
    message_bytes_received: int = 0
    file_bytes_sent: int = 0
    file_bytes_received: int = 0
    control_bytes_sent: int = 0
    control_bytes_received: int = 0

    @property
    def sent_bytes(self) -> int:
        """All bytes sent."""
        return self.message_bytes_sent + self.file_bytes_sent + self.control_bytes_sent

    @property
    def received_bytes(self) -> int:
        """All bytes received."""
        return self.message_bytes_received + self.file_bytes_received + self.control_bytes_received

    def __add__(self, other: ConnectionTraffic) -> ConnectionTraffic:
        pairs = ((getattr(self, item.name), getattr(other, item.name)) for item in fields(self))
        return ConnectionTraffic(*(one + two for one, two in pairs))


class Meter:
    """Counts the traffic of one connection."""

    def __init__(self) -> None:
        self._sent = [0, 0, 0]
        self._received = [0, 0]
        self._received_total = 0

    def sent(self, kind: Kind, size: int) -> None:
        """Count bytes of a frame that is sent."""
        self._sent[_column(kind)] += size

    def received(self, kind: Kind, size: int) -> None:
        """Count received bytes by what they are for."""
        if kind in MESSAGE_KINDS or kind in FILE_KINDS:
            self._received[_column(kind)] += size

    def received_total(self, size: int) -> None:
        """Count received bytes, whatever they are for."""
        self._received_total += size

    def read(self) -> ConnectionTraffic:
        """Return the traffic so far; bytes of neither a message nor a file are control bytes."""
        message, file = self._received
        control = self._received_total - message - file
        return ConnectionTraffic(
            self._sent[0], message, self._sent[1], file, self._sent[2], control
        )


def _column(kind: Kind) -> int:
    if kind in MESSAGE_KINDS:
        return 0
    return 1 if kind in FILE_KINDS else 2
