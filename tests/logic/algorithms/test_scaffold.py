"""SCAFFOLD's variates estimate the clients' gradients, live where they belong, and are not lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import (
    ClientLost,
    LogicError,
    ServerState,
    Training,
    run_round,
)
from layers.logic.aggregators.geometric_median import GeometricMedian
from layers.logic.aggregators.krum import Krum, MultiKrum, NormClip
from layers.logic.aggregators.majority_vote import MajorityVote
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.median import Median, TrimmedMean
from layers.logic.algorithms.scaffold import Scaffold
from layers.logic.selectors.uniform import Uniform
from tests.logic.memory_carrier import (
    MemoryCarrier,
    a_logic,
    a_state,
    alone,
    of_client,
    run_rounds,
    same_bits,
)
from tests.logic.quadratic import bowls
from tests.logic.toys import InLanes
from tests.logic.vector_files import CLOSE, quadratics, vectors

KEY = "0:Scaffold"
VARIANTS = {
    "uniform": (Mean("uniform"), 1.0),
    "weighted_by_n": (Mean("samples"), 1.0),
    "uniform_eta_g_0.5": (Mean("uniform"), 0.5),
}


def server_variate(state, clients: int) -> np.ndarray:
    return state.memory[KEY]["sum"] / clients


@pytest.mark.parametrize("variant", VARIANTS)
def test_three_rounds_give_the_numbers_worked_out(variant) -> None:
    file = vectors("scaffold")
    aggregator, rate = VARIANTS[variant]
    state, ledgers, local = None, {}, {}

    def watch(update):
        local[update.client] = start.weights + update.delta
        return [update]

    for given_round, expected in zip(
        file["inputs"]["rounds"], file["expected"]["variants"][variant], strict=True
    ):
        selected, steps = given_round["selected"], [0, 0, 0]
        for client, number in zip(selected, given_round["steps"], strict=True):
            steps[client] = number
        logic = a_logic(
            alone(*selected),
            aggregator=aggregator,
            hooks=[Scaffold(server_learning_rate=rate)],
            training=Training(learning_rate=file["inputs"]["lr"]),
        )
        start = a_state(logic, file["inputs"]["w0"]) if state is None else state
        clients = quadratics(file["inputs"], steps)
        peers = MemoryCarrier(logic, clients, forge=watch, ledgers=ledgers)
        state, _ = run_round(start, peers, logic)
        for client in expected["clients"]:
            number = client["client"]
            np.testing.assert_allclose(local[number], client["y"], **CLOSE)
            own = peers.memory(number, state).memory[KEY]["own"]
            np.testing.assert_allclose(own, client["c_plus"], **CLOSE)
        np.testing.assert_allclose(state.weights, expected["w"], **CLOSE)
        np.testing.assert_allclose(server_variate(state, 3), expected["c"], **CLOSE)


@given(
    option=st.sampled_from(["I", "II"]),
    cohorts=st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=5),
    lost=st.integers(0, 4),
)
def test_the_servers_variate_is_the_mean_of_all_clients(option, cohorts, lost) -> None:
    """Whoever takes part, and when a client is lost; those that never did count as zero."""
    clients = bowls(5)
    state, ledgers = None, {}
    for place, cohort in enumerate(cohorts):
        logic = a_logic(alone(*sorted(cohort)), hooks=[Scaffold(option)], min_updates=0)
        peers = MemoryCarrier(logic, clients, ledgers=ledgers, lost=[lost] if place == 1 else [])
        state = a_state(logic) if state is None else state
        state, _ = run_round(state, peers, logic)
    own = [
        peers.memory(client, state).memory.get(KEY, {}).get("own", np.zeros(3))
        for client in clients
    ]
    total = state.memory[KEY]["sum"]
    np.testing.assert_allclose(total, np.sum(own, axis=0), rtol=1e-5, atol=1e-5)


def of_now(peers: MemoryCarrier, client: int, state) -> np.ndarray:
    """Return a client's variate, zero if it began before the variates began anew."""
    kept = peers.memory(client, state).memory.get(KEY, {})
    valid = kept.get("since", 0) == state.memory[KEY].get("since", 0)
    return kept["own"] if "own" in kept and valid else np.zeros(3, np.float32)


