"""A server's clients at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ClientsNow:
    """Who is there, and who is waited for. Times are seconds since 1970.

    Attributes:
        address: where the server listens.
        number: how many clients the run has; None: any number.
        ready: the clients that are connected and ready.
        away: the clients that were ready and may come back, with the times at which they left.
        waiting_for: what is waited for: clients, answers or updates; empty: for nothing.
        waited_for: the clients that it is waited for.
        since: when the waiting began.
        received_bytes: bytes from clients in this process, frames of every kind.
        sent_bytes: bytes to clients in this process, frames of every kind.
        refused_connections: connections that were turned away, or ended for what they sent.
        reconnections: how often a client came back that had been ready before.
    """

    address: str
    number: int | None = None
    ready: tuple[int, ...] = ()
    away: Mapping[int, float] = field(default_factory=dict)
    waiting_for: str = ""
    waited_for: tuple[int, ...] = ()
    since: float = 0.0
    received_bytes: int = 0
    sent_bytes: int = 0
    refused_connections: int = 0
    reconnections: int = 0
