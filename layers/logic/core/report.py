"""The report of a round: who took part, the fate of each update, and the cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from layers.arithmetic import sum_in_order
from layers.logic.core.messages import Offer, Slot
from layers.logic.errors import LogicError


@dataclass(frozen=True)
class Traffic:
    """Lengths of the encoded frames between the server and one client.

    Attributes:
        down_bytes: bytes to the client.
        up_bytes: bytes from the client.
    """

    down_bytes: int = 0
    up_bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.down_bytes + other.down_bytes, self.up_bytes + other.up_bytes)


@dataclass(frozen=True)
class Times:
    """The times of one client, in seconds since the round began; None: that did not happen.

    Attributes:
        asked_s: its task was sent.
        trained_s: its training ended, as far as that is known.
        decided_s: the verdict on its offer was given.
        sending_s: its upload began.
        ended_s: its update arrived, or it was declined, rejected or lost.
    """

    asked_s: float
    trained_s: float | None = None
    decided_s: float | None = None
    sending_s: float | None = None
    ended_s: float | None = None


@dataclass(frozen=True)
class Overhead:
    """The cost of a round besides its messages.

    Attributes:
        control_bytes: bytes of handshakes, heartbeats and other control frames.
        file_bytes: bytes of the files sent to clients, in both directions together.
        rejected_connections: why peers were rejected.
        operator: what an operator told the server, with the times.
        other_versions: the clients that joined with another version of the program.
    """

    control_bytes: int = 0
    file_bytes: int = 0
    rejected_connections: tuple[str, ...] = ()
    operator: tuple[str, ...] = ()
    other_versions: tuple[str, ...] = ()

    def __add__(self, other: Overhead) -> Overhead:
        return Overhead(
            self.control_bytes + other.control_bytes,
            self.file_bytes + other.file_bytes,
            self.rejected_connections + other.rejected_connections,
            self.operator + other.operator,
            self.other_versions + other.other_versions,
        )


@dataclass(frozen=True)
class ClientReport:
    """One client's part in a round.

    Attributes:
        client: number of the client.
        status: the fate of its update: accepted, rejected, declined or lost; in-flight: the round
            has sent the task, and has ended before the update arrived; not-selected: the client is
            not in the plan, but has sent or received messages, such as an answer to the selector.
        reason: why the update was not accepted; empty if it was.
        traceback: traceback of an error, the client's or of a server side; empty without one.
        samples: number of its samples, n_k.
        steps: number of its local steps.
        metrics: the metrics of its update.
        traffic: bytes of its messages in this round.
        times: its times; None for a client outside of the plan.
        offer: its offer, whatever the verdict; None without an offer.
        code: ``"cannot-train"`` if it could not train on the model that it was sent; else empty.
        peak: how far its accepted update goes, in weights or in buffers (see `check_content`).
        counted_before: whether earlier passes of its lane were accepted, and this one was not.
        task_round: the number of its task (see `Task.round`); 0: it had none.
        version: the version of the model that its task started from, in a round whose tasks may
            outlive it; otherwise None.
        staleness: the number of versions between that one and the model of this round; otherwise
            None.
        tasks: the tasks that this round sent to it, as far as they are not in another of its
            reports.
        share: how much its accepted update counted in the aggregation, as a share of all; 0 if the
            aggregator left it out; None if the aggregator does not say.
        malicious: whether an attack of the experiment lets it lie.
    """

    client: int
    status: Literal["accepted", "rejected", "declined", "lost", "in-flight", "not-selected"]
    reason: str = ""
    traceback: str = ""
    samples: int = 0
    steps: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    times: Times | None = field(default=None, compare=False)
    offer: Offer | None = field(default=None, compare=False)
    code: str = ""
    peak: float = 0.0
    counted_before: bool = False
    task_round: int = field(default=0, compare=False)
    version: int | None = None
    staleness: int | None = None
    tasks: int = field(default=0, compare=False)
    share: float | None = None
    malicious: bool = False

    @property
    def why(self) -> str:
        """Why the update was not accepted, and whether earlier ones of this round were."""
        before = "; what it sent in earlier passes counts" if self.counted_before else ""
        return f"{self.reason}{before}"


@dataclass(frozen=True)
class RoundReport:
    """The report of one round.

    Attributes:
        round: number of the round, from 1.
        learning_rate: learning rate of this round.
        selected: number of clients in the plan; in an asynchronous round, of clients that were
            selected while it collected.
        clients: the clients in the order of the plan; then rejected updates of other clients, and
            second updates. In an asynchronous round, a client has one report for each task that
            ended. The tasks before a client's last one come first, then the last ones, each in the
            order of their ends; then come the tasks that were sent and are in flight.
        traffic: sum over all clients, with surveys and clients outside of the plan.
        took_s: duration in seconds by the clock, virtual or real, from the first task to the end.
        waited_s: virtual seconds before the round in which no client was available.
        overhead: the cost besides messages.
        numbers: numbers from hooks for the round's record, such as a privacy budget.
        in_flight: number of tasks in flight at the end of a round whose tasks may outlive it;
            otherwise None.
        suspended: the clients that are not asked for a time after the round, with the seconds (see
            `Waiting`).
        evaluations: by client, the sums of its results with the new model on samples of its own.
        others: the clients outside of the plan that had messages, in the order of their numbers.
    """

    round: int
    learning_rate: float
    selected: int
    clients: tuple[ClientReport, ...]
    traffic: Traffic
    took_s: float = field(default=0.0, compare=False)
    waited_s: float = field(default=0.0, compare=False)
    overhead: Overhead = field(default_factory=Overhead, compare=False)
    numbers: Mapping[str, float] = field(default_factory=dict)
    in_flight: int | None = None
    suspended: Mapping[int, float] = field(default_factory=dict, compare=False)
    others: tuple[ClientReport, ...] = ()
    evaluations: Mapping[int, Slot] = field(default_factory=dict, compare=False)

    @property
    def tasks(self) -> int:
        """Number of tasks that this round has sent."""
        return sum(one.tasks for one in self.clients)

    def of(self, status: str) -> tuple[int, ...]:
        """Return the clients with this status."""
        return tuple(report.client for report in self.clients if report.status == status)

    @property
    def loss(self) -> float | None:
        """Mean loss of the accepted clients, weighted by their samples; None without any."""
        losses = [
            (report.metrics["loss"], report.samples)
            for report in self.clients
            if report.status == "accepted" and "loss" in report.metrics
        ]
        if not losses:
            return None
        return sum_in_order(loss * n for loss, n in losses) / sum(n for _, n in losses)


class BrokenModel(LogicError):
    """A round cannot be concluded: clients cannot train on its model, or it made a broken one.

    The state before the round is unchanged.

    Attributes:
        report: the report of the round.
        at_start: whether the model that the round began with is broken, so that the state before it
            is no good, either; otherwise the round made the broken model.
    """

    def __init__(self, why: str, report: RoundReport, at_start: bool) -> None:
        self.report, self.at_start = report, at_start
        super().__init__(why)


class TooFewUpdates(LogicError):
    """A round ended with fewer accepted updates than the experiment asks for.

    The global model is unchanged and the round does not count: it can be run again.

    Attributes:
        got: number of accepted updates.
        need: number of updates that were needed.
        report: the report of the round.
    """

    def __init__(self, got: int, need: int, report: RoundReport) -> None:
        self.got, self.need, self.report = got, need, report
        first = next(
            (
                f"; client {one.client}: {one.why}"
                for status in ("rejected", "lost")
                for one in report.clients
                if one.status == status and one.reason
            ),
            "",
        )
        if not (report.selected or report.clients):
            first = "; the selector selected no client"
        rejected = [one.reason for one in report.clients if one.status == "rejected"]
        if not rejected:
            advice = ", or lower logic.min_updates"
        elif all("logic.max_update" in reason for reason in rejected):
            advice = "; lower compute.train.learning_rate, or set compute.normalise"
        else:
            advice = ""  # an error that the user should fix, not skip
        super().__init__(
            f"round {report.round}: {got} of the {need} updates that logic.min_updates asks for "
            f"were accepted{first}; the model is unchanged; see clients.jsonl for each client's "
            f"reason{advice}"
        )
