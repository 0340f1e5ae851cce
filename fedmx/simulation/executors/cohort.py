"""Groups of clients that train at once, in this process or in workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedmx.assembly.assembly import Assembly
from fedmx.client.participant import Participant
from fedmx.components.engines import TORCH
from fedmx.errors import ExperimentError
from fedmx.log import Log
from fedmx.protocol.loopback import carried
from fedmx.protocol.messages import CODEC
from fedmx.simulation.executors.executor import (
    AnswerResult,
    Executor,
    SerialExecutor,
    TrainResult,
    Work,
    failing,
)
from layers.compute.engines.batches import Batches, Training
from layers.logic import ClientLedger, Question, Task, Update
from layers.logic.core.trainer import Job, LocalSgd
from layers.network import wire_size

if TYPE_CHECKING:
    from layers.compute.engines.torch.cohort import Cohort

log = Log("fedmx.executors")

Group = Sequence[tuple[Task, ClientLedger]]


class GroupExecutor(Executor, Protocol):
    """An executor that trains the clients of a group at once."""

    def submit_group(self, group: Group) -> Sequence[Work]:
        """Submit tasks with the ledgers of their clients; return the work of each."""


@dataclass(eq=False)
class _Held:
    task: Task
    ledger: ClientLedger
    work: Work | None = None


class CohortExecutor:
    """Holds tasks until the first result is needed, and submits them in groups.

    The groups follow from the order of the tasks, so that they are the same with any number of
    workers.

    Args:
        executor: does the work.
        clients: the most clients in a group.
    """

    def __init__(self, executor: GroupExecutor, clients: int) -> None:
        self._executor, self._clients = executor, clients
        self._held: list[_Held] = []

    def __enter__(self) -> CohortExecutor:
        self._executor.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._executor.__exit__(*exc_info)

    def submit(self, task: Task, ledger: ClientLedger) -> Work:
        """Hold a task."""
        held = _Held(task, ledger)
        self._held.append(held)
        size = wire_size(CODEC.encode(task).size)
        return Work(size, lambda: self._result(held), lambda: self._cancel(held))

    def ask(
        self, question: Question, clients: Sequence[int], ledgers: Mapping[int, ClientLedger]
    ) -> Sequence[AnswerResult]:
        """Return the answers of clients, which are not grouped."""
        return self._executor.ask(question, clients, ledgers)

    def _result(self, held: _Held) -> TrainResult:
        if held.work is None:
            self._submit()
        assert held.work is not None
        return held.work.result()

    def _submit(self) -> None:
        for start in range(0, len(self._held), self._clients):
            group = self._held[start : start + self._clients]
            works = self._executor.submit_group([(one.task, one.ledger) for one in group])
            for one, work in zip(group, works, strict=True):
                one.work = work
        self._held = []

    def _cancel(self, held: _Held) -> None:
        if held.work is not None:
            held.work.cancel()
        else:
            self._held.remove(held)


@dataclass(frozen=True, eq=False)
class _Begun:
    """The work on a task before its training; `training` is None if its trainer does more."""

    participant: Participant
    job: Job
    training: Training | None
    finish: Callable[[Any], Update]


class SerialGroups(SerialExecutor):
    """Trains the clients of a group at once in this process, or one after the other if it must."""

    cohort: Cohort
    _told = False  # whether the log says why it must

    def submit_group(self, group: Group) -> Sequence[Work]:
        """Keep a group until a result is requested."""
        received = [(self._received(task)[0], ledger) for task, ledger in group]
        results: list[TrainResult] = []

        def result(number: int) -> TrainResult:
            if not results:
                results.extend(self.train_group(received))
            return results[number]

        return [Work(0, partial(result, number), lambda: None) for number in range(len(group))]

    def train_group(self, group: Group) -> list[TrainResult]:
        """Return the results of a group's tasks.

        Raises:
            ClientFailed: a client's code failed.
        """
        first = self._begin(*group[0])
        with failing(group[0][0]):
            reason = self._reason(first)
        if reason:
            if not self._told:
                log.warning(
                    "cohort_alone", "clients train one after the other: {reason}", reason=reason
                )
                self._told = True
            return [self._train(task, ledger) for task, ledger in group]
        begun = [first, *(self._begin(*one) for one in group[1:])]
        with failing(group[0][0]):
            trained = self.cohort.train([one.training for one in begun if one.training])
        return [
            self._end(task, one, weights)
            for (task, _), one, weights in zip(group, begun, trained, strict=True)
        ]

    def _begin(self, task: Task, ledger: ClientLedger) -> _Begun:
        with failing(task):
            participant = self.participant(task.client, ledger)
            job, finish = participant.prepared(task)
            trainer, training = self._logic.trainer, None
            batches = trainer.batches(job) if isinstance(trainer, LocalSgd) else None
            if isinstance(batches, Batches):
                training = Training(job.task.weights, batches, job.terms or ())
            return _Begun(participant, job, training, finish)

    def _end(self, task: Task, begun: _Begun, weights: np.ndarray) -> TrainResult:
        assert begun.training is not None
        with failing(task):
            self._engine.load(weights, begun.job.task.buffers)
            update, size = carried(begun.finish(begun.training.batches.report()))
        return TrainResult(update, size, begun.participant.ledger)

    def _reason(self, begun: _Begun) -> str:
        """Return why such clients train one after the other; empty: they can train at once."""
        if begun.training is None:
            return f"the trainer {type(self._logic.trainer).__name__} takes steps of its own"
        if begun.job.terms is None:
            return "a hook changes gradients, and declares no term of them"
        return self.cohort.refusal(begun.training)


def groups_of(assembly: Assembly) -> SerialGroups:
    """Return what trains groups of an experiment's clients in this process.

    Raises:
        ExperimentError: the experiment's engine trains one client after the other.
    """
    experiment = assembly.experiment
    if experiment.compute.engine != TORCH:
        raise ExperimentError(
            f"executor: the engine {experiment.compute.engine} trains one client after the other; "
            "set compute.engine: torch, or use executor: processes"
        )
    from layers.compute.engines.torch.cohort import Cohort
    from layers.compute.engines.torch.engine import TorchEngine

    made, engine = SerialGroups.of(assembly), assembly.engine
    assert isinstance(made, SerialGroups)
    assert isinstance(engine, TorchEngine)
    made.cohort = Cohort(engine, assembly.at_once or 1, _tell)
    return made


def _tell(line: str) -> None:
    log.warning("cohort_memory", "{line}", line=line)
