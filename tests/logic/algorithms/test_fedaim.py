"""FedAIM: who is biased, who stands at which mediator, and when the servers exchange models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layers.logic import LogicError, Training, run_round
from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.fedaim import EBS, NEBS, FedAim, FedAimSplit, Split, entropy, share
from layers.logic.core.state import ServerState
from tests.logic.label_counts import EVEN, ONE_CLASS, counted, labels_of
from tests.logic.memory_carrier import (
    MemoryCarrier,
    a_logic,
    a_state,
    of_client,
    run_rounds,
    same_bits,
)
from tests.logic.quadratic import Quadratic
from tests.logic.toys import InLanes
from tests.logic.vector_files import CLOSE, vectors

MIXED = counted([EVEN, ONE_CLASS[0], EVEN, ONE_CLASS[9], ONE_CLASS[1], ONE_CLASS[8], EVEN])


def a_fedaim(selector: FedAimSplit | None = None, size: int = 3, **settings):
    selector = selector or FedAimSplit(mediators=2)
    given = {"aggregator": FedAim(), "training": Training(steps=2, learning_rate=0.1), "seed": 5}
    return a_logic(selector, size, **{**given, **settings})


def split_of(state: ServerState) -> Split:
    return Split.of_state(state)


def after_one_round(clients, selector, size: int = 3) -> ServerState:
    logic = a_fedaim(selector, size)
    state, _ = run_round(a_state(logic, np.ones(size)), MemoryCarrier(logic, clients), logic)
    return state


def biased(state: ServerState) -> list[int]:
    return sorted(client for line in split_of(state).mediators for client in line)


@pytest.mark.parametrize("distance", ["emd", "l1"])
@pytest.mark.parametrize("reveal", ["histogram", "distance"])
def test_who_is_extremely_biased_is_as_worked_out(distance, reveal) -> None:
    told = vectors("fedaim_emd_split")
    clients, expected = counted(told["inputs"]["counts"]), told["expected"]
    state = after_one_round(clients, FedAimSplit(distance=distance, reveal=reveal))
    name = {"emd": "wasserstein1d", "l1": "l1"}[distance]
    np.testing.assert_allclose(split_of(state).emd, expected[f"{name}_vs_uniform"], atol=1e-9)
    assert biased(state) == expected[f"ebc_{name}"]
    assert list(split_of(state).unbiased) == expected[f"nebc_{name}"]
    state = after_one_round(clients, FedAimSplit(distance=distance, reference="pooled"))
    np.testing.assert_allclose(split_of(state).emd, expected[f"{name}_vs_global"], atol=1e-9)


@pytest.mark.parametrize("distance", ["emd", "l1"])
@pytest.mark.parametrize("reveal", ["histogram", "distance"])
def test_a_client_that_is_as_far_away_as_the_threshold_is_extremely_biased(
    distance: str, reveal: str
) -> None:
    """Three labels alike are 3.5 away by emd, and 0.7 + 0.7 by l1, but for rounding."""
    thirds = [1, 1, 1, *[0] * 7]
    threshold = {"emd": 3.5, "l1": 1.4}[distance]
    clients = counted([EVEN, thirds, ONE_CLASS[9], [20, 20, *[0] * 8]])
    for factor, expected in ((1.0, [1, 2, 3]), (1 + 1e-6, [2, 3])):
        selector = FedAimSplit(threshold=threshold * factor, distance=distance, reveal=reveal)
        assert biased(after_one_round(clients, selector)) == expected


@pytest.mark.parametrize("schedule", ["greedy", "balanced"])
@pytest.mark.parametrize("case", range(3))
def test_the_mediators_and_their_weights_are_as_worked_out(schedule, case) -> None:
    told = vectors("fedaim_mediators")
    expected = told["expected"]["cases"][case]
    selector = FedAimSplit(mediators=told["inputs"]["cases"][case]["M"], threshold=0.1)
    logic = a_fedaim(replace(selector, schedule=schedule))
    clients = counted(told["inputs"]["cases"][case]["counts"])
    moved: dict[int, np.ndarray] = {}

    def watch(update):
        moved[update.client] = update.delta
        return [update]

    start = a_state(logic, [1.0, 2.0, 3.0])
    state, _ = run_round(start, MemoryCarrier(logic, clients, forge=watch), logic)
    lines = [list(line) for line in split_of(state).mediators]
    assert lines == expected["greedy_fill" if schedule == "greedy" else "balanced"]
    np.testing.assert_allclose(split_of(state).emd, expected["client_emd"], atol=1e-9)
    if schedule == "greedy":
        models = [start.weights + sum(moved[client] for client in line) for line in lines]
        by_hand = np.average(models, axis=0, weights=expected["weight_m"])
        np.testing.assert_allclose(state.weights, by_hand, **CLOSE)


def test_entropies_and_shares_are_as_worked_out() -> None:
    told = vectors("fedaim_entropy_alpha")
    models, alphas = told["inputs"]["models"], told["inputs"]["alpha_inputs"]
    for model, expected in zip(models, told["expected"]["entropy"], strict=True):
        found = entropy(np.array(model["params"]), told["inputs"]["bins"])
        assert found == pytest.approx(expected["H_log10"], abs=1e-9)
    for asked, expected in zip(alphas, told["expected"]["alpha"], strict=True):
        found = share(asked["H_nebs"], asked["H_ebs"], asked["A"], asked["c"])
        assert found == pytest.approx(expected["alpha"], abs=1e-9)


def worked_out(divergence: float, **settings: str) -> tuple[ServerState, MemoryCarrier]:
    """Return the start of the vectors' run, and its clients."""
    asked = vectors("fedaim_rounds")["inputs"]
    clients = {
        k: Quadratic(np.array(A), np.array(b), n=sum(n), c=asked["c"], labels=labels_of(n))
        for k, (A, b, n) in enumerate(zip(asked["A"], asked["b"], asked["counts"], strict=True))
    }
    classes = len(asked["counts"][0])
    selector = FedAimSplit(asked["M"], classes, threshold=asked["theta_emd"])
    given = divergence, asked["theta_loss"], asked["A_alpha"], asked["c_alpha"]
    training = Training(steps=asked["local_steps"], learning_rate=asked["lr"])
    logic = a_fedaim(
        selector, len(asked["w0"]), aggregator=FedAim(*given, **settings), training=training
    )
    return a_state(logic, asked["w0"]), MemoryCarrier(logic, clients)


