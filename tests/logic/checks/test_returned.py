"""What a part returns is checked at once: the error names part, method, file, line and round."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layers.logic import (
    BrokenModel,
    ClientSide,
    Hook,
    Selector,
    ServerSide,
    TooFewUpdates,
    run_round,
)
from layers.logic.aggregators.mean import Mean
from layers.logic.core.trainer import Trainer
from layers.logic.errors import LogicError, PartFailed
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds
from tests.logic.quadratic import bowls

CLIENTS = bowls(2)
HERE = re.escape(str(Path(__file__).resolve()))
Change = Callable[[Any], Any]


class Server(ServerSide):
    """Each method of the server's side may be another one."""

    def warm_up(self, state, context):
        return self.hook.server_changes.get("warm_up", lambda state: state)(state)

    def send(self, task, context):
        return self.hook.server_changes.get("send", lambda task: task)(task)

    def receive(self, update, context):
        return self.hook.server_changes.get("receive", lambda update: update)(update)

    def conclude(self, state, context):
        return self.hook.server_changes.get("conclude", lambda state: state)(state)

    def on_accepted(self, update, context):
        self.hook.server_changes.get("on_accepted", lambda update: None)(update)


class Client(ClientSide):
    """Each method of the client's side may be another one."""

    def receive(self, task, context):
        return self.hook.client_changes.get("receive", lambda task: task)(task)

    def send(self, update, context):
        return self.hook.client_changes.get("send", lambda update: update)(update)

    def samples(self, data, context):
        return self.hook.client_changes.get("samples", lambda data: data)(data)


class Correcting(ClientSide):
    def gradient(self, gradient, weights, context):
        return self.hook.client_changes["gradient"](gradient)


@dataclass(frozen=True)
class Both(Hook):
    """A hook of a server side and a client side."""

    server_changes: Mapping[str, Change]
    client_changes: Mapping[str, Change]

    Server = Server
    Client = Client


class Corrects(Both):
    Client = Correcting


NONE: Mapping[str, Change] = {}


def hook_of(server: Mapping[str, Change] = NONE, client: Mapping[str, Change] = NONE) -> Hook:
    return Corrects(server, client) if "gradient" in client else Both(server, client)


def delta(change: Change) -> Change:
    return lambda update: replace(update, delta=change(update.delta))


def weights(change: Change) -> Change:
    return lambda message: replace(message, weights=change(message.weights))


def doubled(vector: np.ndarray) -> np.ndarray:
    return vector.astype(np.float64)


def cut(vector: np.ndarray) -> np.ndarray:
    return vector[:-1]


def emptied(update: Any) -> Any:
    return replace(update, delta=np.zeros(0, np.float32))


def broken(vector: np.ndarray) -> np.ndarray:
    return np.full_like(vector, np.nan)


def broken_in_place(update):
    update.delta[:1] = np.inf
    return update


def raising(message: Any) -> Any:
    return {}["a mask"]


def nothing(message: Any) -> None:
    return None


