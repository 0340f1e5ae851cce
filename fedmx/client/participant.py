"""A client at work: it trains on tasks, and keeps the memory of its hooks in a ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from layers.compute.data.dataset import Samples
from layers.compute.engines.mxnet.engine import Compute
from layers.logic import (
    Answer,
    ClientLedger,
    Logic,
    Question,
    Task,
    Update,
    answer,
    answer_question,
)


def _discard(ledger: ClientLedger) -> None:
    """Save nothing: the owner of the participant saves its ledger."""


@dataclass
class Participant:
    """A client's work, the same in a simulation and in a deployed client.

    Attributes:
        client: number of the client.
        logic: the logic of the experiment.
        compute: the engine, and the client's samples.
        ledger: the memory of the client's hooks.
        keep: saves the new ledger; called before the update is sent.
        assets: the samples that every client was given, by name of the asset.
    """

    client: int
    logic: Logic
    compute: Compute
    ledger: ClientLedger
    keep: Callable[[ClientLedger], None] = _discard
    assets: Mapping[str, Samples] = field(default_factory=dict)

    def train(self, task: Task) -> Update:
        """Return the update for a task; keep the memory that is valid if the update is accepted."""
        ledger = self.ledger.settle(task.last_accepted_round, task.pass_number)
        compute = self.compute
        update, after = answer(
            task, ledger.start, compute.engine, compute.samples, self.logic, self.assets
        )
        if update.cannot_train:  # the server may step back to a round whose memory is still here
            return update
        ledger = ledger.trained(after)
        self.keep(ledger)
        self.ledger = ledger
        return update

    def answer(self, question: Question) -> Answer:
        """Return the answer to a question of the server."""
        compute = self.compute
        return answer_question(self.client, question, compute.engine, compute.samples, self.logic)