@given(
    option=st.sampled_from(["I", "II"]),
    cohorts=st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=5),
    losses=st.lists(st.sets(st.integers(0, 4), max_size=2), min_size=5, max_size=5),
)
def test_the_variates_add_up_again_after_clients_have_lost_their_memory(
    option, cohorts, losses
) -> None:
    clients = bowls(5)
    state, ledgers = None, {}
    everybody = set(clients)
    for cohort, losing in [*zip(cohorts, losses, strict=False), (everybody, set())]:
        for client in losing:
            ledgers.pop(client, None)
        logic = a_logic(alone(*sorted(cohort)), hooks=[Scaffold(option)])
        peers = MemoryCarrier(logic, clients, ledgers=ledgers)
        start = a_state(logic) if state is None else ServerState.of_tree(state.tree())
        state, _ = run_round(start, peers, logic)
    total = state.memory[KEY]["sum"]
    own = np.sum([of_now(peers, client, state) for client in clients], axis=0)
    np.testing.assert_allclose(total, own, rtol=1e-5, atol=1e-4)


def test_a_client_that_takes_part_first_in_a_later_round_corrects_by_c() -> None:
    """One step of rate 1/2 on 0.5 ||w - b_k||^2, worked out by hand, with N = 2."""
    clients = bowls(2)
    one, other = (clients[client].b for client in (0, 1))
    training, state, ledgers = Training(steps=1, learning_rate=0.5), None, {}
    for client in (0, 1):
        logic = a_logic(alone(client), hooks=[Scaffold()], training=training)
        peers = MemoryCarrier(logic, clients, ledgers=ledgers)
        state, _ = run_round(a_state(logic) if state is None else state, peers, logic)
    # c_0 = -b_0, c = -b_0 / 2 and w = b_0 / 2 after round 1; then g - c_1 + c = -b_1.
    np.testing.assert_allclose(state.weights, (one + other) / 2, rtol=1e-5)
    own = [peers.memory(client, state).memory[KEY]["own"] for client in (0, 1)]
    np.testing.assert_allclose(own, [-one, one / 2 - other], rtol=1e-5)
    np.testing.assert_allclose(state.memory[KEY]["sum"], -one / 2 - other, rtol=1e-5)


def test_in_the_second_pass_of_round_1_c_is_zero_and_a_client_corrects_by_its_own_variate() -> None:
    logic = a_logic(
        InLanes(passes=2), hooks=[Scaffold()], training=Training(steps=1, learning_rate=0.5)
    )
    peers = MemoryCarrier(logic, bowls(1))
    b = peers.clients[0].b
    state, _ = run_round(a_state(logic), peers, logic)
    # c_0 = -b and y = b / 2 after the first pass; then g - c_0 = b / 2, and c_0 moves by b / 2.
    np.testing.assert_allclose(state.weights, b / 4, rtol=1e-5)
    np.testing.assert_allclose(peers.memory(0, state).memory[KEY]["own"], -b / 2, rtol=1e-5)
    np.testing.assert_allclose(state.memory[KEY]["sum"], -b / 2, rtol=1e-5)


@pytest.mark.parametrize("rate", [0.3, 1.0, 2.0])
def test_the_servers_learning_rate_multiplies_what_the_round_adds(rate: float) -> None:
    start, states = np.array([0.1, -3.7, 12.3], np.float32), []
    for hooks in ([], [Scaffold(server_learning_rate=rate)]):
        logic = a_logic(alone(0, 1, 2), hooks=hooks, training=Training(steps=3, learning_rate=0.1))
        peers = MemoryCarrier(logic, bowls(3))
        state, _ = run_round(a_state(logic, start), peers, logic)  # all variates are zero
        states.append(state.weights)
    fedavg, found = states
    expected = fedavg if rate == 1 else start + np.float32(rate) * (fedavg - start)
    assert same_bits(found, expected)


def drifting():
    """Return clients of different curvature, and the minimum of their mean."""
    clients = {k: replace(data, A=np.diag([1.0, 3.0, 2.0][k] * np.ones(3)))
               for k, data in bowls(3).items()}  # fmt: skip
    A = np.mean([data.A for data in clients.values()], axis=0)
    b = np.mean([data.A @ data.b for data in clients.values()], axis=0)
    return clients, np.linalg.solve(A, b)