MISTAKES = {
    "send gives None": (
        hook_of(client={"send": nothing}),
        "round 1, client 0: Client.send returned None; it must return the update, changed or not",
    ),
    "send gives float64": (
        hook_of(client={"send": delta(doubled)}),
        "round 1, client 0: Client.send returned update.delta of float64; it must be float32: end "
        "with .astype(np.float32)",
    ),
    "send gives another shape": (
        hook_of(client={"send": delta(cut)}),
        "round 1, client 0: Client.send returned update.delta of shape (2,); it must be (3,)",
    ),
    "send gives NaN": (
        hook_of(client={"send": delta(broken)}),
        "round 1, client 0: Client.send returned update.delta with 3 of 3 values not finite, and "
        "was given finite ones",
    ),
    "send breaks its argument": (
        hook_of(client={"send": broken_in_place}),
        "round 1, client 0: Client.send returned update.delta with 1 of 3 values not finite",
    ),
    "send gives a list": (
        hook_of(client={"send": delta(list)}),
        "round 1, client 0: Client.send returned update.delta that is a list; it must be a float32",
    ),
    "a client receives nothing": (
        hook_of(client={"receive": nothing}),
        "round 1, client 0: Client.receive returned None; it must return the task",
    ),
    "a client has no samples": (
        hook_of(client={"samples": nothing}),
        "round 1, client 0: Client.samples returned None; it must return samples with the arrays",
    ),
    "a gradient is returned": (
        hook_of(client={"gradient": lambda gradient: 2 * gradient}),
        "round 1, client 0: Correcting.gradient returned an array of float32 and shape (3,), which "
        "is not used; it changes its argument in place, as gradient[:] = ...",
    ),
    "a gradient is broken": (
        hook_of(client={"gradient": lambda gradient: gradient.fill(np.nan)}),
        "round 1, client 0: Correcting.gradient made a gradient with 3 of 3 values not finite",
    ),
    "the server sends float64": (
        hook_of({"send": weights(doubled)}),
        "round 1, client 0: Server.send returned task.weights of float64; it must be float32",
    ),
    "the server receives another shape": (
        hook_of({"receive": delta(cut)}),
        "round 1, client 0: Server.receive returned update.delta of shape (2,); it must be (3,)",
    ),
    "the server decodes another shape": (
        hook_of({"receive": delta(lambda _: np.zeros(2, np.float32))}, {"send": emptied}),
        "round 1, client 0: Server.receive returned update.delta of shape (2,); it must be (3,)",
    ),
    "the server receives None": (
        hook_of({"receive": nothing}),
        "round 1, client 0: Server.receive returned None; it must return the update",
    ),
    "the server concludes with float64": (
        hook_of({"conclude": weights(doubled)}),
        "round 1: Server.conclude returned weights of float64; it must be float32",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_a_half_must_not_return_is_named_with_its_line_round_and_client(name: str) -> None:
    hook, said = MISTAKES[name]
    logic = a_logic(alone(0, 1), hooks=[hook])
    with pytest.raises(PartFailed, match=rf"^{re.escape(said)}.* \({HERE}:\d+\)$"):
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)


@pytest.mark.parametrize("method", ["warm_up", "send", "receive", "on_accepted", "conclude"])
def test_a_server_half_that_raises_is_named_with_round_and_client(method: str) -> None:
    logic = a_logic(alone(0, 1), hooks=[hook_of({method: raising})])
    client = "" if method in ("warm_up", "conclude") else ", client 0"
    said = f"^round 1{client}: Server.{method} failed: KeyError: 'a mask'$"
    with pytest.raises(PartFailed, match=said) as caught:
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (hook_of({"receive": sys.exit}), "Server.receive failed: SystemExit: "),
        (
            hook_of({}, {"send": lambda _: sys.exit(3)}),
            "Client.send called sys.exit(3)",
        ),
    ],
)
def test_a_half_that_ends_the_process_is_an_error_with_its_name(hook: Hook, said: str) -> None:
    logic = a_logic(alone(0, 1), hooks=[hook])
    with pytest.raises(PartFailed, match=f"^round 1, client 0: {re.escape(said)}"):
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)


@dataclass(frozen=True)
class Finishing(Mean):
    change: Change = lambda state: state

    def finish(self, total, state):
        return self.change(super().finish(total, state))


@dataclass(frozen=True)
class Adding(Mean):
    def add(self, total, contribution):
        super().add(total, contribution)


@dataclass(frozen=True)
class Choosing(Selector):
    chosen: object = None

    def select(self, round):
        return self.chosen


class Failing(Selector):
    def run(self, round):
        yield from round.until(accepted=1 // 0)


class Untold(Trainer):
    def train(self, job):
        job.engine.train(job.data, job.task.training, job.task.seed, job.correct)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            {"aggregator": Finishing(change=weights(doubled))},
            "round 1: Finishing.finish returned weights of float64; it must be float32: end with "
            ".astype(np.float32)",
        ),
        (
            {"aggregator": Finishing(change=weights(cut))},
            "round 1: Finishing.finish returned weights of shape (2,); it must be (3,)",
        ),
        ({"aggregator": Finishing(change=nothing)}, "round 1: Finishing.finish returned None; it"),
        (
            {"aggregator": Adding()},
            "round 1, client 0: Adding.add returned None; it must return the value of the fold",
        ),
        (
            {"trainer": Untold()},
            "round 1, client 0: Untold.train returned None; it must return the",
        ),
    ],
)
def test_other_parts_are_named_as_well(parts, said: str) -> None:
    logic = a_logic(parts.pop("selector", alone(0, 1)), **parts)
    with pytest.raises(PartFailed, match=rf"^{re.escape(said)}.* \({HERE}:\d+\)$"):
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        (Choosing(), rf"Choosing\.select: it returned a NoneType; .* \({HERE}:\d+\)$"),
        (Choosing(["1"]), rf"^round 1: Choosing\.select: .*not '1'.* \({HERE}:\d+\)$"),
        (Failing(), r"^round 1: Failing\.run failed: ZeroDivisionError"),
    ],
)
def test_a_selector_that_fails_is_named(selector: Selector, said: str) -> None:
    logic = a_logic(selector)
    with pytest.raises(LogicError, match=said):
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)