@pytest.mark.parametrize(("divergence", "trace"), [(0.015, "rounds"), (0.4, "rounds_theta_wd_0_4")])
def test_whole_rounds_with_the_loss_of_the_received_model_are_as_worked_out(
    divergence, trace
) -> None:
    expected = vectors("fedaim_rounds")["expected"]
    state, peers = worked_out(divergence, loss_of="received")
    exchanges = 0
    for round in expected[trace]:
        state, report = run_round(state, peers, peers.logic)
        assert [list(line) for line in split_of(state).mediators] == expected["mediators"]
        kept = state.memory["aggregator"]
        assert kept["last_loss"] == pytest.approx(round["loss"], rel=1e-5)
        exchanges += round["exchange"]
        assert kept.get("exchanges", 0) == exchanges
        np.testing.assert_allclose(state.weights, round["w_c"], **CLOSE)
        if round["exchange"]:
            assert kept["alpha"] == pytest.approx(round["alpha"], abs=1e-6)
        else:
            np.testing.assert_allclose(state.models[NEBS][0], round["w_nebs"], **CLOSE)
            np.testing.assert_allclose(state.models[EBS][0], round["w_ebs"], **CLOSE)
        assert report.of("accepted") == (*expected["nebc"], *expected["ebc"])
    assert 0 < exchanges <= len(expected[trace])


