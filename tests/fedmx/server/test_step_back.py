"""A model on which clients cannot train ends a round, and the run goes on from an earlier one."""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mxnet.gluon import nn

from fedmx import RunFolder, Server, SimulatedClients, recorded
from fedmx.run.records import JsonLines
from fedmx.server.step_back import StepBack, StepsBack, summary
from fedmx.simulation.executors.executor import SerialExecutor
from layers.compute.engines.engine import Compute
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.logic import (
    BrokenModel,
    ClientContext,
    ClientSide,
    Hook,
    Logic,
    RoundReport,
    ServerContext,
    ServerSide,
    ServerState,
    Traffic,
    Training,
    Update,
)
from layers.logic.algorithms.scaffold import Scaffold
from layers.logic.core.report import ClientReport
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

    class Client(ClientSide):
        def send(self, update: Update, context: ClientContext) -> Update:
            if context.client in self.hook.silent:
                return replace(update, cannot_train=True)
            if context.round not in dict(self.hook.at).get(context.client or 0, ()):
                return update
            signs = np.where(np.arange(update.delta.size) % 2, 1, -1).astype(np.float32)
            return replace(update, delta=signs * np.float32(self.hook.value))


@dataclass(frozen=True)
class Exploding(Hook):
    """A server's own idea that does not work.

    Attributes:
        begin: the first round in which it makes a model with values that are not finite.
        above: it does so only where a weight is above this.
    """

    begin: int = 1
    above: float = 0.0

    class Server(ServerSide):
        def conclude(self, state: ServerState, context: ServerContext) -> ServerState:
            bad = context.round >= self.hook.begin and np.abs(state.weights).max() > self.hook.above
            return replace(state, weights=state.weights * np.float32(np.inf)) if bad else state


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
    "a round that ends with a broken model": ([ONE, Exploding(3, 1e6)], 1, [(2, (2,))]),
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
    assert [record["round"] for record in server.records] == list(range(1, ROUNDS + 1))
    again = name != "a round that ends with a broken model"  # it was never yielded
    assert (len(seen) > ROUNDS) == again
    accuracy, loss = (server.evaluate()[key] for key in ("accuracy", "loss"))
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
    assert {line["client"] for line in list(run.clients(ROUNDS))} == set(range(4)) - excluded


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
    assert np.isfinite(server.evaluate()["loss"])


def test_a_few_who_say_that_they_cannot_train_undo_nothing(tmp_path: Path) -> None:
    server = simulation(Attack(silent=(0, 1)), fraction=0.25, min_updates=0)
    rounds = list(recorded(server, folder(tmp_path)))
    assert len(rounds) == ROUNDS
    refused = [round for round in rounds if round.report.of("rejected")]
    assert refused  # a cohort of one attacker alone
    assert {one.code for round in refused for one in round.report.clients} == {"cannot-train"}
    assert not server.steps_back.steps


def test_a_run_that_no_step_back_helps_ends_with_a_clear_line(tmp_path: Path) -> None:
    run = folder(tmp_path)
    with pytest.raises(BrokenModel, match=r"not finite.*no earlier.*change the setting.*lower the"):
        list(recorded(simulation(Exploding()), run))
    assert run.status == "failed"
    assert run.rounds() == []


def test_a_run_ends_when_ten_steps_back_did_not_help(tmp_path: Path) -> None:
    run, server = folder(tmp_path), simulation(Exploding(2))
    with pytest.raises(BrokenModel) as caught:
        list(recorded(server, run))
    assert "stepping back 10 times did not help; lower the learning rate" in str(caught.value)
    steps = server.steps_back.steps
    assert [(step.round, step.to) for step in steps] == [(2, 1)] + [(2, 0)] * 9
    excluded = [client for step in steps for client in step.excluded]
    assert len(set(excluded)) == len(excluded) == 3, "one client is always left"
    assert (run.status, run.reason) == ("failed", f"BrokenModel: {caught.value}")
    assert server.reason == ""


# --- what is remembered of the rounds -------------------------------------------------------


