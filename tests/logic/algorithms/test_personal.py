"""Personal models: each method's numbers, from equations that were worked out independently."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from layers.logic import (
    PRESETS,
    Logic,
    LogicError,
    OpenRound,
    Selector,
    ServerState,
    Task,
    Training,
    run_round,
)
from layers.logic.algorithms.personal import (
    ApflTrainer,
    DittoTrainer,
    FedBabuTrainer,
    FedRepTrainer,
    FineTuning,
    PerFedAvgTrainer,
    PfedMeTrainer,
)
from layers.logic.core.local_tensors import LocalTensors, own_tensors
from layers.logic.core.state import ClientState
from layers.logic.core.trainer import Trainer
from layers.logic.hooks.local_gradients import FedProx
from layers.logic.round.client import personal_model
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, same_bits
from tests.logic.quadratic import Quadratic, QuadraticEngine, Tensor, Trained
from tests.logic.vector_files import CLOSE, vectors

NO_BUFFERS = np.zeros(1, np.float32)


@dataclass(frozen=True)
class Scripted(Selector):
    """The clients of each round, as a list gives them."""

    rounds: tuple[tuple[int, ...], ...]

    def select(self, round: OpenRound) -> tuple[int, ...]:
        return self.rounds[round.number - 1]


class Run:
    """A run of a preset on the clients of the vectors.

    Attributes:
        sent: by round, the updates as they were sent, by client.
    """

    def __init__(self, given: Mapping[str, Any], name: str, steps: int, **settings: Any) -> None:
        rate, own = settings.pop("rate", given["rate"]), settings.pop("own", None)
        decay = settings.pop("weight_decay", 0.0)
        preset = PRESETS[name](**settings)
        own = own or preset.own  # as logic.own replaces the preset's
        tensors = tuple(
            Tensor(one["name"], (one["stop"] - one["start"],), one["start"], one["stop"])
            for one in given["tensors"]
        )
        start = np.array(given["model_0"], np.float32)
        local_tensors = LocalTensors(tensors, own_tensors(own, tensors)) if own else None
        self.logic = Logic(
            layout=tensors,
            selector=Scripted(tuple(map(tuple, given["rounds"]))),
            aggregator=preset.aggregator,
            hooks=preset.hooks,
            trainer=preset.trainer,
            training=Training(steps=steps, learning_rate=rate, weight_decay=decay),
            max_update=None,
            local_tensors=local_tensors,
            initial=(start, NO_BUFFERS),
        )
        self.clients = {
            client: Quadratic(np.array(A), np.array(b), n=n)
            for client, (A, b, n) in enumerate(
                zip(given["A"], given["b"], given["samples"], strict=True)
            )
        }
        self.carrier = MemoryCarrier(self.logic, self.clients)
        self.carrier.forge = lambda update: self.sent.update({update.client: update}) or [update]
        self.state = ServerState(0, start, NO_BUFFERS)
        self.sent: dict[int, Any] = {}

    def round(self) -> None:
        self.sent = {}
        self.state, report = run_round(self.state, self.carrier, self.logic)
        assert set(report.of("accepted")) == set(self.sent)

    def memory(self, client: int) -> dict[str, Any]:
        return dict(self.carrier.memory(client, self.state).memory)

    def personal(self, client: int) -> np.ndarray:
        return personal(
            self.logic, self.state.weights, self.clients[client], self.carrier, client, self.state
        )


def personal(logic, weights, data, carrier, client, state) -> np.ndarray:
    engine, training = QuadraticEngine(weights.size), logic.training
    task = Task(state.round + 1, client, 7, training, weights, NO_BUFFERS)
    personal_model(task, carrier.memory(client, state), engine, data, logic)
    return engine.weights


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, **CLOSE)


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    return vectors("personal")


PARTIAL = {
    "fedper": {"steps": 5},
    "lg-fedavg": {"steps": 4},
    "fedbn": {"steps": 3, "own": ("bn.*",)},
    "fedrep": {"steps": 2, "head_steps": 4},
    "fedbabu": {"steps": 4, "tune_steps": 0},
}


@pytest.mark.parametrize("name", PARTIAL)
def test_what_travels_what_stays_and_what_each_client_uses(known, name) -> None:
    wanted = known["expected"][name.replace("-", "_")]
    run = Run(known["inputs"], name, **PARTIAL[name])
    assert sorted(run.logic.local_tensors.own) == sorted(wanted["own"])
    for one in wanted["rounds"]:
        run.round()
        assert set(run.sent) == set(one["selected"])
        for client in one["clients"]:
            sent = run.sent[client["client"]].delta
            assert sent.size == wanted["values_sent"]
            close(sent, client["sent"])
        assert all(task.weights.size == wanted["values_sent"] for task in run.carrier.tasks)
        close(run.state.weights[run.logic.local_tensors.travels], one["shared_after"])
        for client, own in one["own_after"].items():
            close(run.memory(int(client))["mask"]["own"], own)
        for client, model in one["personal_models"].items():
            close(run.personal(int(client)), model)


def test_fedrep_of_the_paper_weighs_clients_equally(known) -> None:
    run = Run(known["inputs"], "fedrep", weights="uniform", **PARTIAL["fedrep"])
    for shared in known["expected"]["fedrep_equal_weights"]:
        run.round()
        close(run.state.weights[run.logic.local_tensors.travels], shared)


@pytest.mark.parametrize("tune", ["all", "head", "body"])
def test_fedbabu_tunes_the_whole_model_or_a_part_of_it(known, tune) -> None:
    steps = known["inputs"]["fedbabu"]["fine_tune_steps"]
    run = Run(known["inputs"], "fedbabu", 4, tune=tune, tune_steps=steps)
    for _ in known["inputs"]["rounds"]:
        run.round()
    for client, model in known["expected"]["fedbabu"]["fine_tuned"][tune].items():
        close(run.personal(int(client)), model)


def test_fine_tuning_leaves_fedavg_as_it_is(known) -> None:
    given, wanted = known["inputs"], known["expected"]["fine_tuning"]
    run = Run(given, "fine-tuning", 4, tune_steps=given["fine_tuning"]["fine_tune_steps"])
    for model in wanted["global"]:
        run.round()
        close(run.state.weights, model)
    for client, model in wanted["personal"].items():
        close(run.personal(int(client)), model)


@pytest.mark.parametrize(("tune", "stays"), [("head", slice(0, 10)), ("body", slice(10, 14))])
def test_tensors_that_are_not_tuned_keep_their_bits_also_with_weight_decay(
    known: dict[str, Any], tune: str, stays: slice
) -> None:
    run = Run(known["inputs"], "fine-tuning", 4, tune=tune, tune_steps=3, weight_decay=0.3)
    run.round()
    moved = run.personal(0) != run.state.weights
    assert not moved[stays].any()
    assert moved.sum() == 14 - moved[stays].size, "all others are tuned"


def test_fedbabus_head_keeps_its_initial_bits_also_with_weight_decay(known: dict[str, Any]) -> None:
    run = Run(known["inputs"], "fedbabu", 4, weight_decay=0.3)
    head = slice(10, 14)
    for _ in known["inputs"]["rounds"]:
        run.round()
    for client in range(4):
        assert same_bits(run.memory(client)["mask"]["own"], start_of(run)[head])


def test_ditto_pulls_a_personal_model_to_the_received_one(known) -> None:
    given = known["inputs"]["ditto"]
    settings = {
        "lam": given["lambda"],
        "personal_steps": given["personal_steps"],
        "personal_rate": given["personal_rate"],
    }
    run = Run(known["inputs"], "ditto", given["global_steps"], **settings)
    for one in known["expected"]["ditto"]:
        start = run.state.weights
        run.round()
        for client, model in one["local_global"].items():
            close(start + run.sent[int(client)].delta, model)
        for client, model in one["personal"].items():
            close(run.personal(int(client)), model)
        close(run.state.weights, one["model"])


@pytest.mark.parametrize("adaptive", [False, True])
def test_apfl_mixes_two_models(known, adaptive) -> None:
    given = known["inputs"]["apfl"]
    settings = {"alpha": given["alpha_0"], "adaptive": adaptive}
    run = Run(known["inputs"], "apfl", given["local_steps"], **settings)
    for one in known["expected"]["apfl"]["adaptive" if adaptive else "fixed"]:
        start = run.state.weights
        run.round()
        for client, steps in one["clients"].items():
            local = start + run.sent[int(client)].delta
            close(local, steps["steps"][-1]["w"])
            of = personal(
                run.logic, local, run.clients[int(client)], run.carrier, int(client), run.state
            )
            close(of, steps["personal"])
        for client, model in one["v"].items():
            close(run.memory(int(client)).get("trainer", {}).get("personal", start_of(run)), model)
        for client, alpha in one["alpha"].items():
            kept = run.memory(int(client)).get("trainer", {}).get("alpha", given["alpha_0"])
            close(kept, alpha)
        close(run.state.weights, one["model"])


def start_of(run: Run) -> np.ndarray:
    return run.logic.initial[0]


def test_pfedme_moves_towards_personal_models(known) -> None:
    given = known["inputs"]["pfedme"]
    settings = {
        "lam": given["lambda"],
        "inner_steps": given["K"],
        "inner_rate": given["inner_rate"],
        "beta": given["beta"],
        "rate": given["rate"],
    }
    run = Run(known["inputs"], "pfedme", given["R"], **settings)
    for one in known["expected"]["pfedme"]["recommended"]:
        start = run.state.weights
        run.round()
        for client, model in one["local"].items():
            close(start + run.sent[int(client)].delta, model)
        for client, theta in one["theta"].items():
            close(run.personal(int(client)), theta)
        close(run.state.weights, one["model"])


MU, RATE, STEPS = 0.7, 0.1, 3


def plain(A: np.ndarray, b: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Local SGD with FedProx's term, in float64."""
    w = start
    for _ in range(STEPS):
        w = w - RATE * (A @ (w - b) + MU * (w - start))
    return w


