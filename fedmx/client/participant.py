"""A client at work: it takes tasks, trains, and keeps the memory of its hooks in a ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from layers.compute.data.samples import Samples
from layers.compute.engines.compute import Compute
from layers.logic import (
    Answer,
    ClientLedger,
    ClientState,
    Logic,
    Question,
    Task,
    Update,
    answer,
    answer_question,
)


def _nowhere(ledger: ClientLedger) -> None:
    """Keep nothing: whoever holds the participant takes its ledger."""


@dataclass
class Participant:
    """The same in a simulation and in a deployed client.

    Attributes:
        keep: called with the new ledger before the update leaves, so that it can be made durable.
        assets: what every client was given, by name.
    """

    client: int
    logic: Logic
    compute: Compute
    ledger: ClientLedger
    keep: Callable[[ClientLedger], None] = _nowhere
    assets: Mapping[str, Samples] = field(default_factory=dict)

    def take(self, task: Task) -> Update:
        """Train, and note the memory that holds if the update counts."""
        ledger = self.ledger.settle(task.last_accepted_round)
        compute = self.compute
        update, after = answer(
            task, ledger.settled, compute.engine, compute.samples, self.logic, self.assets
        )
        ledger = ClientLedger(ledger.settled, ClientState(task.round, after.memory))
        self.keep(ledger)
        self.ledger = ledger
        return update

    def reply(self, question: Question) -> Answer:
        """Answer a question of the server."""
        compute = self.compute
        return answer_question(self.client, question, compute.engine, compute.samples, self.logic)