@pytest.mark.parametrize("last_loss", ["round", "exchange"])
def test_the_loss_is_that_of_the_new_model_of_nebs_before_the_exchange(last_loss) -> None:
    state, peers = worked_out(0.015, last_loss=last_loss)
    updates, exchanges, last = {}, 0, None
    peers.forge = lambda update: [updates.setdefault(update.client, update)]
    for _ in range(6):
        updates.clear()
        central, start = state.weights, peers.logic.aggregator.start(state, NEBS)[0]
        state, _ = run_round(state, peers, peers.logic)
        own, n = split_of(state).unbiased, {k: peers.clients[k].n for k in updates}
        mean = sum(n[k] * updates[k].delta for k in own) / sum(n[k] for k in own)
        losses = {}
        for k in own:
            peers.engine.load(start + mean, state.buffers)
            losses[k] = peers.engine.evaluate(peers.clients[k]).loss
        loss = sum(n[k] * losses[k] for k in own) / sum(n[k] for k in own)
        exchanged = last is None or (loss - last) / last <= 0.1  # the models are far apart
        exchanges += exchanged
        if exchanged or last_loss == "round":
            last = loss
        kept = state.memory["aggregator"]
        assert kept["last_loss"] == pytest.approx(last, rel=1e-5)
        assert (kept["exchanges"], not same_bits(state.weights, central)) == (exchanges, exchanged)
        assert peers.asked[-1] == ("loss", own)
    assert exchanges > 0


def test_without_extremely_biased_clients_it_is_fedavg() -> None:
    clients = counted([EVEN] * 4)
    logic = a_fedaim()
    averaging = a_fedaim(aggregator=Mean())
    one, _ = run_rounds(3, a_state(logic), MemoryCarrier(logic, clients))
    other, _ = run_rounds(3, a_state(averaging), MemoryCarrier(averaging, clients))
    assert same_bits(one.weights, other.weights)


def test_with_nobody_else_it_is_the_mediators_mean() -> None:
    clients = counted([ONE_CLASS[0], ONE_CLASS[9]])
    state = after_one_round(clients, FedAimSplit(mediators=1))
    assert biased(state) == [0, 1]
    logic = a_logic(
        InLanes((split_of(state).mediators[0],)), training=Training(steps=2, learning_rate=0.1)
    )
    alone, _ = run_round(a_state(logic, np.ones(3)), MemoryCarrier(logic, clients), logic)
    assert same_bits(state.weights, alone.weights)


@pytest.mark.parametrize("gone", [(0, 2, 6), (1, 3, 4, 5)], ids=["nebs", "ebs"])
def test_a_server_of_which_nobody_came_back_stays_where_it_is(gone) -> None:
    logic = a_fedaim(aggregator=FedAim(divergence=1e9))  # so that nothing is exchanged
    peers = MemoryCarrier(logic, MIXED)
    state, _ = run_rounds(2, a_state(logic, np.ones(3)), peers)
    peers.lost = gone
    after, report = run_round(state, peers, logic)
    assert set(report.of("lost")) == set(gone)
    stays, moves = (NEBS, EBS) if gone == (0, 2, 6) else (EBS, NEBS)
    assert same_bits(after.models[stays][0], state.models[stays][0])
    assert not same_bits(after.models[moves][0], state.models[moves][0])
    losses = [one.memory["aggregator"]["last_loss"] for one in (state, after)]
    assert (losses[0] == losses[1]) == (stays == NEBS)
    assert same_bits(after.weights, state.weights)


@pytest.mark.parametrize("left", [NEBS, EBS])
@pytest.mark.parametrize("divergence", [0.015, 1e9], ids=["exchanged", "apart"])
def test_when_the_clients_of_one_server_have_left_the_model_is_that_of_the_other(
    left, divergence
) -> None:
    logic = a_fedaim(aggregator=FedAim(divergence))
    peers = MemoryCarrier(logic, MIXED)
    state, _ = run_rounds(2, a_state(logic, np.ones(3)), peers)
    gone = (0, 2, 6) if left == NEBS else (1, 3, 4, 5)
    peers.clients = {client: data for client, data in MIXED.items() if client not in gone}
    before = state.models
    for _ in range(3):
        last = state.weights
        state, report = run_round(state, peers, logic)
        assert not same_bits(state.weights, last)
        assert set(state.models) == {left} & set(before)
    if left in before:
        assert same_bits(state.models[left][0], before[left][0])
    peers.clients = MIXED
    state, report = run_round(state, peers, logic)
    assert set(report.of("accepted")) == set(MIXED)


