"""Personal models in a simulation: each client's own model on the client's own test samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmx.assembly.assembly import Assembly
from fedmx.server.evaluation import PERSONAL, Evaluation, client_record
from layers.compute.data.dataset import Samples
from layers.compute.engines.evaluation import ACCURACY, LOSS
from layers.compute.scores import Scores
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

    def measure(self, state: ServerState, scores: Scores) -> Evaluation:
        """Return the results of the models that clients use, over the clients and of each.

        Each model is evaluated on its client's own test samples, and all clients have the same
        weight. `personal_...` is of the personal models, `newcomer_...` of those that the clients
        would use if none of them had taken part, `client_...` of the global model. A variance is
        that of the population, and a worst tenth has at least one client.

        Args:
            state: the state after a round.
            scores: the scores of the global model on all test samples.
        """
        clients = list(self._clients())
        found = [self._client(*one, state) for one in clients]
        y, values = self.assembly.data.test_samples.y, self.assembly.evaluator.values
        of_global = [values(scores.of(rows), y[rows]) for _, rows in clients]
        personal, newcomers = ([one[which] for one in found] for which in (0, 1))
        records = tuple(
            client_record(client, len(rows), PERSONAL, one)
            for (client, rows), one in zip(clients, personal, strict=True)
        )
        measured = {
            "personal_loss_mean": _mean(personal, LOSS),
            "newcomer_loss_mean": _mean(newcomers, LOSS),
            "client_loss_mean": _mean(of_global, LOSS),
        }
        if self.assembly.data.targets.classes:
            accuracies = [one[ACCURACY] for one in personal]
            measured |= {
                "personal_accuracy_mean": float(np.mean(accuracies)),
                "personal_accuracy_variance": float(np.var(accuracies)),
                "personal_accuracy_worst_tenth": worst_tenth(accuracies),
                "newcomer_accuracy_mean": _mean(newcomers, ACCURACY),
                "client_accuracy_worst_tenth": worst_tenth([one[ACCURACY] for one in of_global]),
            }
        return Evaluation(clients=records, measured=measured)

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

    def _client(
        self, client: int, rows: np.ndarray, state: ServerState
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the values of a client's model, and of the one that a newcomer would use."""
        test, assembly = self.assembly.data.test_samples, self.assembly
        own, evaluator = Samples(test.x[rows], test.y[rows]), assembly.evaluator

        def values() -> Mapping[str, Any]:
            scores = assembly.engine.scores(own, outputs=evaluator.needs_outputs)
            return evaluator.values(scores, own.y)

        memory = self.memory_of(client, state)
        self.load(client, state, memory)
        found = values()
        if not memory.memory:
            return found, found
        self.load(client, state, ClientState())
        return found, values()


def _mean(values: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(np.mean([one[key] for one in values]))