def pfedme(A: np.ndarray, b: np.ndarray, start: np.ndarray) -> np.ndarray:
    w = theta = start
    for _ in range(STEPS):
        for _ in range(2):
            theta = theta - 0.05 * (A @ (theta - b) + MU * (theta - start) + 4.0 * (theta - w))
        w = w - RATE * 4.0 * (w - theta)
    return w


def per_fedavg(A: np.ndarray, b: np.ndarray, start: np.ndarray) -> np.ndarray:
    w = start
    for _ in range(STEPS):
        ahead = w - 0.2 * A @ (w - b)
        w = w - RATE * (A @ (ahead - b) + MU * (ahead - start))
    return w


def per_fedavg_by_the_hessian(A: np.ndarray, b: np.ndarray, start: np.ndarray) -> np.ndarray:
    w = start
    for _ in range(STEPS):
        ahead = w - 0.2 * A @ (w - b)
        gradient = A @ (ahead - b) + MU * (ahead - start)
        w = w - RATE * (gradient - 0.2 * A @ gradient)
    return w


@pytest.mark.parametrize(
    ("trainer", "by_hand"),
    [
        (FineTuning(), plain),
        (DittoTrainer(), plain),
        (ApflTrainer(), plain),
        (PfedMeTrainer(lam=4.0, inner_steps=2, inner_rate=0.05), pfedme),
        (PerFedAvgTrainer(alpha=0.2), per_fedavg),
        (PerFedAvgTrainer(0.2, "hessian-free", delta=0.1), per_fedavg_by_the_hessian),
    ],
    ids=lambda one: one.__name__ if callable(one) else repr(one),
)
def test_a_hook_corrects_the_steps_of_the_model_that_a_client_returns(
    trainer: Trainer, by_hand: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
) -> None:
    A, b, start = np.diag([1.0, 2.0, 0.5]), np.array([2.0, -1.0, 3.0]), np.array([0.5, 1.0, -1.0])
    training = Training(steps=STEPS, learning_rate=RATE)
    logic = a_logic(alone(0), trainer=trainer, hooks=[FedProx(MU)], training=training)
    peers = MemoryCarrier(logic, {0: Quadratic(A, b, 10)})
    state, _ = run_round(a_state(logic, start), peers, logic)
    np.testing.assert_allclose(state.weights, by_hand(A, b, start), rtol=1e-4)


