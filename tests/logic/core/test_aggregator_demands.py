"""What an aggregator or a hook asks of a round is given, or the round is refused before it runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from layers.logic import ClientSide, Hook, LogicError, Rejected, ServerSide, Training, run_round
from layers.logic.aggregators.mean import Mean
from layers.logic.core.declaration import Need
from tests.logic.memory_carrier import InLanes, MemoryCarrier, a_logic, a_state, alone, same_bits
from tests.logic.quadratic import bowls

CLIENTS = bowls(3)


@dataclass(frozen=True)
class Picky(Mean):
    requires = frozenset({Need.RECEIVED_LOSS, Need.EACH_CLIENT})

    def check(self, logic):
        if logic.training.momentum:
            raise LogicError("no momentum here")

    def inspect(self, update):
        if update.steps == 7:
            raise Rejected("seven steps")


def test_an_aggregator_can_ask_for_the_received_models_loss() -> None:
    logic = a_logic(alone(0), aggregator=Picky())
    _, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    assert report.loss == pytest.approx(0.5 * CLIENTS[0].b @ CLIENTS[0].b)


def test_an_aggregator_that_looks_at_each_client_refuses_lanes_of_several() -> None:
    logic = a_logic(InLanes(((0, 1), (2,))), aggregator=Picky())
    peers = MemoryCarrier(logic, CLIENTS)
    with pytest.raises(LogicError, match=r"Picky .* InLanes"):
        run_round(a_state(logic), peers, logic)
    assert not peers.tasks


def test_an_aggregator_refuses_a_logic_and_an_update() -> None:
    with pytest.raises(LogicError, match="no momentum here"):
        a_logic(alone(0), aggregator=Picky(), training=Training(momentum=0.5))
    logic = a_logic(alone(0, 1), aggregator=Picky())
    peers = MemoryCarrier(logic, CLIENTS, forge=lambda u: [replace(u, steps=7 - u.client)])
    _, report = run_round(a_state(logic), peers, logic)
    assert [(c.status, c.reason) for c in report.clients] == [
        ("rejected", "seven steps"),
        ("accepted", ""),
    ]


@dataclass(frozen=True)
class Exploding(Hook):
    class Server(ServerSide):
        def conclude(self, state, context):
            return replace(state, weights=state.weights * np.float32(np.inf))


def test_a_model_that_is_not_finite_is_never_handed_on() -> None:
    logic = a_logic(alone(0, 1), hooks=[Exploding()])
    state = a_state(logic)
    with pytest.raises(
        LogicError, match=r"round 1: Exploding\.Server\.conclude \(.*\) made a model with values"
    ):
        run_round(state, MemoryCarrier(logic, CLIENTS), logic)
    assert not state.weights.any()


SEEN: list = []


@dataclass(frozen=True)
class Watching(Hook):
    asks: bool = True

    @property
    def requires(self):
        return frozenset({Need.RECEIVED_GRADIENT} if self.asks else ())

    class Server(ServerSide):
        def on_accepted(self, update, context):
            SEEN.append(context.clients)

    class Client(ClientSide):
        def send(self, update, context):
            SEEN.append(context.gradient)
            return update


@pytest.mark.parametrize("asked", [True, False])
def test_a_hook_is_told_the_received_models_gradient_when_it_asks(asked) -> None:
    SEEN.clear()
    logic = a_logic(alone(1), hooks=[Watching(asked)], training=Training(steps=4))
    run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    gradient, clients = SEEN
    expected = -CLIENTS[1].b.astype(np.float32) if asked else np.zeros(0, np.float32)
    assert same_bits(gradient, expected)
    assert clients == 3, "the server's side is told how many clients there are"
