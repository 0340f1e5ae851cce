"""FedShare: every client trains on the shared samples, too, and counts them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from layers.logic import (
    Asset,
    ClientState,
    Facilities,
    LogicError,
    Task,
    Training,
    answer,
    run_round,
)
from layers.logic.algorithms.fedshare import FedShare, fedshare
from layers.logic.core.hook import ClientSide
from layers.logic.core.messages import EMPTY
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds, same_bits
from tests.logic.points import Points, PointsEngine
from tests.logic.quadratic import bowls

OWN = Points(np.full((6, 2), 5, np.float32), np.zeros(6, np.int64))
SHARED = Points.of(range(10))


def train(hook: FedShare, client: int = 0, round: int = 1):
    """Return the update, and what was trained on."""
    logic = a_logic(alone(client), 2, hooks=[hook])
    engine = PointsEngine(2)
    task = Task(
        round, client, round, Training(steps=1, learning_rate=1.0), np.zeros(2, np.float32), EMPTY
    )
    engine.buffers = EMPTY.copy()
    update, _ = answer(task, ClientState(), engine, OWN, logic, {"shared": SHARED})
    return update, engine.trained[0]


def test_a_client_trains_on_its_own_and_on_the_shared_samples_and_counts_both() -> None:
    update, seen = train(FedShare())
    assert update.samples == 16
    assert seen.y.tolist() == [0] * 6 + list(range(10))
    np.testing.assert_allclose(update.delta, np.concatenate([OWN.x, SHARED.x]).mean(0))


def test_a_part_is_drawn_for_each_client_once() -> None:
    hook = FedShare(part=0.3)
    drawn = {
        (client, round): train(hook, client, round)[1].y[6:].tolist()
        for client in range(5)
        for round in (1, 2)
    }
    assert {len(rows) for rows in drawn.values()} == {3}
    assert all(drawn[client, 1] == drawn[client, 2] for client in range(5))
    assert len({tuple(rows) for rows in drawn.values()}) > 1
    assert all(len(set(rows)) == 3 for rows in drawn.values())


def test_the_share_of_the_training_samples_is_asked_for() -> None:
    preset = fedshare(shared=0.1)
    assert a_logic(alone(0), hooks=preset.hooks).assets == {"shared": Asset(0.1)}


@dataclass
class OnAssets:
    """Trains on the server's assets; says on what, how and with which seed it was asked to."""

    calls: list = field(default_factory=list)

    def __call__(self, name, weights, buffers, training, seed):
        self.calls.append((name, training, seed))
        return weights + np.float32(training.epochs), buffers + np.float32(1)


TRAINING = Training(steps=2, learning_rate=0.1, batch_size=7, momentum=0.5)


@dataclass(frozen=True)
class ServerOnly(FedShare):
    """FedShare whose clients train on their own samples alone, so that none needs the asset."""

    Client = ClientSide

    @property
    def assets(self):
        return {}


def warming_up(epochs: int, training: Training = TRAINING):
    told = OnAssets()
    hooks = [ServerOnly(warm_up=epochs)]
    return a_logic(
        alone(0, 1),
        hooks=hooks,
        training=training,
        facilities=Facilities(train_on_asset=told),
        seed=5,
    ), told


def test_the_rounds_begin_from_the_model_that_the_server_has_warmed_up() -> None:
    logic, told = warming_up(3)
    peers = MemoryCarrier(logic, bowls(2))
    run_rounds(2, a_state(logic), peers)
    assert [task.weights.tolist() for task in peers.tasks[:2]] == [[3.0] * 3] * 2
    assert [task.buffers.tolist() for task in peers.tasks[:2]] == [[1.0]] * 2
    ((name, training, _),) = told.calls  # once in a run
    assert name == "shared"
    assert (training.epochs, training.steps) == (3, None)
    assert (training.batch_size, training.learning_rate, training.momentum) == (7, 0.1, 0.5)


def test_a_warm_up_is_the_same_when_round_1_is_run_again_and_another_with_another_seed() -> None:
    logic, told = warming_up(1)
    start = a_state(logic)
    one, _ = run_round(start, MemoryCarrier(logic, bowls(2)), logic)
    again, _ = run_round(start, MemoryCarrier(logic, bowls(2)), logic)
    assert same_bits(one.weights, again.weights)
    assert start.weights.tolist() == [0.0] * 3
    other = replace(logic, seed=6)
    run_round(start, MemoryCarrier(other, bowls(2)), other)
    seeds = [seed for _, _, seed in told.calls]
    assert seeds[0] == seeds[1] != seeds[2]


def test_without_a_warm_up_the_initial_model_is_sent() -> None:
    logic, told = warming_up(0)
    peers = MemoryCarrier(logic, bowls(2))
    run_round(a_state(logic), peers, logic)
    assert told.calls == []
    assert peers.tasks[0].weights.tolist() == [0.0] * 3


def test_a_server_that_cannot_warm_up_says_what_it_lacks() -> None:
    logic = replace(warming_up(1)[0], facilities=Facilities())
    with pytest.raises(LogicError, match="train_on_asset"):
        run_round(a_state(logic), MemoryCarrier(logic, bowls(2)), logic)


def test_a_warm_up_that_makes_no_finite_model_is_refused() -> None:
    def broken(name, weights, buffers, training, seed):
        return weights * np.float32(np.nan), buffers

    logic = replace(warming_up(1)[0], facilities=Facilities(train_on_asset=broken))
    with pytest.raises(LogicError, match="not finite"):
        run_round(a_state(logic), MemoryCarrier(logic, bowls(2)), logic)
