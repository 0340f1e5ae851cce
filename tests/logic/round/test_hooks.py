"""Hooks: what one end does in order the other undoes in reverse, each with what is its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from layers.logic import ClientSide, Hook, LogicError, ServerSide, Training, run_round
from layers.logic.core.declaration import Need
from layers.logic.errors import PartFailed
from tests.logic.memory_carrier import (
    MemoryCarrier,
    a_logic,
    a_state,
    alone,
    run_rounds,
)
from tests.logic.quadratic import bowls

CLIENTS = bowls(3)


@dataclass(frozen=True)
class Recording(Hook):
    """Write down every call; say one's name to the other half."""

    name: str
    calls: list = field(default_factory=list, compare=False)

    class Server(ServerSide):
        def send(self, task, context):
            self.hook.calls.append(f"{self.hook.name} server send")
            context.slot["from"] = f"server {self.hook.name}"
            return task

        def receive(self, update, context):
            self.hook.calls.append(f"{self.hook.name} server receive")
            assert context.slot == {"from": f"client {self.hook.name}"}
            return update

        def on_accepted(self, update, context):
            self.hook.calls.append(f"{self.hook.name} server count")
            assert context.slot == {"from": f"client {self.hook.name}"}
            context.keep(by=self.hook.name, times=context.memory.get("times", 0) + 1)

        def conclude(self, state, context):
            self.hook.calls.append(f"{self.hook.name} server conclude")
            assert context.client is None
            assert context.slot == {}
            return state

    class Client(ClientSide):
        def receive(self, task, context):
            self.hook.calls.append(f"{self.hook.name} client receive")
            assert context.slot == {"from": f"server {self.hook.name}"}
            return task

        def gradient(self, gradient, weights, context):
            self.hook.calls.append(f"{self.hook.name} client gradient")
            assert context.slot == {"from": f"server {self.hook.name}"}

        def send(self, update, context):
            self.hook.calls.append(f"{self.hook.name} client send")
            assert context.slot == {}, "what the server said is not sent back"
            context.slot["from"] = f"client {self.hook.name}"
            context.keep(by=self.hook.name, times=context.memory.get("times", 0) + 1)
            return update


def test_what_one_end_does_in_order_the_other_undoes_in_reverse() -> None:
    calls: list[str] = []
    hooks = [Recording("a", calls), Recording("b", calls), Recording("c", calls)]
    logic = a_logic(alone(0), hooks=hooks)
    run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    assert calls == [
        *("a server send", "b server send", "c server send"),
        *("c client receive", "b client receive", "a client receive"),
        *("a client gradient", "b client gradient", "c client gradient"),
        *("a client send", "b client send", "c client send"),
        *("c server receive", "b server receive", "a server receive"),
        *("a server count", "b server count", "c server count"),
        *("a server conclude", "b server conclude", "c server conclude"),
    ]


@dataclass(frozen=True)
class Times(Hook):
    """Multiply on the client, divide on the server; does not commute with `Plus`."""

    factor: float

    class Server(ServerSide):
        def send(self, task, context):
            return replace(task, weights=task.weights / np.float32(1 / self.hook.factor))

        def receive(self, update, context):
            return replace(update, delta=update.delta * np.float32(1 / self.hook.factor))

    class Client(ClientSide):
        def receive(self, task, context):
            return replace(task, weights=task.weights / np.float32(self.hook.factor))

        def send(self, update, context):
            return replace(update, delta=update.delta * np.float32(self.hook.factor))


@dataclass(frozen=True)
class Plus(Hook):
    """Add on the way out, take away on the way in."""

    amount: float

    class Server(ServerSide):
        def send(self, task, context):
            return replace(task, weights=task.weights + np.float32(self.hook.amount))

        def receive(self, update, context):
            return replace(update, delta=update.delta - np.float32(self.hook.amount))

    class Client(ClientSide):
        def receive(self, task, context):
            return replace(task, weights=task.weights - np.float32(self.hook.amount))

        def send(self, update, context):
            return replace(update, delta=update.delta + np.float32(self.hook.amount))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_encodings_that_do_not_commute_cancel_out(order) -> None:
    every = (Times(4.0), Plus(0.5), Times(0.5))
    logic = a_logic(alone(0, 1, 2), hooks=[every[place] for place in order])
    plain = a_logic(alone(0, 1, 2))
    state, _ = run_rounds(3, a_state(logic), MemoryCarrier(logic, CLIENTS))
    expected, _ = run_rounds(3, a_state(plain), MemoryCarrier(plain, CLIENTS))
    np.testing.assert_allclose(state.weights, expected.weights, atol=1e-6)


def test_two_hooks_of_one_class_share_neither_slot_nor_memory() -> None:
    # The slots are checked where they are read, in both sides of Recording.
    logic = a_logic(alone(0, 1), hooks=[Recording("a"), Recording("b")])
    peers = MemoryCarrier(logic, CLIENTS)
    state, _ = run_rounds(2, a_state(logic), peers)
    assert dict(state.memory) == {
        "0:Recording": {"by": "a", "times": 4},
        "1:Recording": {"by": "b", "times": 4},
    }
    assert dict(peers.memory(0, state).memory) == {
        "0:Recording": {"by": "a", "times": 2},
        "1:Recording": {"by": "b", "times": 2},
    }


