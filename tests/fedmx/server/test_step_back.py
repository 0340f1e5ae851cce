"""A model on which clients cannot train ends a round, and the run goes on from an earlier one."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mxnet.gluon import nn

from fedmx import RunFolder, Server, SimulatedClients, recorded
from fedmx.run.records import JsonLines
from fedmx.simulation.executors.executor import SerialExecutor
from layers.compute.engines.engine import Compute
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.logic import (
    BrokenModel,
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
from layers.logic.algorithms.scaffold import Scaffold
from layers.logic.hooks.server_optimisers import FedAvgM
from layers.logic.selectors.uniform import Uniform
from tests.fedmx.deployment.test_deployment_by_hand import samples_of
from tests.fedmx.deployment.test_deployment_resume import PullThePlug, Residual, folder
from tests.fedmx.timeless import timeless

ROUNDS = 6


def deep() -> Any:
    """A model of two layers, whose gradients overflow where its weights are huge."""
    net = nn.HybridSequential()
    net.add(nn.Dense(5, activation="relu"), nn.Dense(3))
    return net


@functools.cache
def compute() -> Compute:
    return Compute(MXNetEngine(deep, (4,), 3), samples_of(0))


@dataclass(frozen=True)
class Attack(Hook):
    """Clients that send huge finite updates in some rounds, and claim that they cannot train.

    Attributes:
        at: by client, the rounds in which it sends one.
        value: of each of its values.
        silent: clients that say in every round that they cannot train.
    """

    at: tuple[tuple[int, tuple[int, ...]], ...] = ()
    value: float = 3e38
    silent: tuple[int, ...] = ()

    def client(self) -> ClientSide:
        return _Attacking(dict(self.at), self.value, self.silent)


class _Attacking(ClientSide):
    def __init__(self, at: dict[int, tuple[int, ...]], value: float, silent: Sequence[int]) -> None:
        self._at, self._value, self._silent = at, value, silent

    def send(self, update: Update, context: ClientContext) -> Update:
        if context.client in self._silent:
            return replace(update, slots={"failure": {"code": "cannot-train"}})
        if context.round not in self._at.get(context.client or 0, ()):
            return update
        signs = np.where(np.arange(update.delta.size) % 2, 1, -1).astype(np.float32)
        return replace(update, delta=signs * np.float32(self._value))


def simulation(*hooks: Hook, fraction: float = 1.0, clients: int = 4, **settings: Any) -> Server:
    training = Training(epochs=2, batch_size=4, learning_rate=0.1)
    logic = Logic(
        compute().engine.layout,
        selector=Uniform(fraction),
        hooks=hooks,
        training=training,
        seed=11,
        clients=clients,
        **{"max_update": None, **settings},
    )
    numbers = {client: len(samples_of(client)) for client in range(clients)}
    executor = SerialExecutor(logic, MXNetEngine(deep, (4,), 3), samples_of)
    return Server(SimulatedClients(executor, numbers), logic, compute(), last_round=ROUNDS)


ONE = Attack(at=((2, (3,)),))
TWO = Attack(at=((2, (3,)), (1, (3, 5))), value=1e38)
# The hooks, how often there is a checkpoint, and to which round the run steps back without whom.
COURSES: dict[str, tuple[list[Hook], int, list[tuple[int, tuple[int, ...]]]]] = {
    "one attacker": ([Residual(), ONE], 1, [(2, (2,))]),
    "one attacker, seldom a checkpoint": ([Residual(), ONE], 2, [(2, (2,))]),
    "momentum": ([ONE, FedAvgM()], 1, [(2, (2,))]),
    "control variates": ([Scaffold(), ONE], 1, [(2, (2,))]),
    "an attacker of the first round": ([Attack(at=((2, (1,)),))], 1, [(0, (2,))]),
    "two attackers": ([TWO], 1, [(2, (1,)), (2, (2,))]),
}


@pytest.mark.parametrize("name", COURSES)
def test_the_run_goes_on_from_the_last_good_model_without_the_attacker(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hooks, every, expected = COURSES[name]
    run = folder(tmp_path)
    with caplog.at_level(logging.WARNING, "fedmx.server"):
        server = simulation(*hooks)
        seen = [round.round for round in recorded(server, run, every=every)]
    steps = server.steps_back.steps
    assert [(step.to, step.excluded) for step in steps] == expected
    assert run.status == "done"
    assert [record["round"] for record in run.rounds()] == list(range(1, ROUNDS + 1))
    assert len(seen) > ROUNDS  # rounds were run again
    accuracy, loss = server.evaluate()
    assert 0 <= accuracy <= 1
    assert np.isfinite(loss)
    assert np.abs(server.weights).max() < 1e3
    # Log, records and the reason of the run name them; the page shows that reason.
    assert f"stepped back {len(steps)} time" in run.reason
    excluded = {client for step in steps for client in step.excluded}
    for step in steps:
        assert any(str(step) in line.getMessage() for line in caplog.records)
        assert "cannot train on" in step.reason or "not finite" in step.reason
        assert step.suspects[0] == step.excluded[0]
    told = [step for record in run.rounds() for step in record.get("stepped_back", ())]
    assert [step["suspects"] for step in told] == [list(step.suspects) for step in steps]
    last = list(run.clients(ROUNDS))
    assert {line["client"] for line in last} == set(range(4)) - excluded


def test_the_variate_of_an_excluded_client_is_in_no_sum_any_more(tmp_path: Path) -> None:
    server = simulation(Scaffold(), Attack(at=((2, (3,)),)), clients=4)
    sent: list[dict[str, Any]] = []
    for round in recorded(server, folder(tmp_path), every=1):
        if server.steps_back.steps and round.round == 3:
            sent.append(dict(server.state.memory["0:Scaffold"]))
    (kept,) = sent
    assert (kept["since"], kept["clients"]) == (2, 3), "they began anew before round 3, with N = 3"
    assert kept["senders"].tolist() == [0, 1, 3]


def unplugged(*args: Any, **more: Any) -> None:
    raise PullThePlug


def unplugged_once_there_are_records(records: JsonLines, wanted: Any) -> None:
    if records.path.exists():
        raise PullThePlug


def run_until_it_steps_back(server: Server, run: RunFolder, every: int) -> None:
    last = 0
    for round in recorded(server, run, every=every):
        if round.round <= last:
            raise PullThePlug
        last = round.round


@pytest.mark.parametrize("name", ["one attacker", "momentum", "control variates", "two attackers"])
@pytest.mark.parametrize("when", ["before it", "while it is written", "after it"])
def test_a_run_that_is_killed_around_a_step_back_ends_in_the_same_bits(
    name: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks, every, _ = COURSES[name]
    undisturbed = folder(tmp_path / "undisturbed")
    list(recorded(simulation(*hooks), undisturbed, every=every))
    run = folder(tmp_path / "killed")
    with monkeypatch.context() as patch:
        if when == "before it":
            patch.setattr("fedmx.server.recorder.FolderRecorder.step_back", unplugged)
        elif when == "while it is written":
            patch.setattr("fedmx.run.records.JsonLines.keep", unplugged_once_there_are_records)
        with pytest.raises(PullThePlug):
            run_until_it_steps_back(simulation(*hooks), run, every)
    list(recorded(simulation(*hooks), RunFolder.open(run.path), every=every))
    assert run.model_path.read_bytes() == undisturbed.model_path.read_bytes()
    assert timeless(run.rounds()) == timeless(undisturbed.rounds())
    assert timeless(run.clients()) == timeless(undisturbed.clients())


def test_with_the_bound_the_same_attack_is_refused_and_costs_no_round(tmp_path: Path) -> None:
    server = simulation(Attack(at=((2, tuple(range(1, 7))),)), FedAvgM(), max_update=1000.0)
    rounds = list(recorded(server, folder(tmp_path)))
    assert [round.report.of("rejected") for round in rounds] == [(2,)] * ROUNDS
    assert not server.steps_back.steps
    assert np.isfinite(server.evaluate()[1])


def test_a_few_who_say_that_they_cannot_train_undo_nothing(tmp_path: Path) -> None:
    server = simulation(Attack(silent=(0, 1)), fraction=0.25, min_updates=0)
    rounds = list(recorded(server, folder(tmp_path)))
    assert len(rounds) == ROUNDS
    refused = [round for round in rounds if round.report.of("rejected")]
    assert refused  # a cohort of one attacker alone
    assert {one.code for round in refused for one in round.report.clients} == {"cannot-train"}
    assert not server.steps_back.steps


class _Exploding(ServerSide):
    def conclude(self, state: ServerState, context: ServerContext) -> ServerState:
        return replace(state, weights=state.weights * np.float32(np.inf))


class Exploding(Hook):
    """A server's own idea that never works."""

    def server(self) -> ServerSide:
        return _Exploding()


def test_a_run_that_no_step_back_helps_ends_with_a_clear_line(tmp_path: Path) -> None:
    run = folder(tmp_path)
    with pytest.raises(
        BrokenModel, match=r"made a model with values that are not finite.*no earlier"
    ):
        list(recorded(simulation(Exploding()), run))
    assert run.status == "failed"
    assert run.rounds() == []
