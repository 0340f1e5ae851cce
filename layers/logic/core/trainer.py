"""The trainer: how a client makes its update from the received model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layers.logic.core.declaration import Part, Trait
from layers.logic.core.engine import Batches, Correct, Data, Engine, TrainReport
from layers.logic.core.gradient_term import GradientTerm
from layers.logic.core.hook import ClientContext
from layers.logic.core.messages import Task, Training

TRAINER = "trainer"
"""The key of a trainer's memory in `ClientState.memory`."""

OPTIMISER = "optimiser"
"""The key of the kept state of the optimiser in the memory of a trainer."""


@dataclass(frozen=True)
class Job:
    """What a trainer works with, on one task of a client.

    Attributes:
        task: the task, with the received model, and how the client trains.
        engine: trains the model; for `Trainer.train` it has loaded the received one.
        data: the client's samples.
        correct: the hooks' change of each local step's gradient; None: hooks change none.
        context: the context, with the trainer's memory and random streams.
        terms: the terms of the hooks, if `correct` adds these alone; None: it does more.
    """

    task: Task
    engine: Engine
    data: Data
    correct: Correct | None
    context: ClientContext
    terms: Sequence[GradientTerm | None] | None = None


class Trainer(Part, ABC):
    """The local training of a client; its settings are the attributes of a frozen dataclass.

    Its memory from round to round, such as a model of the client's own, is ``context.memory``.
    """

    @abstractmethod
    def train(self, job: Job) -> TrainReport:
        """Train; afterwards the engine holds the model that the client returns."""

    def personal(self, job: Job) -> None:
        """Load the model that this client uses itself; by default the received one.

        The received model is the global one, with the client's own tensors. Hooks change no
        gradient here, and the trainer's memory does not change.
        """
        job.engine.load(job.task.weights, job.task.buffers)


def received(task: Task) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the reference model that every trainer gives to a loss: the received one."""
    return {"received": (task.weights, task.buffers)}


def local_steps(
    job: Job,
    training: Training,
    seed: int,
    correct: Correct | None = None,
    keep: bool = False,
) -> TrainReport:
    """Take the steps of a training from the loaded model.

    With `keep`, an optimiser that keeps its state begins with that of the client's memory, and
    leaves it there. Only one training of a task should.
    """
    batches = _batches(job, training, seed, keep)
    for batch in batches:
        job.engine.step(batch, correct)
    if keep and batches.kept:
        job.context.keep(**{OPTIMISER: batches.kept})
    return batches.report()


def _batches(job: Job, training: Training, seed: int, keep: bool) -> Batches:
    kept = job.context.memory.get(OPTIMISER, {}) if keep else {}
    return job.engine.batches(job.data, training, seed, references=received(job.task), kept=kept)


@dataclass(frozen=True)
class LocalSgd(Trainer):
    """Local training from the received model (McMahan et al. 2017), by `compute.train`."""

    name = "local-sgd"
    provides = frozenset({Trait.KEEPS_OPTIMISER})

    def train(self, job: Job) -> TrainReport:
        return local_steps(job, job.task.training, job.task.seed, job.correct, keep=True)

    def batches(self, job: Job) -> Batches | None:
        """Return the mini-batches of `train`; None: a subclass trains in another way."""
        if type(self).train is not LocalSgd.train:
            return None
        return _batches(job, job.task.training, job.task.seed, keep=True)