@pytest.mark.parametrize(
    ("trainer", "head_steps"), [(FedBabuTrainer(), 0), (FedRepTrainer(head_steps=2), 2)]
)
def test_a_hook_corrects_the_steps_of_each_part_of_the_model_while_it_trains(
    trainer: Trainer, head_steps: int
) -> None:
    a, b, start = np.array([1.0, 2.0, 0.5]), np.array([2.0, -1.0, 3.0]), np.array([0.5, 1.0, -1.0])
    tensors = (Tensor("body", (2,), 0, 2), Tensor("head", (1,), 2, 3))
    logic = Logic(
        layout=tensors,
        selector=alone(0),
        trainer=trainer,
        hooks=(FedProx(MU),),
        training=Training(steps=STEPS, learning_rate=RATE),
        max_update=None,
        local_tensors=LocalTensors(tensors, frozenset({"head"})),
        initial=(start.astype(np.float32), NO_BUFFERS),
    )
    carrier = MemoryCarrier(logic, {0: Quadratic(np.diag(a), b, 10)})
    state, _ = run_round(a_state(logic, start), carrier, logic)
    body, head = start[:2], start[2:]
    for _ in range(STEPS):  # the matrix is diagonal, so that each weight moves for itself
        body = body - RATE * (a[:2] * (body - b[:2]) + MU * (body - start[:2]))
    for _ in range(head_steps):
        head = head - RATE * (a[2:] * (head - b[2:]) + MU * (head - start[2:]))
    np.testing.assert_allclose(state.weights, [*body, start[2]], rtol=1e-4)
    own = carrier.memory(0, state).memory["mask"]["own"]
    np.testing.assert_allclose(own, head, rtol=1e-4)


