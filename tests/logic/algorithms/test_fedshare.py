"""FedShare: every client trains on the shared samples, too, and counts them."""

from __future__ import annotations

import numpy as np
import pytest

from layers.logic import Asset, ClientState, LogicError, Task, Training, answer
from layers.logic.algorithms.fedshare.hook import FedShare
from layers.logic.algorithms.fedshare.preset import fedshare
from layers.logic.core.messages import EMPTY
from tests.logic.memory_peers import a_logic, alone
from tests.logic.points import Points, PointsEngine

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


@pytest.mark.parametrize("settings", [{"shared": 0.0}, {"shared": 1.0}, {"part": 0.0}])
def test_settings_that_cannot_be_are_refused_by_name(settings) -> None:
    with pytest.raises(LogicError, match=next(iter(settings))):
        FedShare(**settings)
