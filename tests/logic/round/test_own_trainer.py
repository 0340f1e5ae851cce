"""A trainer of one's own may keep a model of the client's own."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from layers.logic import Training, run_round
from layers.logic.core.trainer import LocalSgd
from layers.logic.hooks.compressors import Stc
from tests.logic.memory_carrier import (
    MemoryCarrier,
    a_logic,
    a_state,
    alone,
    run_rounds,
    same_bits,
)
from tests.logic.quadratic import THREE_BOWLS
from tests.logic.toys import FirstBack


@dataclass(frozen=True)
class Ditto(LocalSgd):
    """Local SGD for the global model, and a personal model that is pulled towards it."""

    pull: float = 0.1

    def train(self, job):
        task, engine, context = job.task, job.engine, job.context
        personal = context.memory.get("personal", task.weights)
        engine.load(personal, task.buffers)
        report = engine.train(job.data, task.training, task.seed)
        own = engine.weights - np.float32(self.pull) * (engine.weights - task.weights)
        context.keep(personal=own)
        engine.load(task.weights, task.buffers)
        super().train(job)
        return report


@dataclass(frozen=True)
class Looking(LocalSgd):
    """Local SGD that notes what a trainer is told besides its task."""

    def train(self, job):
        context = job.context
        TOLD.append({one.name: getattr(context, one.name) for one in fields(context)})
        return super().train(job)


TOLD: list[dict[str, Any]] = []


def test_a_trainer_is_told_what_the_logic_says_and_nothing_else() -> None:
    TOLD.clear()
    logic = a_logic(alone(0), trainer=Looking())
    run_rounds(1, a_state(logic), MemoryCarrier(logic, THREE_BOWLS))
    (told,) = TOLD
    nothing = ("gradient", "initial", "own")
    assert {name: (told[name].size, told[name].dtype) for name in nothing} == {
        "gradient": (0, np.float32),
        "initial": (0, np.float32),
        "own": (0, bool),
    }
    named = ("round", "client", "clients", "assets", "slot", "memory", "round_memory")
    assert [told[name] for name in named] == [1, 0, 0, {}, {}, {}, {}]
    assert told["training"] == logic.training
    assert same_bits(told["start"], a_state(logic).weights)


def test_a_trainer_keeps_a_model_of_the_clients_own() -> None:
    training = Training(steps=1, learning_rate=0.5)
    logic = a_logic(alone(0, 1), training=training, trainer=Ditto())
    plain = a_logic(alone(0, 1), training=training)
    peers, others = MemoryCarrier(logic, THREE_BOWLS), MemoryCarrier(plain, THREE_BOWLS)
    state, _ = run_rounds(3, a_state(logic), peers)
    other, _ = run_rounds(3, a_state(plain), others)
    assert same_bits(state.weights, other.weights), "the global model is that without it"
    personal = [peers.memory(client, state).memory["trainer"]["personal"] for client in (0, 1)]
    for client, model in enumerate(personal):
        target = client + 1.0
        global_error = abs(state.weights[0] - target)
        assert abs(model[0] - target) < global_error, "the personal model is nearer its own data"


def test_a_client_keeps_what_it_remembers_when_its_late_update_is_accepted() -> None:
    logic = a_logic(FirstBack(), hooks=[Stc(p_down=None)], trainer=Ditto())
    peers = MemoryCarrier(logic, THREE_BOWLS, order=(2, 0, 1))
    state, _ = run_round(a_state(logic), peers, logic)
    peers.order = (0, 1, 2)
    state, report = run_round(state, peers, logic)
    assert report.of("accepted") == (0,)
    assert state.last_accepted[0] in peers.ledgers[0].rounds
    assert set(peers.memory(0, state).memory) == {"0:Stc", "trainer"}