@pytest.mark.parametrize(
    ("threshold", "joining", "biased_after"),
    [(2.3, [80, *[0] * 9], []), (1.5, [*[0] * 9, 160], [0, 1, 2])],
    ids=["only nebs", "only ebs"],
)
def test_when_a_new_split_leaves_one_server_alone_no_model_of_the_servers_is_kept(
    threshold: float, joining: list[int], biased_after: list[int]
) -> None:
    """The client that joins moves the labels of all, which are the reference."""
    clients = counted([[12] * 10, ONE_CLASS[0], joining])
    selector = FedAimSplit(1, threshold=threshold, reference="pooled")
    logic = a_fedaim(selector, aggregator=FedAim(divergence=1e9))
    peers = MemoryCarrier(logic, {client: clients[client] for client in (0, 1)})
    state, _ = run_rounds(2, a_state(logic, np.ones(3)), peers)
    assert biased(state) == [1]
    assert set(state.models) == {NEBS, EBS}
    peers.clients = clients
    state, report = run_round(state, peers, logic)
    assert biased(state) == biased_after
    assert set(report.of("accepted")) == {0, 1, 2}
    assert not state.models
    assert set(state.memory["aggregator"]) == {"last_loss"}


def test_a_mediator_counts_by_those_of_its_clients_that_counted() -> None:
    clients = counted([EVEN, ONE_CLASS[0], ONE_CLASS[1], ONE_CLASS[9]])
    logic = a_fedaim(aggregator=FedAim(divergence=1e9))
    peers = MemoryCarrier(logic, clients)
    start, _ = run_round(a_state(logic, np.ones(3)), peers, logic)
    assert split_of(start).mediators == ((2, 3), (1,))
    moved = {}
    peers.lost, peers.forge = [3], lambda update: [moved.setdefault(update.client, update)]
    state, _ = run_round(start, peers, logic)
    bias = split_of(start).bias
    weights = [40 / bias[2], 40 / bias[1]]
    by_hand = np.average([moved[2].delta, moved[1].delta], axis=0, weights=weights)
    before, after = (kept.models[EBS][0] for kept in (start, state))
    np.testing.assert_allclose(after - before, by_hand, **CLOSE)


def tell(peers: MemoryCarrier, loss: float | None) -> None:
    """Let every client report this loss of the model that it received, and of the new one."""
    peers.forge = lambda update: [replace(update, metrics={"loss": loss})]
    peers.forge_answer = lambda answer: [
        replace(answer, values={"loss": loss}) if answer.question == "loss" else answer
    ]


@pytest.mark.parametrize("loss_of", ["new", "received"])
@pytest.mark.parametrize(
    ("rule", "losses", "exchanges"),
    [
        # The first round exchanges; then: 12 % up, down by half, 5 % up.
        ("signed_rel", [1.0, 1.12, 0.56, 0.588], [1, 1, 2, 3]),
        ("abs_rel", [1.0, 1.12, 0.56, 0.588], [1, 1, 1, 2]),
        # By 0.12 up, and by 0.09.
        ("signed_abs", [0.1, 0.22, 0.31], [1, 1, 2]),
        ("signed_rel", [0.1, 0.22, 0.31], [1, 1, 1]),
        # Where there is nothing to divide by.
        ("signed_rel", [0.0, 0.001, -1.0, -1.0, -0.9], [1, 1, 2, 3, 3]),
    ],
)
def test_an_exchange_waits_until_the_loss_is_stable(rule, losses, exchanges, loss_of) -> None:
    logic = a_fedaim(aggregator=FedAim(divergence=0.0, loss_rule=rule, loss_of=loss_of))
    peers = MemoryCarrier(logic, MIXED)
    state = a_state(logic, np.ones(3))
    for loss, expected in zip(losses, exchanges, strict=True):
        tell(peers, loss)
        state, _ = run_round(state, peers, logic)
        assert state.memory["aggregator"]["last_loss"] == pytest.approx(loss)
        assert state.memory["aggregator"]["exchanges"] == expected


