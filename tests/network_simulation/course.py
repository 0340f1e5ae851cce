"""The course of a run: who took part in each round; and the same run again, one thing at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedmx import Server, SimulatedClients
from fedmx.simulation.executors import SerialExecutor
from layers.logic import RoundReport, ServerState, Task, run_round
from tests.logic.memory_peers import MemoryPeers
from tests.network_simulation.experiment import Engine, Experiment, compute, samples_of


@dataclass(frozen=True)
class Recorded:
    """One concluded round.

    Attributes:
        population: the clients that could be asked, with their numbers of samples.
        accepted: the clients whose updates count.
        began: by client, the round of the memory that its last task told it to begin from.
        lost: the other clients of the plan, with the reasons.
    """

    population: Mapping[int, int]
    accepted: tuple[int, ...]
    began: Mapping[int, int]
    lost: Mapping[int, str]


@dataclass
class Course:
    """The rounds of a run by number; a round that is run again replaces the one before."""

    rounds: dict[int, Recorded] = field(default_factory=dict)
    repeated: int = 0

    def watch(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return `run_round`, watched."""

        def watched(
            state: ServerState, peers: Any, logic: Any, *more: Any
        ) -> tuple[ServerState, RoundReport]:
            seen = Watched(peers)
            after, report = run(state, seen, logic, *more)
            accepted = report.of("accepted")
            self.repeated += report.round in self.rounds
            self.rounds[report.round] = Recorded(
                seen.people,
                accepted,
                seen.began,
                {
                    c.client: f"{c.status}: {c.reason}"
                    for c in report.clients
                    if c.client not in accepted
                },
            )
            return after, report

        return watched


class Watched:
    """Peers of which it is noted who was there, and which memory each task asked for."""

    def __init__(self, peers: Any) -> None:
        self._peers = peers
        self.people: Mapping[int, int] = {}
        self.began: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._peers, name)

    def population(self) -> Mapping[int, int]:
        self.people = self._peers.population()
        return self.people

    def send(self, tasks: Sequence[Task]) -> None:
        self.began.update({task.client: task.last_accepted_round for task in tasks})
        self._peers.send(tasks)


class Again(MemoryPeers):
    """Clients of which those take part that took part before."""

    population_then: Mapping[int, int] = {}

    def population(self) -> Mapping[int, int]:
        super().population()
        return self.population_then


def undisturbed(experiment: Experiment) -> np.ndarray:
    """Return the final weights of the plain serial simulation."""
    logic, size = experiment.logic(), experiment.size
    samples = {client: samples_of(client, size) for client in range(experiment.clients)}
    executor = SerialExecutor(logic, Engine(size), samples.__getitem__)  # type: ignore[arg-type]
    clients = SimulatedClients(executor, {client: len(own) for client, own in samples.items()})
    server = Server(clients, logic, compute(0, size), experiment.rounds)
    with server:
        for _ in server:
            pass
    return server.weights


def simulated_again(experiment: Experiment, course: Course) -> tuple[np.ndarray, list[str]]:
    """Return the final weights of a recorded course, and what about it cannot have been so."""
    logic = replace(experiment.logic(), deadline_s=None)
    size = experiment.size
    samples = {client: samples_of(client, size) for client in range(experiment.clients)}
    peers = Again(logic, samples)
    peers.engine = Engine(size)
    peers.foreign = True
    state = ServerState(0, *Engine(size).initial(experiment.seed))
    wrong: list[str] = []
    for number in range(1, experiment.rounds + 1):
        recorded = course.rounds.get(number)
        if recorded is None:
            return state.weights, [*wrong, f"round {number} is missing"]
        for client, began in recorded.began.items():
            last = state.last_accepted.get(client, 0)
            if began == 0 and last:
                peers.ledgers.pop(client, None)  # it had lost its memory
            elif began != last:
                wrong.append(f"round {number}: client {client} began from {began}, not from {last}")
        peers.population_then = recorded.population
        peers.lost = () if experiment.algorithm == "offers" else tuple(recorded.lost)
        state, report = run_round(state, peers, logic)
        if sorted(report.of("accepted")) != sorted(recorded.accepted):
            wrong.append(
                f"round {number}: {recorded.accepted} counted, again {report.of('accepted')}"
            )
    return state.weights, wrong