@pytest.mark.parametrize(
    ("parts", "who"),
    [
        ({"aggregator": Finishing(change=weights(broken))}, "Finishing"),
        ({"hooks": [hook_of({"conclude": weights(broken)})]}, "Server.conclude"),
    ],
)
def test_a_broken_model_is_a_broken_model_and_says_who_made_it(parts, who: str) -> None:
    logic = a_logic(alone(0, 1), **parts)
    said = rf"^round 1: {who} \({HERE}:\d+\) made a model with values that are not finite; the"
    with pytest.raises(BrokenModel, match=said) as caught:
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    assert not caught.value.at_start


def test_a_half_that_is_given_values_too_large_to_compute_with_is_not_blamed() -> None:
    large, infinite = delta(lambda _: np.full(3, 1e30, np.float32)), delta(lambda one: one * one)
    hooks = [hook_of(client={"send": large}), hook_of(client={"send": infinite})]
    with np.errstate(over="ignore"):
        logic = a_logic(alone(0, 1), hooks=hooks, clients=2)
        with pytest.raises(BrokenModel, match="2 of 2 clients cannot train") as caught:
            run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    assert caught.value.at_start


@pytest.mark.parametrize("change", [raising, delta(doubled), delta(cut), nothing])
def test_in_a_deployment_the_update_is_rejected_and_the_first_reason_is_told(
    change: Change,
) -> None:
    logic = a_logic(alone(0, 1), hooks=[hook_of({"receive": change})])
    with pytest.raises(TooFewUpdates) as caught:
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS, untrusted=True), logic)
    reasons = [one.reason for one in caught.value.report.clients]
    assert all("the server's side of a hook failed on it: Server.receive" in one for one in reasons)
    assert f"were accepted; client 0: {reasons[0]}; the model is unchanged" in str(caught.value)
    assert str(caught.value).endswith("; see clients.jsonl for each client's reason")


@pytest.mark.parametrize(("clients", "blames"), [(2, False), (3, True)])
@pytest.mark.parametrize("change", [raising, nothing])
def test_three_clients_on_which_a_hook_fails_alike_are_not_its_cause(
    change: Change, clients: int, blames: bool
) -> None:
    logic = a_logic(alone(*range(clients)), hooks=[hook_of({"receive": change})])
    with pytest.raises(TooFewUpdates) as caught:
        run_round(a_state(logic), MemoryCarrier(logic, bowls(3), untrusted=True), logic)
    for one in caught.value.report.clients:
        assert ("3 clients" in one.reason) is blames


def test_clients_on_which_a_hook_fails_at_different_places_are_not_taken_together() -> None:
    def failing(update: Any) -> Any:
        if update.client == 0:
            raise KeyError("one place")
        raise ValueError("another place")

    for clients, blames in ((3, set()), (4, {1, 2, 3})):
        logic = a_logic(alone(*range(clients)), hooks=[hook_of({"receive": failing})])
        with pytest.raises(TooFewUpdates) as caught:
            run_round(a_state(logic), MemoryCarrier(logic, bowls(4), untrusted=True), logic)
        reports = caught.value.report.clients
        assert {one.client for one in reports if "clients, so the fault" in one.reason} == blames


def test_the_checks_change_no_bit() -> None:
    same = hook_of({}, {})
    runs = []
    for hooks in ([], [same]):
        logic = a_logic(alone(0, 1), hooks=hooks, clients=2)
        state, _ = run_rounds(3, a_state(logic), MemoryCarrier(logic, CLIENTS))
        runs.append(state.weights.tobytes())
    assert runs[0] == runs[1]
