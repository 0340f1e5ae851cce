"""The ideas of papers in examples/ideas: each against numbers from its authors' equations."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fedmx import Experiment, Job, simulate
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.losses.references import FedProto as FedProtoLoss
from layers.compute.losses.references import Moon as MoonLoss
from layers.logic import Facilities, OpenRound, ServerState, Task, Training, Update, run_round
from layers.logic.aggregators.by_group import ByGroup
from layers.logic.aggregators.mean import Mean
from tests.compute.losses.test_losses import (
    CLASSES,
    DATA,
    INPUTS,
    PREVIOUS,
    PROTOTYPES,
    RECEIVED,
    TEACHER,
    fedproto,
    forward,
    log_softmax,
    moon,
    two_layers,
)
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds
from tests.logic.quadratic import Quadratic

IDEAS = Path(__file__).resolve().parents[2] / "examples" / "ideas"
RATE, STEPS = 0.25, 2
CURVES = (np.diag([1.0, 0.5]), np.diag([0.5, 1.5]), np.diag([1.0, 1.0]))
TARGETS = (np.array([1.0, -1.0]), np.array([2.0, 0.5]), np.array([-1.0, 3.0]))
CLIENTS = {
    client: Quadratic(A, b, n=1 + client)
    for client, (A, b) in enumerate(zip(CURVES, TARGETS, strict=True))
}


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(IDEAS)


def gradient(client: int, weights: np.ndarray) -> np.ndarray:
    return CURVES[client] @ (weights - TARGETS[client])


def run(rounds: int, **settings):
    training = Training(steps=STEPS, learning_rate=RATE)
    logic = a_logic(**{"selector": alone(*CLIENTS), "size": 2, "training": training, **settings})
    carrier = MemoryCarrier(logic, CLIENTS)
    state, _ = run_rounds(rounds, a_state(logic), carrier)
    return state, carrier


def test_ditto_keeps_a_personal_model_near_the_received_one() -> None:
    lam, rounds = 0.5, 3
    state, carrier = run(rounds, trainer=import_module("ditto").Ditto(lam=lam))
    w, v = np.zeros(2), {client: np.zeros(2) for client in CLIENTS}
    for _ in range(rounds):
        local = {}
        for client in CLIENTS:
            local[client] = w.copy()
            for _ in range(STEPS):
                v[client] -= RATE * (gradient(client, v[client]) + lam * (v[client] - w))
                local[client] -= RATE * gradient(client, local[client])
        w = sum((1 + client) * model for client, model in local.items()) / 6
    np.testing.assert_allclose(state.weights, w, rtol=1e-5)
    for client, model in v.items():
        kept = carrier.memory(client, state).memory["trainer"]["v"]
        np.testing.assert_allclose(kept, model, rtol=1e-5)


def trained(client: int, start: np.ndarray) -> np.ndarray:
    model = start.astype(np.float64)
    for _ in range(STEPS):
        model -= RATE * gradient(client, model)
    return model


def mean_of(models: dict[int, np.ndarray]) -> np.ndarray:
    return sum((1 + one) * model for one, model in models.items()) / sum(1 + one for one in models)


def test_ifca_lets_each_client_train_the_model_that_fits_it_best() -> None:
    rounds, selector = 4, import_module("ifca").Ifca(models=2, count=3, spread=1.0)
    state, carrier = run(0, selector=selector, aggregator=ByGroup())
    models = None
    for _ in range(rounds):
        asked = len(carrier.asked)
        state, report = run_round(state, carrier, carrier.logic)
        assert [name for name, _ in carrier.asked[asked:]] == ["loss", "loss"]
        if models is None:  # those that it drew before round 1
            starts = carrier.tasks[:3]
            models = {str(one): first_models(selector, carrier)[one] for one in range(2)}
            assert all(any(np.array_equal(t.weights, m) for m in models.values()) for t in starts)
        losses = {
            client: {
                group: 0.5 * (model - TARGETS[client]) @ CURVES[client] @ (model - TARGETS[client])
                for group, model in models.items()
            }
            for client in CLIENTS
        }
        choice = {client: min(told, key=told.get) for client, told in losses.items()}
        for group, model in models.copy().items():
            own = {one: trained(one, model) for one in CLIENTS if choice[one] == group}
            models[group] = mean_of(own) if own else model
        assert state.groups == choice
        for group, model in models.items():
            np.testing.assert_allclose(state.models[group][0], model, rtol=1e-4, atol=1e-6)
    assert len(report.of("accepted")) == 3


def first_models(selector, carrier: MemoryCarrier) -> list[np.ndarray]:
    round = OpenRound(dict.fromkeys(CLIENTS, 1), weights=a_state(carrier.logic).weights)
    next(selector.run(round))
    return [weights for weights, _ in round.models.values()]


def test_hierarchical_fedavg_averages_edges_and_after_some_rounds_the_cloud() -> None:
    edges = import_module("hierarchical").Edges(edges=2)
    state, _ = run(4, selector=edges, aggregator=ByGroup(together=2))
    cloud, samples = np.zeros(2), {0: 4, 1: 2}  # of clients 0 and 2, and of client 1
    at_edges = dict.fromkeys(samples, cloud)
    for round in range(1, 5):
        for edge in samples:
            own = [client for client in CLIENTS if client % 2 == edge]
            at_edges[edge] = mean_of({one: trained(one, at_edges[edge]) for one in own})
        if round % 2 == 0:
            cloud = sum(samples[edge] * model for edge, model in at_edges.items()) / 6
            at_edges = dict.fromkeys(samples, cloud)
    np.testing.assert_allclose(state.weights, cloud, rtol=1e-5)
    assert state.models == {}


def test_feddc_adds_back_the_drift_that_clients_keep() -> None:
    alpha, rounds = 0.2, 4
    state, _ = run(
        rounds, hooks=[import_module("feddc").FedDC(alpha=alpha)], aggregator=Mean("uniform")
    )
    w, g = np.zeros(2), np.zeros(2)
    h = {client: np.zeros(2) for client in CLIENTS}
    own = {client: np.zeros(2) for client in CLIENTS}
    for _ in range(rounds):
        ends = {}
        for client in CLIENTS:
            theta = w.copy()
            for _ in range(STEPS):
                penalty = alpha * (theta + h[client] - w)
                theta -= RATE * (
                    gradient(client, theta) + penalty + (own[client] - g) / (RATE * STEPS)
                )
            h[client] += theta - w
            own[client] = theta - w
            ends[client] = theta
        g = sum(own.values()) / 3
        w = sum(ends[client] + h[client] for client in CLIENTS) / 3
    np.testing.assert_allclose(state.weights, w, rtol=1e-4)


def test_fltrust_trusts_what_agrees_with_the_servers_own_update() -> None:
    root = np.array([1.0, 0.0], np.float32)
    facilities = Facilities(auxiliary=lambda weights, *_: weights + root)
    rule = import_module("trust").Trusted()
    state, _ = run(1, aggregator=rule, facilities=facilities)
    deltas = [run_alone(client) for client in CLIENTS]
    cosines = [delta[0] / np.linalg.norm(delta) for delta in deltas]
    trust = np.maximum(cosines, 0)
    assert (trust > 0).sum() == 2, "the third client goes the other way"
    scaled = [delta / np.linalg.norm(delta) for delta in deltas]
    wanted = sum(one * delta for one, delta in zip(trust, scaled, strict=True)) / trust.sum()
    np.testing.assert_allclose(state.weights, wanted, rtol=1e-5)


def run_alone(client: int) -> np.ndarray:
    weights = np.zeros(2)
    for _ in range(STEPS):
        weights -= RATE * gradient(client, weights)
    return weights


def test_moon_draws_representations_to_the_received_model_and_from_the_previous_one() -> None:
    engine = MXNetEngine(two_layers, (INPUTS,), CLASSES, loss=MoonLoss(2.0))
    memory: dict[str, np.ndarray] = {}
    context = SimpleNamespace(memory=memory, keep=memory.update)
    training = Training(steps=STEPS, learning_rate=RATE, batch_size=0)
    trained = []
    for weights in (PREVIOUS, RECEIVED):
        task = Task(1, 0, 7, training, weights.astype(np.float32), np.zeros(0, np.float32))
        engine.load(task.weights, task.buffers)
        import_module("moon").Moon().train(Job(task, engine, DATA, None, context))
        before = trained[-1] if trained else weights
        losses = partial(moon, received=weights, previous=before)
        trained.append(descended(losses, weights, RATE, STEPS))
        np.testing.assert_allclose(engine.weights, trained[-1], rtol=1e-4, atol=1e-5)


def descended(losses, start: np.ndarray, rate: float, steps: int) -> np.ndarray:
    """The weights after steps of gradient descent, with gradients from finite differences."""
    mean = lambda one: losses(one).mean()  # noqa: E731
    w = start
    for _ in range(steps):
        slopes = [(mean(w + e) - mean(w - e)) / 2e-5 for e in 1e-5 * np.eye(w.size)]
        w = w - rate * np.array(slopes)
    return w


def test_feddf_draws_the_mean_model_to_the_mean_output_of_the_clients_models() -> None:
    hook = import_module("feddf").FedDF(steps=STEPS, batch_size=0, learning_rate=RATE)
    engine = MXNetEngine(two_layers, (INPUTS,), CLASSES)

    def outputs(name: str, weights, buffers):
        engine.load(weights, buffers)
        return engine.outputs(DATA).logits

    def trained(name: str, weights, buffers, training, seed, **loss):
        engine.load(weights, buffers)
        engine.train(DATA, training, seed, **loss)
        return engine.weights.copy(), buffers

    start, none = RECEIVED.astype(np.float32), np.zeros(0, np.float32)
    context = SimpleNamespace(
        start=start,
        training=Training(),
        seed=7,
        outputs_on_asset=outputs,
        train_on_asset=trained,
    )
    models, side = (PREVIOUS, TEACHER), hook.server()
    for model in models:
        delta = (model - RECEIVED).astype(np.float32)
        side.on_accepted(SimpleNamespace(delta=delta, buffers=none), context)
    mean = sum(models) / 2
    state = side.conclude(ServerState(0, mean.astype(np.float32), none), context)
    teachers = np.exp(log_softmax(sum(forward(one)[1] for one in models) / 2))

    def divergence(w: np.ndarray) -> np.ndarray:
        return (teachers * (np.log(teachers) - log_softmax(forward(w)[1]))).sum(1)

    wanted = descended(divergence, mean, RATE, STEPS)
    np.testing.assert_allclose(state.weights, wanted, rtol=1e-4, atol=1e-5)
    assert divergence(wanted).mean() < divergence(mean).mean()


def test_fedproto_trains_near_the_prototypes_and_sends_those_of_its_own_model() -> None:
    idea = import_module("fedproto")
    engine = MXNetEngine(two_layers, (INPUTS,), CLASSES, loss=FedProtoLoss(0.6))
    memory: dict[str, np.ndarray] = {}
    shared = {"prototypes": PROTOTYPES.astype(np.float32)}
    context = SimpleNamespace(memory=memory, keep=memory.update, round_memory=shared, slot={})
    training = Training(steps=STEPS, learning_rate=RATE, batch_size=0)
    task = Task(1, 0, 7, training, RECEIVED.astype(np.float32), np.zeros(0, np.float32))
    idea.OwnModel().train(Job(task, engine, DATA, None, context))
    wanted = descended(fedproto, RECEIVED, RATE, STEPS)
    np.testing.assert_allclose(memory["weights"], wanted, rtol=1e-4, atol=1e-5)
    update = Update(1, 0, len(DATA), STEPS, engine.weights - task.weights, task.buffers)
    assert idea.Prototypes().client().send(update, context).delta.size == 0, "no weights travel"
    h = forward(wanted)[0]
    for label in range(CLASSES):
        own = h[DATA.y == label]
        assert context.slot["counts"][label] == len(own)
        np.testing.assert_allclose(context.slot["sums"][label], own.sum(0), rtol=1e-4, atol=1e-5)


def test_fedprotos_prototypes_are_means_over_the_samples_of_all_clients() -> None:
    side, memory = import_module("fedproto").Prototypes().server(), {}
    counts = (np.array([1, 3, 0]), np.array([1, 0, 0]))
    for count, values in zip(counts, (2.0, 6.0), strict=True):
        sums = count[:, None] * np.full((3, 2), values, np.float32)
        side.on_accepted(None, SimpleNamespace(slot={"counts": count, "sums": sums}))
    context = SimpleNamespace(memory=memory, keep=memory.update)
    state = ServerState(0, np.zeros(2, np.float32), np.zeros(0, np.float32))
    assert side.conclude(state, context) is state
    assert memory["prototypes"].tolist()[:2] == [[4, 4], [2, 2]]
    assert np.isnan(memory["prototypes"][2]).all(), "no client has this class"


@pytest.mark.parametrize("name", sorted(path.stem for path in IDEAS.glob("*.yaml")))
def test_an_idea_runs_from_its_file_in_one_process_and_on_workers(name) -> None:
    models = []
    for executor in ([], ["executor.processes=2"]):
        file = IDEAS / f"{name}.yaml"
        with simulate(Experiment.read(file, ["rounds=2", *executor], modules=None)) as simulation:
            list(simulation)
            models.append(simulation.weights)
    assert models[0].tobytes() == models[1].tobytes()
    lines = (IDEAS / f"{name}.py").read_text().splitlines()
    assert len(lines) < 80