def local(selector, **settings):
    return a_logic(
        selector,
        aggregator=Mean("uniform"),
        hooks=[Scaffold()],
        training=Training(steps=10, learning_rate=0.05),
        **settings,
    )


def test_it_finds_the_optimum_after_a_client_has_lost_its_memory() -> None:
    clients, optimum = drifting()
    logic = local(alone(0, 1, 2))
    peers = MemoryCarrier(logic, clients)
    state, _ = run_rounds(5, a_state(logic), peers)
    del peers.ledgers[1]
    state, reports = run_rounds(60, state, peers)
    assert np.linalg.norm(state.weights - optimum) < 1e-4
    assert [dict(report.numbers) for report in reports[:2]] == [{"lost_variates": 1}, {}]


def test_it_finds_the_optimum_after_the_server_went_back_further_than_clients_remember() -> None:
    clients, optimum = drifting()
    logic = local(alone(0, 1, 2))
    peers = MemoryCarrier(logic, clients)
    early, _ = run_rounds(3, a_state(logic), peers)
    run_rounds(5, early, peers)
    state, _ = run_rounds(60, early, peers)
    assert np.linalg.norm(state.weights - optimum) < 1e-4


def test_without_a_loss_nothing_travels_but_the_variates() -> None:
    sent = []
    logic = local(alone(0, 1, 2))
    peers = MemoryCarrier(logic, bowls(3), forge=lambda update: sent.append(update) or [update])
    _, reports = run_rounds(3, a_state(logic), peers)
    assert {key for update in sent for key in update.slots[KEY]} == {"change"}
    assert {key for task in peers.tasks for key in task.slots.get(KEY, {})} == {"variate"}
    assert [dict(report.numbers) for report in reports] == [{}, {}, {}]


def test_a_variate_of_another_beginning_moves_the_model_and_not_the_variates() -> None:
    clients, _ = drifting()
    logic, forge = local(alone(0, 2)), of_client(2, of_another_beginning)
    peers = MemoryCarrier(logic, clients, forge=forge)
    state, report = run_round(a_state(logic), peers, logic)
    assert report.of("accepted") == (0, 2)
    assert same_bits(state.memory[KEY]["sum"], of_now(peers, 0, state)), "without that of client 2"


def of_another_beginning(update):
    return [replace(update, slots={KEY: {**update.slots[KEY], "since": 7}})]


def test_a_client_that_is_cut_off_between_two_passes_has_lost_its_variate() -> None:
    logic = local(InLanes(passes=2))
    passes = []

    def once(update):
        passes.append(update.pass_number)
        if len(passes) > 3 and update.client == 1 and update.round == 1:
            return [ClientLost(1, 1, "cable cut")]
        return [update]

    peers = MemoryCarrier(logic, bowls(3), forge=once)
    state, _ = run_rounds(2, a_state(logic), peers)
    assert state.memory[KEY]["since"] == 2
    state, _ = run_rounds(2, state, peers)
    own = np.sum([of_now(peers, client, state) for client in range(3)], axis=0)
    np.testing.assert_allclose(state.memory[KEY]["sum"], own, rtol=1e-5, atol=1e-4)


def by_hand(clients, rounds: int, correct: str, training: Training):
    """Full participation in float64, momentum and weight decay as torch's SGD has them."""
    rate, rho, steps = training.learning_rate, training.momentum, training.steps
    w, c = np.zeros(3), np.zeros(3)
    own = {client: np.zeros(3) for client in clients}
    for _ in range(rounds):
        deltas, changes = [], []
        for client, data in clients.items():
            y, v = w.copy(), np.zeros(3)
            for _ in range(steps):
                g = data.A @ (y - data.b)
                if correct == "gradient":
                    g = g + c - own[client]
                v = rho * v + g + training.weight_decay * y
                y = y - rate * v
                if correct == "step":
                    y = y - rate * (c - own[client])
            weight = sum((1 - rho ** (s + 1)) / (1 - rho) for s in range(steps))
            a = weight if correct == "gradient" else steps
            changes.append(-c + (w - y) / (rate * a))
            deltas.append(y - w)
            own[client] = own[client] + changes[-1]
        w, c = w + np.mean(deltas, axis=0), c + np.mean(changes, axis=0)
    return w, c, own


