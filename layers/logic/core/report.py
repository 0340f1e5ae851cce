"""What a round reports: who took part, what became of each client, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from layers.logic.core.messages import Offer
from layers.logic.errors import LogicError


@dataclass(frozen=True)
class Traffic:
    """Lengths of the encoded frames between the server and one client.

    Attributes:
        down_bytes: to the client.
        up_bytes: from the client.
    """

    down_bytes: int = 0
    up_bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.down_bytes + other.down_bytes, self.up_bytes + other.up_bytes)


@dataclass(frozen=True)
class Times:
    """Moments in seconds since the round began; None: it did not come to that.

    Attributes:
        asked_s: its task was sent.
        trained_s: it had trained, as far as that is known.
        decided_s: the verdict on its offer was given.
        sending_s: its update began to travel.
        ended_s: its update had arrived, or it was given up.
    """

    asked_s: float
    trained_s: float | None = None
    decided_s: float | None = None
    sending_s: float | None = None
    ended_s: float | None = None


@dataclass(frozen=True)
class ClientReport:
    """One client's part in a round.

    Attributes:
        status: whether its update counted, was refused by the gate, was declined when offered, or
            never came.
        reason: why it did not count; empty when it did.
        metrics: the numbers that its update carried.
        times: when it did what; None for a stranger to the plan.
        offer: what it offered, whatever became of it; None without an offer.
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
    offer: Offer | None = field(default=None, compare=False)


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
        numbers: that hooks gave for the round's record, such as a privacy budget.
    """

    round: int
    learning_rate: float
    selected: int
    clients: tuple[ClientReport, ...]
    traffic: Traffic
    took_s: float = field(default=0.0, compare=False)
    numbers: Mapping[str, float] = field(default_factory=dict)

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


class TooFewUpdates(LogicError):
    """A round ended with fewer accepted updates than the experiment asks for.

    The global model is unchanged and the round does not count: it can be run again.

    Attributes:
        report: what became of each client.
    """

    def __init__(self, got: int, need: int, report: RoundReport) -> None:
        self.got, self.need, self.report = got, need, report
        super().__init__(
            f"round {report.round}: {got} of the {need} updates that logic.min_updates asks for "
            "arrived; the model is unchanged; see clients.jsonl for each client's reason, or lower "
            "logic.min_updates"
        )