@pytest.mark.parametrize(
    "where", ["warm_up", "leave_out", "ask", "on_answers", "discard", "send", "receive"]
)
def test_a_server_half_cannot_keep_anything_while_the_order_is_by_arrival(where) -> None:
    def keep(self, *given):
        given[-1].keep(seen=1)

    asks = {"asks": frozenset({"cohort"}), "ask": lambda *_: {"number": 1}}

    class Keeps(Hook):
        Server = type("Greedy", (ServerSide,), {**asks, where: keep})

    logic = a_logic(alone(0), hooks=[Keeps()])
    with pytest.raises(PartFailed, match=r"Greedy\..* in on_accepted\(\) and conclude\(\) only"):
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)


def test_a_warm_up_gives_the_first_model_and_no_broken_one() -> None:

    class Warms(Hook):
        class Server(ServerSide):
            def warm_up(self, state, context):
                return replace(state, weights=state.weights * np.float32(1e20))

            def conclude(self, state, context):
                return replace(state, weights=context.start)

    logic = a_logic(alone(0), hooks=[Warms()])
    state, _ = run_round(a_state(logic, [1, 2, -3]), MemoryCarrier(logic, CLIENTS), logic)
    assert state.weights.tolist() == np.array([1e20, 2e20, -3e20], np.float32).tolist()
    # Of values that are so large the hook itself is not blamed.
    with np.errstate(over="ignore"), pytest.raises(LogicError, match="values that are not finite"):
        run_round(a_state(logic, [1, 1e30, 0]), MemoryCarrier(logic, CLIENTS), logic)


def test_what_a_server_half_forgets_stays_forgotten() -> None:

    class Notes(Hook):
        class Server(ServerSide):
            def conclude(self, state, context):
                if context.round == 1:
                    context.keep(note=1)
                else:
                    context.memory.clear()
                return state

    logic = a_logic(alone(0), hooks=[Notes()])
    peers = MemoryCarrier(logic, CLIENTS)
    state, _ = run_rounds(1, a_state(logic), peers)
    assert state.memory["0:Notes"] == {"note": 1}
    state, _ = run_rounds(1, state, peers)
    assert "0:Notes" not in state.memory


def test_gradients_are_not_looked_at_for_hooks_that_do_not_ask() -> None:
    logic = a_logic(alone(0), hooks=[Plus(1.0), Times(2.0)], training=Training(epochs=5))
    peers = MemoryCarrier(logic, CLIENTS)
    run_round(a_state(logic), peers, logic)
    assert peers.engine.gradient_calls == 0
    logic = a_logic(alone(0), hooks=[Plus(1.0), Recording("a")], training=Training(epochs=5))
    peers = MemoryCarrier(logic, CLIENTS)
    run_round(a_state(logic), peers, logic)
    assert peers.engine.gradient_calls == 5


def test_a_gradient_hook_sees_the_start_of_its_own_local_training() -> None:

    class Proximal(Hook):
        class Client(ClientSide):
            def gradient(self, gradient, weights, context):
                gradient += np.float32(2.0) * (weights - context.start)

    training = Training(steps=3, learning_rate=0.1)
    logic = a_logic(alone(0), hooks=[Proximal(), Plus(5.0)], training=training)
    start = a_state(logic, [1, 2, 3])
    state, _ = run_round(start, MemoryCarrier(logic, CLIENTS), logic)
    weights = start.weights.astype(np.float64)
    for _ in range(3):
        weights = weights - 0.1 * (weights - CLIENTS[0].b + 2 * (weights - start.weights))
    np.testing.assert_allclose(state.weights, weights, rtol=1e-5)


def test_a_hook_may_ask_for_the_received_models_loss() -> None:
    class Fair(Hook):
        requires = frozenset({Need.RECEIVED_LOSS})

    training = Training(epochs=4, learning_rate=0.3)
    for hooks, loss in (([], "running"), ([Fair()], "received")):
        logic = a_logic(alone(0), hooks=hooks, training=training)
        assert logic.training_of(1).loss == loss
        _, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
        received = 0.5 * np.sum(CLIENTS[0].b ** 2)
        close = report.clients[0].metrics["loss"] == pytest.approx(received, rel=1e-5)
        assert close == (loss == "received")


@dataclass(frozen=True)
class Measured(Hook):
    """Record a value as a number of the round."""

    value: object

    class Server(ServerSide):
        def conclude(self, state, context):
            context.record(drift=self.hook.value)
            return state


@pytest.mark.parametrize(
    ("given", "number"),
    [
        ((0.5, np.float32(0.5), np.longdouble(0.5), np.array(0.5)), 0.5),
        ((3, np.int64(3), np.array([[3]])), 3),
        ((True,), True),
        ((float("inf"),), float("inf")),
    ],
)
def test_whatever_is_one_number_is_recorded_as_a_plain_number(given, number) -> None:
    for value in given:
        logic = a_logic(alone(0), hooks=[Measured(value)])
        _, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
        assert report.numbers == {"drift": number}
        assert type(report.numbers["drift"]) is type(number)


@pytest.mark.parametrize("value", [np.ones(3), np.ones(0), "0.5", None, [0.5], 10**400], ids=type)
def test_what_is_not_one_number_is_refused_before_anything_is_recorded(value) -> None:
    logic = a_logic(alone(0), hooks=[Measured(value)])
    refused = r"^round 1: Measured\.Server\.conclude failed: TypeError: record\(\) .* drift"
    with pytest.raises(PartFailed, match=refused):
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