@pytest.mark.parametrize("correct", ["gradient", "step"])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_the_correction_is_inside_or_outside_of_the_momentum(correct, momentum) -> None:
    clients = {k: replace(data, A=np.diag([1.0, 2.0, 3.0][k] * np.ones(3)))
               for k, data in bowls(3).items()}  # fmt: skip
    training = Training(steps=6, learning_rate=0.01, momentum=momentum, weight_decay=0.1)
    logic = a_logic(
        alone(0, 1, 2),
        aggregator=Mean("uniform"),
        hooks=[Scaffold(correct=correct)],
        training=training,
    )
    peers = MemoryCarrier(logic, clients)
    state, _ = run_rounds(5, a_state(logic), peers)
    w, c, own = by_hand(clients, 5, correct, training)
    np.testing.assert_allclose(state.weights, w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(server_variate(state, 3), c, rtol=1e-4, atol=1e-4)
    for client in clients:
        kept = peers.memory(client, state).memory[KEY]["own"]
        np.testing.assert_allclose(kept, own[client], rtol=1e-4, atol=1e-4)
    other = "step" if correct == "gradient" else "gradient"
    apart = np.abs(by_hand(clients, 5, other, training)[0] - w).max()
    assert (apart > 1e-3) == (momentum > 0)


def test_option_one_keeps_the_received_models_gradient() -> None:
    clients = bowls(3)
    logic = a_logic(alone(0, 1, 2), hooks=[Scaffold("I")], training=Training(steps=5))
    peers = MemoryCarrier(logic, clients)
    state, _ = run_round(a_state(logic), peers, logic)
    for client, data in clients.items():
        own = peers.memory(client, state).memory[KEY]["own"]
        np.testing.assert_allclose(own, -data.b, rtol=1e-5)
    np.testing.assert_allclose(
        server_variate(state, 3), -np.mean([data.b for data in clients.values()], axis=0), rtol=1e-5
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("change", one) for one in (None, 3.0, np.zeros(2, np.float32), np.zeros(3))),
        ("change", np.full(3, np.inf, np.float32)),
        *(("since", one) for one in (-1, 1.5, "1", np.ones(2))),
    ],
)
def test_an_update_without_a_sound_variate_of_a_round_is_refused(name, value) -> None:
    def forge(update):
        return [replace(update, slots={KEY: {**update.slots[KEY], name: value}})]

    logic = a_logic(alone(0, 1), hooks=[Scaffold()])
    peers = MemoryCarrier(logic, bowls(2), forge=of_client(1, forge))
    state, report = run_round(a_state(logic), peers, logic)
    assert report.of("rejected") == (1,)
    said = {"change": "control variate", "since": "`since`"}
    assert said[name] in report.clients[1].reason
    assert np.isfinite(state.memory[KEY]["sum"]).all()


@pytest.mark.parametrize(
    "rule",
    [
        *(GeometricMedian(), Krum(), MajorityVote(0.1), Median(), MultiKrum()),
        *(NormClip(), TrimmedMean(0.2)),
    ],
    ids=repr,
)
def test_a_rule_that_bears_arbitrary_clients_is_refused_beside_variates_that_do_not(rule) -> None:
    with pytest.raises(LogicError, match=f"Scaffold .* {type(rule).__name__} "):
        a_logic(alone(0), aggregator=rule, hooks=[Scaffold()], min_updates=5)


@pytest.mark.parametrize("option", ["I", "II"])
def test_n_is_all_clients_of_the_experiment_whoever_is_there(option) -> None:
    """c = sum_i c_i / N; with ten clients of which five are there in turn it was twice as large."""
    everybody = bowls(10)
    state, ledgers = None, {}
    for there in (range(5), range(5, 10)):
        clients = {client: everybody[client] for client in there}
        logic = a_logic(Uniform(1.0), hooks=[Scaffold(option)], clients=10)
        peers = MemoryCarrier(logic, clients, ledgers=ledgers)
        state = a_state(logic) if state is None else state
        state, _ = run_round(state, peers, logic)
    own = [peers.memory(client, state).memory[KEY]["own"] for client in range(10)]
    run_round(state, peers, logic)
    variate = peers.tasks[-1].slots[KEY]["variate"]
    np.testing.assert_allclose(variate, np.mean(own, axis=0), rtol=1e-5)