def reported(round: int, status: Any = "accepted", **peaks: float) -> RoundReport:
    """The report of a round, with how far the update of each client goes."""
    clients = tuple(ClientReport(int(one[1:]), status, peak=far) for one, far in peaks.items())
    return RoundReport(round, 0.1, len(clients), clients, Traffic())


def noted(*reports: RoundReport) -> StepsBack:
    steps = StepsBack()
    for report in reports:
        steps.note(report)
    return steps


def test_the_five_largest_accepted_updates_of_a_hundred_rounds_are_remembered() -> None:
    steps = noted(
        *(reported(round, c3=1.0) for round in range(1, 101)),
        reported(101, c7=2.0, c1=9.0, c2=2.0, c5=3.0, c4=0.5, c9=2.0),
        reported(102, "rejected", c1=100.0),
    )
    kept = steps.largest
    assert list(kept) == list(range(3, 103))
    assert list(kept[101].items()) == [(1, 9.0), (5, 3.0), (2, 2.0), (7, 2.0), (9, 2.0)]
    assert (kept[100], kept[102]) == ({3: 1.0}, {})
    steps.forget_after(101)
    assert list(steps.largest) == list(range(3, 102))


def test_suspects_have_the_largest_updates_since_and_the_worst_round_is_the_first_of_them() -> None:
    steps = noted(
        reported(1, c8=99.0, c0=1.0),
        reported(2, c1=5.0, c2=7.0),
        reported(3, c1=6.0, c3=7.0, c4=7.0, c5=0.25, c6=0.125),
        reported(4, c1=0.5, c2=2.0),
        reported(5),
    )
    assert steps.suspects(0) == (8, 2, 3, 4, 1)
    assert steps.suspects(1) == (2, 3, 4, 1, 5)
    assert steps.suspects(3) == (2, 1)
    assert steps.suspects(4) == ()
    assert [steps.worst_round(after) for after in range(6)] == [1, 2, 3, 4, None, None]


def test_steps_are_counted_until_the_run_gets_past_the_round_that_failed() -> None:
    steps = StepsBack([StepBack(*one, "why", (), ()) for one in ((3, 2), (4, 2), (6, 1), (4, 3))])
    assert [steps.in_a_row(round) for round in range(3, 8)] == [4, 3, 1, 1, 0]
    assert [round for round in range(8) if steps.retried(round)] == [3, 4]
    led = {round: [one.round for one in steps.leading_to(round)] for round in range(1, 6)}
    assert led == {1: [], 2: [6], 3: [3, 4], 4: [4], 5: []}


STEPS = (
    StepBack(4, 2, "a broken model", (7, 1), (7,)),
    StepBack(12, 0, "another one", (), ()),
    StepBack(13, 11, "a third", (2,), (2, 3)),
)


def test_the_steps_and_what_they_need_are_in_a_checkpoint() -> None:
    steps = noted(reported(1, c3=1.0), reported(2, c4=0.5, c5=1.5))
    steps.steps.extend(STEPS)
    tree = steps.tree()
    again = StepsBack()
    again.restore(tree)
    assert again == steps
    assert tree["largest"] == {1: {3: 1.0}, 2: {5: 1.5, 4: 0.5}}
    assert list(tree["steps"]) == ["0", "1", "2"]
    assert tree["steps"]["2"] == {
        "round": 13,
        "to": 11,
        "reason": "a third",
        "suspects": [2],
        "excluded": [2, 3],
    }


def test_a_step_back_says_where_it_led_why_and_who_is_not_asked_any_more() -> None:
    back = "went back to the model after round"
    largest = "suspected clients, the largest update first:"
    assert [str(one) for one in STEPS] == [
        f"{back} 2 because of a broken model; {largest} 7, 1; not asked any more: 7",
        f"{back} 0 because of another one; {largest} nobody",
        f"{back} 11 because of a third; {largest} 2; not asked any more: 2, 3",
    ]
    assert [summary(STEPS[:number]) for number in range(4)] == [
        "",
        "stepped back 1 time, excluded clients 7",
        "stepped back 2 times, excluded clients 7",
        "stepped back 3 times, excluded clients 7, 2, 3",
    ]
    assert summary(STEPS[1:2]) == "stepped back 1 time"