@dataclass(eq=False)
class Scores:
    """The mini-batches of a client, x (steps, m, p) and y (steps, m)."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return self.y[0].size


class GivenBatches(list):
    """Mini-batches in a given order."""

    taken = 0

    def report(self) -> Trained:
        return Trained(self.taken, loss=1.0)


class LogisticEngine(QuadraticEngine):
    """The mean logistic loss of p weights and a bias, in float32; with given mini-batches."""

    def batches(self, samples: Scores, plan: Training, seed: int, **_given: object) -> GivenBatches:
        rows = range(plan.steps)
        self.run = GivenBatches((samples.x[row], samples.y[row]) for row in rows)
        self.rate = np.float32(plan.learning_rate)
        return self.run

    def batch_gradient(self, batch) -> np.ndarray:
        x, y = batch
        x = np.hstack([x, np.ones((len(x), 1))])
        p = 1 / (1 + np.exp(-(x @ self.weights.astype(np.float64))))
        return (x.T @ (p - y) / len(y)).astype(np.float32)

    def step(self, batch, correct=None) -> None:
        gradient = self.batch_gradient(batch)
        if correct is not None:
            correct(gradient, self.weights)
        self.weights -= self.rate * gradient
        self.run.taken += 1


ORDERS = {
    "fo": ("first", 2),
    "hf_finite_difference": ("hessian-free", 3),
    "hf_exact_hessian": ("hessian-free", 3),  # the difference quotient stands for the Hessian
}


@pytest.mark.parametrize("order", ORDERS)
def test_per_fedavg_looks_one_step_ahead(known, order) -> None:
    given, wanted = known["inputs"]["per_fedavg"], known["expected"]["per_fedavg"][order]
    name, each = ORDERS[order]
    start = np.array(given["model_0"], np.float32)
    x, y = np.array(given["x"]), np.array(given["y"])
    steps = x.shape[1]
    preset = PRESETS["per-fedavg"](alpha=given["alpha"], delta=given["delta"], order=name)
    tensors = (Tensor("p", (start.size,), 0, start.size),)
    logic = Logic(
        layout=tensors,
        selector=Scripted((tuple(given["selected"]),)),
        aggregator=preset.aggregator,
        trainer=preset.trainer,
        training=Training(steps=steps, learning_rate=given["beta"]),
        max_update=None,
    )
    clients = {
        client: Scores(
            x[client, :, :each].reshape(steps * each, *x.shape[3:]),
            y[client, :, :each].reshape(steps * each, -1),
        )
        for client in given["selected"]
    }
    carrier = MemoryCarrier(logic, clients)
    carrier.engine = LogisticEngine(start.size)
    sent = {}
    carrier.forge = lambda update: sent.update({update.client: update}) or [update]
    state, _ = run_round(ServerState(0, start, NO_BUFFERS), carrier, logic)
    for client, one in wanted["clients"].items():
        close(start + sent[int(client)].delta, one[-1]["w"])
        assert sent[int(client)].steps == steps
    close(state.weights, wanted["model"])
    for client, model in wanted["personal_after_one_step"].items():
        engine = LogisticEngine(start.size)
        task = Task(2, int(client), 7, logic.training, state.weights, NO_BUFFERS)
        personal_model(task, ClientState(), engine, clients[int(client)], logic)
        close(engine.weights, model)


@pytest.mark.parametrize("name", ["fedrep", "fedbabu"])
def test_a_method_with_own_tensors_needs_some(name) -> None:
    preset = PRESETS[name]()
    tensors = (Tensor("body", (2,), 0, 2), Tensor("head", (1,), 2, 3))
    with pytest.raises(LogicError, match=r"logic\.own"):
        Logic(layout=tensors, trainer=preset.trainer)


@pytest.mark.parametrize("setting", ["momentum", "weight_decay"])
def test_per_fedavg_refuses_steps_that_are_not_plain(setting: str) -> None:
    with pytest.raises(LogicError, match=r"PerFedAvgTrainer .*set momentum and weight_decay to 0"):
        a_logic(alone(0), trainer=PerFedAvgTrainer(), training=Training(**{setting: 0.5}))
