"""The server's round of deployed clients, with a listener that has no network."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from fedmx.deployment.remote_clients import RemoteClients
from layers.logic import Offer, Task, Training, Update
from layers.logic.round.exchange import Begin, Command, Costs, ReportCosts, SendTask

EMPTY = np.zeros(0, np.float32)


def a_task(client: int, round: int = 2, offer: bool = False, after: int = 0) -> Task:
    weights = np.zeros(3, np.float32)
    return Task(round, client, 0, Training(), weights, EMPTY, after, offer=offer)


def an_update(client: int, round: int = 2) -> Update:
    return Update(round, client, 10, 1, np.zeros(3, np.float32), EMPTY, {})


def an_offer(client: int, round: int = 2) -> Offer:
    return Offer(round, client, 10, 1.0)


class NoNetwork:
    """A listener that keeps what is sent, and counts as many bytes as a test says."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.bytes = {"sent_bytes": 0, "received_bytes": 0}
        self.bytes |= {"file_bytes_sent": 0, "file_bytes_received": 0}

    def send(
        self, peer: str, message: Any, address: str | None = None, replace: bool = False
    ) -> int:
        self.sent.append((peer, message))
        return 100

    def next_event(self, timeout_s: float, last: int | None = None) -> None:
        return None

    def last_event(self) -> int:
        return 0

    def disconnect(self, peer: str, reason: str, final: bool = False) -> None:
        self.sent.append((peer, reason))

    def traffic(self) -> Any:
        return SimpleNamespace(**self.bytes)


class Opened(NoNetwork):
    """A listener that is started and closed, and at which nobody may wait."""

    address = "127.0.0.1:1"

    def start(self) -> None:
        self.sent.append(("all", "started"))

    def close(self, linger_s: float, reason: str, final: bool) -> None:
        self.sent.append(("all", "closed"))

    def next_event(self, timeout_s: float, last: int | None = None) -> None:
        assert timeout_s == 0.0, "waits for clients"


class Round:
    """Round 2 with clients 0 to 3, who are ready; `come` gives it what they send."""

    def __init__(self, tasks: list[Task]) -> None:
        self.network: Any = NoNetwork()
        self.clients: Any = RemoteClients(self.network, rejoin_s=60.0)
        self.clients._entered = 1
        self.sessions = self.clients._sessions
        for client in range(4):
            self.sessions.membership.join(client, 10)
        self.carry(Begin(2), *map(SendTask, tasks))

    def carry(self, *commands: Command) -> None:
        """Let the carrier carry out commands, without waiting for an event."""
        for command in commands:
            self.clients._carry(command)

    def come(self, *events: Any) -> list[Any]:
        """Return what the round sees of these events."""
        self.sessions._events.extend(events)
        return self.seen()

    def seen(self) -> list[Any]:
        """Return the events that the round sees now."""
        seen = []
        while self.sessions._events or self.clients._events or self.clients._kept:
            event = self.clients._next()
            if event is not None:
                seen.append(event)
        return seen

    def knows(self, client: int) -> set[int]:
        """Return the rounds after which a client is known to have its memory."""
        return self.sessions.memory_rounds.get(client, set())

    def accounts(self) -> Costs:
        self.carry(ReportCosts())
        (accounts,) = self.seen()
        return accounts

    @property
    def rejections(self) -> tuple[str, ...]:
        return self.accounts().overhead.rejected_connections
