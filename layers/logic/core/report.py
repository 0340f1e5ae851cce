"""What a round tells about itself: who took part, what became of it, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from layers.logic.core.peers import Traffic
from layers.logic.core.times import Times


@dataclass(frozen=True)
class ClientReport:
    """One client's part in a round.

    Attributes:
        status: whether its update counted, was refused by the gate, was declined when offered, or
            never came.
        reason: why it did not count; empty when it did.
        metrics: the numbers that its update carried.
        times: when it did what; None for a stranger to the plan.
    """

    client: int
    status: Literal["accepted", "rejected", "declined", "lost"]
    reason: str = ""
    traceback: str = ""
    samples: int = 0
    steps: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    times: Times | None = field(default=None, compare=False)


@dataclass(frozen=True)
class RoundReport:
    """One round.

    Attributes:
        round: from 1.
        learning_rate: the learning rate of this round.
        selected: how many clients the plan had.
        clients: those in the order of the plan, then refused updates of others, or second ones.
        traffic: sum over all clients, surveys and strangers to the plan included.
        took_s: seconds by the clock, virtual or real, from the first task to the end.
    """

    round: int
    learning_rate: float
    selected: int
    clients: tuple[ClientReport, ...]
    traffic: Traffic
    took_s: float = field(default=0.0, compare=False)

    def of(self, status: str) -> tuple[int, ...]:
        """Return the clients with this status."""
        return tuple(report.client for report in self.clients if report.status == status)

    @property
    def loss(self) -> float | None:
        """Mean of the counted clients' losses, weighted by their samples; None without any."""
        told = [
            (report.metrics["loss"], report.samples)
            for report in self.clients
            if report.status == "accepted" and "loss" in report.metrics
        ]
        if not told:
            return None
        return sum(loss * n for loss, n in told) / sum(n for _, n in told)
