"""One round as users see it: the logic layer's report, the evaluation, and the cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmx.display import card
from fedmx.errors import FedmxError
from fedmx.journal.chain import CHAIN
from fedmx.journal.journal import Journal
from fedmx.quantities import RESERVED, metrics_in, record_of
from fedmx.report.formats import SHOW, duration, mebibytes, number
from fedmx.run.durable import CHECKSUM
from fedmx.server.evaluation import Evaluation
from fedmx.server.step_back import StepBack
from layers.compute.engines.evaluation import ACCURACY, LOSS
from layers.logic import RoundReport


@dataclass(frozen=True, repr=False)
class Round:
    """One concluded round.

    Attributes:
        report: who took part, and the fate of each client's update.
        evaluation: of the global model; empty where it was not evaluated.
        seconds: duration of the round, evaluation included.
        elapsed_s: seconds since the run began, without interruptions.
        clock_elapsed_s: sum of the rounds' durations by the clients' clock (`report.took_s`), and
            of the virtual time between rounds in which no client was available.
        virtual: whether that clock's time is virtual.
        epsilon: what the run has spent of its privacy up to this round; None: it is not private.
        stepped_back: the steps back after which this round was run.
        model_sha256: the SHA-256 (hex) of the model after the round.
        journal: the events and commands of the round.
    """

    report: RoundReport
    evaluation: Evaluation
    seconds: float
    elapsed_s: float
    clock_elapsed_s: float = 0.0
    virtual: bool = False
    epsilon: float | None = None
    stepped_back: tuple[StepBack, ...] = ()
    model_sha256: str = ""
    journal: Journal = field(default_factory=lambda: Journal(0))

    @property
    def round(self) -> int:
        """Number of the round, from 1."""
        return self.report.round

    @property
    def accuracy(self) -> float | None:
        """Accuracy of the global model on the server's samples, 0 to 1; None: not evaluated."""
        return self.evaluation.accuracy

    @property
    def loss(self) -> float | None:
        """Mean loss of the global model on these samples; None: not evaluated."""
        return self.evaluation.loss

    @property
    def client_accuracy_mean(self) -> float | None:
        """Mean over clients of the accuracy on a client's own test samples; None: not evaluated."""
        return self.evaluation.over_clients()[0]

    @property
    def client_accuracy_variance(self) -> float | None:
        """Variance of these accuracies; None: not evaluated."""
        return self.evaluation.over_clients()[1]

    @property
    def measured(self) -> Mapping[str, Any]:
        """The values of metrics and of other measurements, such as of personal models, by name."""
        of_metrics = {
            key: value
            for key, value in self.evaluation.values.items()
            if key not in (ACCURACY, LOSS)
        }
        return {**of_metrics, **self.evaluation.measured}

    @property
    def participants(self) -> tuple[int, ...]:
        """The clients whose updates were accepted."""
        return self.report.of("accepted")

    @property
    def train_loss(self) -> float | None:
        """The participants' mean loss, weighted by their samples."""
        return self.report.loss

    @property
    def up_bytes(self) -> int:
        """Bytes of the messages from clients."""
        return self.report.traffic.up_bytes

    @property
    def down_bytes(self) -> int:
        """Bytes of the messages to clients."""
        return self.report.traffic.down_bytes

    @property
    def control_bytes(self) -> int:
        """Bytes of handshakes, heartbeats and other control frames."""
        return self.report.overhead.control_bytes

    @property
    def file_bytes(self) -> int:
        """Bytes of the files sent to clients, in both directions together."""
        return self.report.overhead.file_bytes

    @property
    def rejected_connections(self) -> tuple[str, ...]:
        """Why peers were rejected since the round before."""
        return self.report.overhead.rejected_connections

    @property
    def update_blake3(self) -> Mapping[int, tuple[str, ...]]:
        """By participant, the BLAKE3 hashes (hex) of its encoded updates, by pass or task."""
        hashes: dict[int, tuple[str, ...]] = {}
        for one in self.report.clients:
            if one.status == "accepted":
                own = self.journal.updates_of(one.client, one.task_round)
                hashes[one.client] = (*hashes.get(one.client, ()), *own)
        return hashes

    @property
    def tasks(self) -> int:
        """Number of tasks that were sent."""
        return self.report.tasks

    @property
    def staleness(self) -> tuple[int, ...] | None:
        """The staleness of each accepted update, if tasks may outlive the round; otherwise None."""
        if self.report.in_flight is None:
            return None
        accepted = (one for one in self.report.clients if one.status == "accepted")
        return tuple(one.staleness or 0 for one in accepted)

    @property
    def updates(self) -> int:
        """Number of updates that arrived, accepted or rejected."""
        return sum(client.status in ("accepted", "rejected") for client in self.report.clients)

    def __repr__(self) -> str:
        return (
            f"<Round {self.round}: {', '.join(f'{name} {value}' for name, value in self._rows())}>"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return card(f"Round {self.round}", self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("updates", f"{len(self.participants)} of {self.tasks}")]
        values = self.evaluation.values
        if values:
            metrics = metrics_in({"metrics": [{"key": key} for key in values if key != LOSS]})
            shown = [one for one in metrics if isinstance(values.get(one.key), float)]
            texts = [(one.words, SHOW[one.unit](values[one.key])) for one in shown]
            rows[:0] = [*texts, (LOSS, number(self.loss))]
        rows += [("up", mebibytes(self.up_bytes)), ("down", mebibytes(self.down_bytes))]
        return [*rows, ("time", duration(self.seconds))]

    def record(self) -> dict[str, Any]:
        """Return the round's line of rounds.jsonl.

        Raises:
            FedmxError: a hook records a number under a name of this line.
        """
        line = record_of(self)
        if taken := sorted({*line, *RESERVED, CHAIN, CHECKSUM} & {*self.report.numbers}):
            raise FedmxError(
                f"round {self.round}: a hook records {', '.join(taken)}, but the round's record "
                "has that name already; call context.record() with another name"
            )
        return {**self.report.numbers, **line}

    def client_records(self) -> list[dict[str, Any]]:
        """Return the round's lines of clients.jsonl."""
        return [
            {
                # First, so that clients' names replace no others.
                **{name: one for name, one in client.metrics.items() if name != CHECKSUM},
                "round": self.round,
                "client": client.client,
                "status": client.status,
                "reason": client.why,
                "traceback": client.traceback,
                "samples": client.samples,
                "steps": client.steps,
                "up_bytes": client.traffic.up_bytes,
                "down_bytes": client.traffic.down_bytes,
                "update_blake3": list(self.journal.updates_of(client.client, client.task_round))
                if client.status == "accepted"
                else [],
                **(
                    {
                        "version": client.version,
                        "staleness": client.staleness,
                        "tasks": client.tasks,
                    }
                    if client.version is not None
                    else {}
                ),
                **({"share": client.share} if client.share is not None else {}),
                **({"liar": True} if client.malicious else {}),
                **(vars(client.times) if client.times is not None else {}),
            }
            for client in (*self.report.clients, *self.report.others)
        ]