@pytest.mark.parametrize(
    ("last_loss", "exchanges", "kept"),
    [("round", [1, 1, 2, 2], 1.5), ("exchange", [1, 1, 1, 1], 1.0)],
)
def test_a_loss_is_compared_with_that_of_the_last_round_or_of_the_last_exchange(
    last_loss, exchanges, kept
) -> None:
    logic = a_fedaim(aggregator=FedAim(divergence=0.0, last_loss=last_loss))
    peers, state = MemoryCarrier(logic, MIXED), a_state(logic, np.ones(3))
    for loss, expected in zip((1.0, 1.2, 1.25, 1.5), exchanges, strict=True):
        tell(peers, loss)
        state, _ = run_round(state, peers, logic)
        assert state.memory["aggregator"]["exchanges"] == expected
    assert state.memory["aggregator"]["last_loss"] == pytest.approx(kept)


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), "low", None, np.ones(1)])
def test_a_loss_that_is_no_finite_number_does_not_count_and_without_any_there_is_no_exchange(
    loss,
) -> None:
    logic = a_fedaim(aggregator=FedAim(divergence=0.0))
    peers = MemoryCarrier(logic, MIXED)
    state, _ = run_round(a_state(logic, np.ones(3)), peers, logic)
    last = state.memory["aggregator"]["last_loss"]
    for lying, exchanges in (((0, 2, 6), 1), ((0, 2), 2)):
        peers.forge_answer = lambda answer, lying=lying: [
            replace(answer, values={"loss": loss}) if answer.client in lying else answer
        ]
        state, _ = run_round(state, peers, logic)
        assert state.memory["aggregator"]["exchanges"] == exchanges
        assert (state.memory["aggregator"]["last_loss"] == last) == (exchanges == 1)


def test_without_an_update_of_nebs_there_is_no_exchange() -> None:
    logic = a_fedaim(aggregator=FedAim(divergence=0.0, tolerance=1e9))
    peers = MemoryCarrier(logic, MIXED)
    state, _ = run_round(a_state(logic, np.ones(3)), peers, logic)
    for lost, exchanges in (((0, 2, 6), 1), ((0, 2), 2)):
        peers.lost = lost
        state, _ = run_round(state, peers, logic)
        assert state.memory["aggregator"]["exchanges"] == exchanges


def test_without_sync_back_each_server_goes_on_from_its_own_model() -> None:
    logic = a_fedaim(aggregator=FedAim(sync_back=False))
    peers = MemoryCarrier(logic, MIXED)
    state, _ = run_round(a_state(logic, np.ones(3)), peers, logic)
    kept = state.memory["aggregator"]
    assert kept["exchanges"] == 1
    alpha, lines = kept["alpha"], split_of(state).mediators
    nebs, ebs = state.models[NEBS][0], state.models[EBS][0]
    np.testing.assert_allclose(state.weights, alpha * nebs + (1 - alpha) * ebs, **CLOSE)
    peers.tasks.clear()
    run_round(state, peers, logic)
    starts = {task.client: task.weights for task in peers.tasks}
    assert all(same_bits(starts[client], nebs) for client in split_of(state).unbiased)
    assert all(same_bits(starts[line[0]], ebs) for line in lines)


def test_the_clients_of_a_mediator_keep_their_places_unless_they_are_shuffled() -> None:
    clients = counted([ONE_CLASS[0], ONE_CLASS[9], ONE_CLASS[1], ONE_CLASS[8], EVEN])
    for shuffle in (False, True):
        logic = a_fedaim(FedAimSplit(mediators=1, shuffle=shuffle))
        _, reports = run_rounds(6, a_state(logic), MemoryCarrier(logic, clients))
        orders = {report.of("accepted") for report in reports}
        assert all(order[0] == 4 and set(order[1:]) == {0, 1, 2, 3} for order in orders)
        assert (len(orders) > 1) == shuffle


