"""The trainer: how a client makes its update from the received model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from layers.logic.core.declaration import Part
from layers.logic.core.engine import Correct, Data, Engine, TrainReport
from layers.logic.core.hook import ClientContext
from layers.logic.core.messages import Task

TRAINER = "trainer"
"""The key of a trainer's memory in `ClientState.memory`."""


class Trainer(Part, ABC):
    """The local training of a client; its settings are the attributes of a frozen dataclass.

    Its memory from round to round, such as a model of the client's own, is ``context.memory``.
    """

    @abstractmethod
    def train(
        self,
        task: Task,
        engine: Engine,
        data: Data,
        correct: Correct | None,
        context: ClientContext,
    ) -> TrainReport:
        """Train on `data`; afterwards the engine holds the model that the client returns.

        Args:
            task: the task, with the received model, which the engine has loaded.
            engine: trains the model.
            data: the client's samples.
            correct: the hooks' change of each local step's gradient; None: hooks change none.
            context: the context, with the trainer's memory and random streams.
        """

    def personal(self, task: Task, engine: Engine, data: Data, context: ClientContext) -> None:
        """Load the model that this client uses itself; by default the one of `task`.

        Args:
            task: the global model, with the client's own tensors, and how clients train.
            engine: takes the model.
            data: the client's training samples.
            context: the context, with the trainer's memory, which does not change.
        """
        engine.load(task.weights, task.buffers)


def received(task: Task) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the reference model that every trainer gives to a loss: the received one."""
    return {"received": (task.weights, task.buffers)}


@dataclass(frozen=True)
class LocalSgd(Trainer):
    """Local SGD from the received model (McMahan et al. 2017)."""

    name = "local-sgd"

    def train(
        self,
        task: Task,
        engine: Engine,
        data: Data,
        correct: Correct | None,
        context: ClientContext,
    ) -> TrainReport:
        """Take the local steps of the task."""
        batches = engine.batches(data, task.training, task.seed, references=received(task))
        for batch in batches:
            engine.step(batch, correct)
        return batches.report()
