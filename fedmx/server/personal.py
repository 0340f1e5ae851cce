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

    def measure(self, state: ServerState, scores: Scores) -> dict[str, float]:
        """Return the accuracy and the loss of the models that clients use, over the clients.

        Each model is evaluated on its client's own test samples, and all clients have the same
        weight. `personal_...` is of the personal models, `newcomer_...` of those that the clients
        would use if none of them had taken part, `client_...` of the global model. A variance is
        that of the population, and a worst tenth has at least one client.

        Args:
            state: the state after a round.
            scores: the scores of the global model on all test samples.
        """
        clients = list(self._clients())
        personal, newcomers = zip(*(self._client(*one, state) for one in clients), strict=True)
        of_global = [scores.of(rows).metrics() for _, rows in clients]
        accuracies = [one.accuracy for one in personal]
        return {
            "personal_accuracy_mean": float(np.mean(accuracies)),
            "personal_accuracy_variance": float(np.var(accuracies)),
            "personal_accuracy_worst_tenth": worst_tenth(accuracies),
            "personal_loss_mean": float(np.mean([one.loss for one in personal])),
            "newcomer_accuracy_mean": float(np.mean([one.accuracy for one in newcomers])),
            "newcomer_loss_mean": float(np.mean([one.loss for one in newcomers])),
            "client_accuracy_worst_tenth": worst_tenth([one.accuracy for one in of_global]),
            "client_loss_mean": float(np.mean([one.loss for one in of_global])),
        }

    def load(self, client: int, state: ServerState, memory: ClientState) -> None:
        """Load the model that a client uses with this memory into the engine."""
        assembly = self.assembly
        logic = assembly.logic
        weights, buffers = state.model_of(client)
        task = Task(
            round=max(state.round, 1),
            client=client,
            seed=derive(logic.seed, "personal", state.round, client),
            training=logic.training_of(max(state.round, 1)),
            weights=weights,
            buffers=buffers,
        )
        samples = assembly.samples_of(client)
        assets = assembly.asset_samples
        personal_model(task, memory, assembly.engine, samples, logic, assets)

    def _clients(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the clients that have test samples, each with its rows of them."""
        without = set(self.assembly.experiment.without)
        for client, rows in enumerate(self.assembly.parts[1]):
            if len(rows) and client not in without:
                yield client, rows

    def _client(self, client: int, rows: np.ndarray, state: ServerState) -> tuple[Metrics, Metrics]:
        """Return the result of a client's model, and of the one that a newcomer would use."""
        test = self.assembly.data.test_samples
        own, engine = Samples(test.x[rows], test.y[rows]), self.assembly.engine
        memory = self.memory_of(client, state)
        self.load(client, state, memory)
        found = engine.evaluate(own)
        if not memory.memory:
            return found, found
        self.load(client, state, ClientState())
        return found, engine.evaluate(own)
