"""Personal models in a simulation: each client's own model on the client's own test samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedmx.assembly.assembly import Assembly
from layers.compute.data.dataset import Samples
from layers.compute.scores import Metrics, Scores
from layers.logic import ClientState, ServerState, Task
from layers.logic.round.client import personal_model
from layers.logic.seeds import derive

Rows = np.ndarray


@dataclass(frozen=True)
class Personal:
    """The models that clients use, each on the client's own test samples; means have equal weights.

    Attributes:
        personal_accuracy_mean: mean accuracy of the personal models, from 0 to 1.
        personal_accuracy_variance: population variance of these accuracies.
        personal_accuracy_worst_tenth: mean of the lowest tenth of them, at least of one.
        personal_loss_mean: mean over the clients of the mean loss of their personal models.
        newcomer_accuracy_mean: likewise of the models that the clients would use if none of them
            had taken part.
        newcomer_loss_mean: likewise.
        client_accuracy_worst_tenth: mean of the lowest tenth of the accuracies of the global model.
        client_loss_mean: mean over the clients of the mean loss of the global model.
    """

    personal_accuracy_mean: float
    personal_accuracy_variance: float
    personal_accuracy_worst_tenth: float
    personal_loss_mean: float
    newcomer_accuracy_mean: float
    newcomer_loss_mean: float
    client_accuracy_worst_tenth: float
    client_loss_mean: float


def worst_tenth(accuracies: Sequence[float]) -> float:
    """Return the mean of the lowest tenth of some accuracies, at least of one."""
    number = math.ceil(len(accuracies) / 10)
    return float(np.mean(np.sort(accuracies)[:number]))


@dataclass(frozen=True)
class PersonalModels:
    """Makes and evaluates the model of each client that has test samples.

    Attributes:
        assembly: the parts of the experiment, with all clients' samples.
        memory_of: returns a client's memory after its last accepted update.
    """

    assembly: Assembly
    memory_of: Callable[[int, ServerState], ClientState]

    def evaluate(self, state: ServerState, scores: Scores) -> Personal:
        """Return the evaluation of the personal models.

        Args:
            state: the state after a round.
            scores: the scores of the global model on all test samples.
        """
        pairs = [self._client(client, state) for client, _ in self._clients()]
        of_global = [_of_rows(scores, rows) for _, rows in self._clients()]
        personal = [one.accuracy for one, _ in pairs]
        return Personal(
            personal_accuracy_mean=float(np.mean(personal)),
            personal_accuracy_variance=float(np.var(personal)),
            personal_accuracy_worst_tenth=worst_tenth(personal),
            personal_loss_mean=float(np.mean([one.loss for one, _ in pairs])),
            newcomer_accuracy_mean=float(np.mean([one.accuracy for _, one in pairs])),
            newcomer_loss_mean=float(np.mean([one.loss for _, one in pairs])),
            client_accuracy_worst_tenth=worst_tenth([one.accuracy for one in of_global]),
            client_loss_mean=float(np.mean([one.loss for one in of_global])),
        )

    def load(self, client: int, state: ServerState, memory: ClientState) -> None:
        """Load the model that a client uses with this memory into the engine."""
        assembly = self.assembly
        logic = assembly.logic
        task = Task(
            round=max(state.round, 1),
            client=client,
            seed=derive(logic.seed, "personal", state.round, client),
            training=logic.training_of(max(state.round, 1)),
            weights=state.weights,
            buffers=state.buffers,
        )
        samples = assembly.samples_of(client)
        assets = assembly.asset_samples
        personal_model(task, memory, assembly.engine, samples, logic, assets)

    def _clients(self) -> Iterator[tuple[int, Rows]]:
        """Yield the clients that have test samples, each with its rows of them."""
        without = set(self.assembly.experiment.without)
        for client, rows in enumerate(self.assembly.parts[1]):
            if len(rows) and client not in without:
                yield client, rows

    def _client(self, client: int, state: ServerState) -> tuple[Metrics, Metrics]:
        """Return the result of a client's model, and of the one that a newcomer would use."""
        test = self.assembly.data.test_samples
        rows = self.assembly.parts[1][client]
        own, engine = Samples(test.x[rows], test.y[rows]), self.assembly.engine
        memory = self.memory_of(client, state)
        self.load(client, state, memory)
        found = engine.evaluate(own)
        if not memory.memory:
            return found, found
        self.load(client, state, ClientState())
        return found, engine.evaluate(own)


def _of_rows(scores: Scores, rows: Rows) -> Metrics:
    own = Scores(scores.right[rows], scores.losses[rows], scores.batch_size)
    return own.metrics()
