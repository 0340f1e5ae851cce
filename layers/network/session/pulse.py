"""The heartbeat of an open session: when to send one, and when the peer's silence is too long."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Pulse:
    """When something came and went last; `now` is when the session began.

    Attributes:
        now: in seconds of a monotonic clock, as all moments here.
        every_s: of this end's silence after which a heartbeat is sent.
        timeout_s: of the peer's silence after which it is lost.
        received_at: when something came from the peer last.
        ping_waits: whether the next heartbeat waits to be sent already.
    """

    now: float
    every_s: float = 0.0
    timeout_s: float = 0.0
    received_at: float = field(init=False)
    ping_waits: bool = False

    def __post_init__(self) -> None:
        self.received_at = self._sent_at = self.now

    def sent(self, now: float) -> None:
        """Take note that something was sent."""
        self._sent_at = now
        self.ping_waits = False

    def due(self) -> float:
        """Return when a heartbeat is to be sent, or the peer is lost."""
        dead = self.received_at + self.timeout_s
        return dead if self.ping_waits else min(dead, self._sent_at + self.every_s)

    def is_dead(self, now: float) -> bool:
        """Return whether the peer has been silent for too long."""
        return now >= self.received_at + self.timeout_s
