"""A client at work: it takes tasks, trains, and keeps the memory of its hooks in a ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
from layers.logic.core.survey import HOOKS


def _nowhere(ledger: ClientLedger) -> None:
    """Keep nothing: whoever holds the participant takes its ledger."""


@dataclass
class Participant:
    """The same in a simulation and in a deployed client.

    Attributes:
        keep: called with the new ledger before the update leaves, so that it can be made durable.
        shared: the samples that every client was given, if there are any.
    """

    client: int
    logic: Logic
    compute: Compute
    ledger: ClientLedger
    keep: Callable[[ClientLedger], None] = _nowhere
    shared: Samples | None = None

    def take(self, task: Task) -> Update:
        """Train, and note the memory that holds if the update counts."""
        ledger = self.ledger.settle(task.last_accepted_round)
        compute = self.compute
        update, after = answer(
            task, ledger.settled, compute.engine, compute.samples, self.logic, self.shared
        )
        ledger = ClientLedger(ledger.settled, ClientState(task.round, after.memory))
        self.keep(ledger)
        self.ledger = ledger
        return update

    def reply(self, question: Question) -> Answer:
        """Answer a survey, or a question of the hooks."""
        if question.name == HOOKS:
            return self.logic.answer_hooks(self.client, question)
        return answer_question(self.client, question, self.compute.engine, self.compute.samples)