def test_by_the_distance_alone_mediators_are_as_equal_in_size_and_no_histogram_is_told() -> None:
    clients = counted([ONE_CLASS[k % 2 * 9] for k in range(20)] + [EVEN])
    logic = a_fedaim(FedAimSplit(mediators=3, reveal="distance"))
    told = []
    peers = MemoryCarrier(
        logic, clients, forge_answer=lambda answer: [told.append(answer) or answer]
    )
    state, _ = run_round(a_state(logic), peers, logic)
    assert {name for answer in told for name in answer.values} == {"distance", "loss"}
    lines = split_of(state).mediators
    assert [len(line) for line in lines] == [7, 7, 6]
    assert biased(state) == list(range(20))
    assert lines != tuple(tuple(sorted(line)) for line in lines), "at random"


BAD = [
    *(
        ("histogram", one)
        for one in ([-1, *[4] * 9], [0] * 10, [0.5] * 10, [2**62] * 10, [1, 2, 3])
    ),
    *(("histogram", "ten"), ("histogram", None)),
    *(("distance", one) for one in (-1.0, float("nan"), float("inf"), "far", None)),
]


@pytest.mark.parametrize(("reveal", "told"), BAD)
def test_who_tells_no_histogram_or_distance_takes_no_part_and_is_asked_again(reveal, told) -> None:
    told = np.array(told) if isinstance(told, list) else told

    def forge(answer):
        return [replace(answer, values={reveal: told}) if answer.client == 1 else answer]

    logic = a_fedaim(FedAimSplit(reveal=reveal))
    peers = MemoryCarrier(logic, MIXED, forge_answer=forge)
    state, report = run_round(a_state(logic), peers, logic)
    assert report.of("accepted") == tuple(c.client for c in report.clients)
    assert set(report.of("accepted")) == {0, 2, 3, 4, 5, 6}
    peers.forge_answer = lambda answer: [answer]
    peers.asked.clear()
    state, report = run_round(state, peers, logic)
    assert peers.asked[0] == ({"histogram": "labels", "distance": "emd"}[reveal], (1,))
    assert set(report.of("accepted")) == set(MIXED)
    assert biased(state) == [1, 3, 4, 5]


@pytest.mark.parametrize("reveal", ["histogram", "distance"])
def test_what_an_answer_holds_besides_is_not_kept(reveal) -> None:
    def forge(answer):
        return [replace(answer, values={**answer.values, "more": np.zeros(1000)})]

    logic = a_fedaim(FedAimSplit(reveal=reveal))
    state, _ = run_round(a_state(logic), MemoryCarrier(logic, MIXED, forge_answer=forge), logic)
    (answers,) = state.memory["survey"].values()
    assert set(answers) == set(MIXED)
    assert all(set(told) == {reveal} for told in answers.values())


@pytest.mark.parametrize(
    ("group", "lanes", "named"),
    [("stratum 1", ((0,), (1,)), "'stratum 1'"), (EBS, ((3, 1),), r"\[3, 1\]; .* fedaim")],
)
def test_a_group_or_clients_whose_bias_it_does_not_know_are_named(group, lanes, named) -> None:
    logic = a_fedaim(InLanes(lanes, group=group))
    with pytest.raises(LogicError, match=named):
        run_round(a_state(logic), MemoryCarrier(logic, MIXED), logic)


def test_an_update_without_the_received_models_loss_is_refused() -> None:
    logic = a_fedaim(aggregator=FedAim(loss_of="received"))
    peers = MemoryCarrier(logic, MIXED, forge=of_client(2, lambda u: [replace(u, metrics={})]))
    _, report = run_round(a_state(logic), peers, logic)
    (refused,) = [told for told in report.clients if told.status == "rejected"]
    assert refused.client == 2
    assert "loss" in refused.reason
