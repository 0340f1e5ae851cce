"""A recorded run that is interrupted after any round and resumed ends in the same bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from fedmx import RunFolder, Server, SimulatedClients, recorded
from fedmx.simulation.executors.executor import SerialExecutor
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.logic import (
    ClientContext,
    ClientSide,
    Hook,
    Logic,
    ServerContext,
    ServerSide,
    ServerState,
    Training,
    Update,
)
from layers.logic.selectors.uniform import Uniform
from tests.fedmx.deployment.test_deployment_by_hand import samples_of
from tests.fedmx.scripted import compute, tiny
from tests.fedmx.timeless import timeless

ROUNDS = 6


@dataclass(frozen=True)
class Residual(Hook):
    """Both halves keep something, so that a lost or doubled round shows in the model."""

    class Client(ClientSide):
        def send(self, update: Update, context: ClientContext) -> Update:
            whole = update.delta + context.memory.get("residual", np.float32(0))
            coarse = np.round(whole * 16) / np.float32(16)
            context.keep(residual=whole - coarse)
            return replace(update, delta=coarse)

    class Server(ServerSide):
        def conclude(self, state: ServerState, context: ServerContext) -> ServerState:
            rounds = context.memory.get("rounds", 0) + 1
            context.keep(rounds=rounds)
            return replace(state, weights=state.weights + np.float32(rounds / 64))


def simulation() -> Server:
    training = Training(epochs=2, batch_size=4, learning_rate=0.1)
    how = {"selector": Uniform(0.5), "hooks": [Residual()], "training": training, "seed": 11}
    logic = Logic(compute().engine.layout, **how)
    executor = SerialExecutor(logic, MXNetEngine(tiny, (4,), 3), samples_of)
    numbers = {client: len(samples_of(client)) for client in range(4)}
    return Server(SimulatedClients(executor, numbers), logic, compute(), last_round=ROUNDS)


def folder(parent: Path) -> RunFolder:
    return RunFolder.create(parent, "run", "rounds: 6\n", {})


class PullThePlug(Exception):
    """As a process ends that nobody could warn."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = folder(tmp_path_factory.mktemp("undisturbed"))
    for _ in recorded(simulation(), run, every=2):
        pass
    return run


def interrupted(run: RunFolder, after: int, every: int) -> None:
    for round in recorded(simulation(), run, every=every):
        if round.round == after:
            raise PullThePlug


@pytest.mark.parametrize(
    ("after", "every"),
    [(1, 1), (6, 1), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 2), (3, 4), (5, 4)],
)
def test_a_run_that_is_interrupted_and_resumed_is_the_same_run(
    after: int, every: int, undisturbed: RunFolder, tmp_path: Path
) -> None:
    run = folder(tmp_path)
    with pytest.raises(PullThePlug):
        interrupted(run, after, every)
    resumed = list(recorded(simulation(), RunFolder.open(run.path), every=every))
    assert not resumed or resumed[0].round <= after + 1
    assert run.model_path.read_bytes() == undisturbed.model_path.read_bytes()
    of_run, of_undisturbed = (timeless(one.rounds()) for one in (run, undisturbed))
    assert of_run == of_undisturbed
    assert [record["round"] for record in of_run] == list(range(1, ROUNDS + 1))
    assert timeless(run.clients()) == timeless(undisturbed.clients())
    assert run.status == "done"
    elapsed = [record["elapsed_s"] for record in run.rounds()]
    assert elapsed == sorted(elapsed)


def test_a_run_with_too_few_updates_says_why_of_each_client_and_resumes(tmp_path: Path) -> None:
    server = simulation()
    server.logic = replace(server.logic, min_updates=4)
    run = folder(tmp_path)
    with pytest.raises(Exception, match="2 of the 4 updates"):
        list(recorded(server, run))
    assert run.status == "failed"
    assert run.reason.startswith("TooFewUpdates: round 1:")
    assert [record["round"] for record in run.clients()] == [1, 1]
    assert run.rounds() == []
    assert len(list(recorded(simulation(), run))) == ROUNDS
    assert run.status == "done"
