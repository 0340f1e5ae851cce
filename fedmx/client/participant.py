"""A client at work: its training, its memory across rounds, and the estimate of its speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedmx.run.checkpoint import read_checkpoint, write_checkpoint
from fedmx.run.durable import PRIVATE_FOLDER
from fedmx.run.secret_file import kept_key
from layers.compute.data.dataset import Samples
from layers.compute.engines.engine import Compute
from layers.logic import (
    Answer,
    ClientLedger,
    Logic,
    Question,
    Task,
    Update,
    answer_question,
)
from layers.logic.clock.devices import trained_samples
from layers.logic.core.hook import Process
from layers.logic.core.trainer import Job
from layers.logic.round.client import prepared
from layers.logic.round.pipeline import Trace
from layers.logic.secrets import Secret


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
        trace: takes the task and the update after each step; None: nothing does.
        secret: the client's secret; None: it follows the seed.
        process: the process of a deployed client; None: it is simulated.
    """

    client: int
    logic: Logic
    compute: Compute
    ledger: ClientLedger
    keep: Callable[[ClientLedger], None] = _discard
    assets: Mapping[str, Samples] = field(default_factory=dict)
    trace: Trace | None = None
    secret: Secret | None = None
    process: Process | None = None

    def train(self, task: Task) -> Update:
        """Return the update for a task; keep the memory that is valid if the update is accepted."""
        job, finish = self.prepared(task)
        return finish(self.logic.trainer.train(job))

    def prepared(self, task: Task) -> tuple[Job, Callable[[Any], Update]]:
        """Return the trainer's work on a task, and what makes the update of the trainer's report.

        See `layers.logic.round.client.prepared`.
        """
        ledger = self.ledger.settle(task.last_accepted_round, task.pass_number)
        round_memory = ledger.within.at(task.round, task.step)
        compute = self.compute
        job, finish = prepared(
            task,
            ledger.start,
            compute.engine,
            compute.samples,
            self.logic,
            self.assets,
            self.trace,
            round_memory,
            self.secret,
            self.process,
        )

        def keep(report: Any) -> Update:
            update, after = finish(report)
            if update.cannot_train:  # the server may step back to a round whose memory is here
                return update
            within = ledger.within.passed(task.round, task.step, round_memory)
            trained = ledger.trained(after, within)
            self.keep(trained)
            self.ledger = trained
            return update

        return job, keep

    def answer(self, question: Question) -> Answer:
        """Return the answer to a question of the server; keep what hooks share in the round."""
        compute, ledger = self.compute, self.ledger
        answer, within = answer_question(
            self.client,
            question,
            compute.engine,
            compute.samples,
            self.logic,
            ledger.within,
            self.secret,
            compute.sums,
            self.process,
        )
        if within is not self.ledger.within:
            self.ledger = replace(self.ledger, within=within)
            self.keep(self.ledger)
        return answer


class ClientMemory:
    """The ledger and the secret of one client in one run.

    Args:
        folder: the folder of both, with files for each run and client; None: in this process only.
        run: name of the run.
        client: number of the client.
    """

    def __init__(self, folder: Path | None, run: str, client: int) -> None:
        self._path = None if folder is None else folder / f"{run}-client-{client}.safetensors"
        self._kept: ClientLedger | None = None
        kept = None if self._path is None else self._path.with_suffix(".secret")
        self._secret_path = kept
        self.secret = Secret.fresh() if kept is None else Secret(lambda: kept_key(kept))

    def load(self) -> ClientLedger:
        """Return the saved ledger, or an empty one.

        Raises:
            CheckpointError: the file is damaged.
        """
        if self._kept is None and self._path is not None and self._path.exists():
            self._kept = ClientLedger.of_tree(read_checkpoint(self._path).state)
        return self._kept or ClientLedger()

    def keep(self, ledger: ClientLedger) -> None:
        """Write the ledger beside the old one, then replace the old one."""
        self._kept = ledger
        states = (ledger.settled, ledger.passed, ledger.pending)
        has_memory = ledger.within.round or any(state and state.memory for state in states)
        if self._path is None or not has_memory:
            return  # there is nothing to save
        self._path.parent.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        write_checkpoint(self._path, ledger.settled.round, ledger.tree())

    def discard(self) -> None:
        """Remove the ledger and the secret of a run that has ended."""
        self._kept = None
        for path in (self._path, self._secret_path):
            if path is not None:
                path.unlink(missing_ok=True)


WEIGHT = 0.5  # of the last measurement against those before it


@dataclass
class SpeedEstimate:
    """Exponential moving averages of measurements; None: nothing was measured yet.

    Attributes:
        sample_s: seconds of training for one sample.
        bytes_per_s: bandwidth of uploads.
        update_bytes: size of the last update.
    """

    sample_s: float | None = None
    bytes_per_s: float | None = None
    update_bytes: int = 0
    _sending: tuple[float, int] | None = None

    def trained(self, task: Task, update: Update, seconds: float) -> None:
        """Record the duration of a task's training."""
        samples = trained_samples(update.samples, task.training)
        if samples:
            self.sample_s = _averaged(self.sample_s, seconds / samples)

    def sending(self, bytes: int) -> None:
        """Record that an update of this size is queued for sending now."""
        self.update_bytes = bytes
        self._sending = time.monotonic(), bytes

    def sent(self) -> None:
        """Record that the update was sent completely."""
        if self._sending is not None:
            began, bytes = self._sending
            self._sending = None
            seconds = max(time.monotonic() - began, 1e-6)
            self.bytes_per_s = _averaged(self.bytes_per_s, bytes / seconds)

    @property
    def upload_s(self) -> float:
        """Estimated seconds of an upload; 0 if nothing was measured yet."""
        return self.update_bytes / self.bytes_per_s if self.bytes_per_s else 0.0

    def improve(self, answer: Answer, question: Question, samples: int) -> Answer:
        """Return the answer to a question about times, with the estimates as its values."""
        values = dict(answer.values)
        if self.sample_s is not None:
            values["train_s"] = self.sample_s * trained_samples(samples, question.training)
        values["upload_s"] = self.upload_s
        return replace(answer, values=values)


def _averaged(before: float | None, now: float) -> float:
    return now if before is None else WEIGHT * now + (1 - WEIGHT) * before
