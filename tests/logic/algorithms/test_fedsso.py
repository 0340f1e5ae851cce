"""FedSSO: one survey makes the strata and the first model; each round draws from every stratum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import LogicError, OpenRound, Training, run_round
from layers.logic.algorithms.fedsso import (
    Clustering,
    FedSSO,
    Stratum,
    allocation,
    clusters,
    products,
    projection,
)
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, run_rounds, same_bits
from tests.logic.quadratic import bowl
from tests.logic.toys import planned
from tests.logic.vector_files import CLOSE, vectors

CENTRES = {0: [10.0, 0, 0], 1: [0, 10.0, 0], 2: [0, 0, 10.0]}
STILL = Training(learning_rate=1e-9, steps=1)


def clients_of(*groups: int, size: int = 4, **settings):
    """Return `size` clients of each group, in turn, whose steps are the same within a group."""
    return {
        client: bowl(CENTRES[groups[client % len(groups)]], 10 * (1 + client), **settings)
        for client in range(size * len(groups))
    }


def after_a_round(clients, selector: FedSSO | None = None, **settings):
    """Return the state after round 1, its report, and the peers."""
    selector = FedSSO(learning_rate=1.0) if selector is None else selector
    logic = a_logic(selector, training=STILL, **settings)
    peers = MemoryCarrier(logic, clients)
    state, report = run_round(a_state(logic), peers, logic)
    return state, report, peers


def strata_of(
    selector: FedSSO, clients: Iterable[int], memory: Mapping[str, Any], number: int = 1
) -> dict[int, str]:
    """Return the clients that train in a round, in order, each with its stratum."""
    round = OpenRound(dict.fromkeys(clients, 10), number=number, memory=memory)
    cohort = planned(selector, round)
    return dict(zip(cohort, (lane.group for lane in round.planned), strict=True))


def test_clients_whose_steps_are_alike_are_a_stratum() -> None:
    state, _, _ = after_a_round(clients_of(0, 1, 2))
    found = Clustering.of_state(state)
    labels = found.labels
    assert found.clients.tolist() == list(range(12))
    assert [len(set(labels[group::3])) for group in range(3)] == [1, 1, 1]
    assert len(set(labels)) == 3
    assert found.points.shape == (12, 2)
    assert sum(stratum.clients for stratum in found.strata.values()) == 12
    assert found.strata[str(labels[0])].samples == 10 + 40 + 70 + 100


@pytest.mark.parametrize("case", range(5))
def test_the_survey_gives_the_labels_that_were_worked_out(case) -> None:
    file = vectors("optics_labels")
    cases = [
        (given, expected)
        for given, expected in zip(file["inputs"]["cases"], file["expected"]["cases"], strict=True)
        if "xi" in given["params"]
    ]
    given, expected = cases[case]
    points = given["points"]
    params = given["params"]
    selector = FedSSO(learning_rate=1.0, min_samples=params["min_samples"], xi=params["xi"])
    logic = a_logic(selector, size=len(points[0]), training=STILL)
    peers = MemoryCarrier(logic, {client: bowl(point) for client, point in enumerate(points)})
    state, _ = run_round(a_state(logic), peers, logic)
    assert Clustering.of_state(state).labels.tolist() == expected["labels"]


def test_round_one_starts_from_the_mean_of_all_steps_by_samples() -> None:
    clients = clients_of(0, 1, size=3)
    logic = a_logic(FedSSO(learning_rate=0.5), training=STILL)
    peers, start = MemoryCarrier(logic, clients), np.array([1.0, -2.0, 3.0])
    run_round(a_state(logic, start), peers, logic)
    total = sum(data.n for data in clients.values())
    expected = sum(data.n / total * (start + data.b) / 2 for data in clients.values())
    assert peers.tasks
    for task in peers.tasks:
        np.testing.assert_allclose(task.weights, expected, **CLOSE)


def test_steps_are_forgotten_once_they_are_clustered_and_nobody_is_asked_again() -> None:
    state, _, peers = after_a_round(clients_of(0, 1))
    assert set(state.memory["survey"]["step"]) == set(range(8))
    assert not any(state.memory["survey"]["step"].values())
    labels = Clustering.of_state(state).labels
    state, _ = run_rounds(2, state, peers)
    assert [name for name, _ in peers.asked] == ["step"]
    np.testing.assert_array_equal(Clustering.of_state(state).labels, labels)


LIES = {
    "nan": {"weights": np.full(3, np.nan, np.float32)},
    "inf": {"weights": np.array([1, np.inf, 0], np.float32)},
    "shape": {"weights": np.zeros(4, np.float32)},
    "scalar": {"weights": np.float32(3)},
    "type": {"weights": np.zeros(3, np.int64)},
    "text": {"weights": "a model"},
    "nothing": {},
}


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_is_no_model_makes_noise_and_is_not_in_the_first_model(lie) -> None:
    clients = clients_of(0, 1)
    honest = {client: data for client, data in clients.items() if client != 2}
    logic = a_logic(FedSSO(learning_rate=1.0), training=STILL)

    def lying(answer):
        return [replace(answer, values=LIES[lie]) if answer.client == 2 else answer]

    peers = MemoryCarrier(logic, clients, forge_answer=lying)
    state, _ = run_round(a_state(logic), peers, logic)
    _, _, others = after_a_round(honest)
    found = Clustering.of_state(state)
    assert [c for c, label in zip(found.clients, found.labels, strict=True) if label < 0] == [2]
    assert np.isnan(found.points[2]).all()
    assert np.isfinite(found.points[[0, 1, 3, 4, 5, 6, 7]]).all()
    assert same_bits(peers.tasks[0].weights, others.tasks[0].weights)
    assert found.strata["noise"] == Stratum(clients=1, samples=30)


def test_when_nobody_answers_everybody_is_one_stratum() -> None:
    logic = a_logic(FedSSO(beta=0.5, learning_rate=1.0), training=STILL)
    peers = MemoryCarrier(logic, clients_of(0, 1), forge_answer=lambda answer: [])
    state, report = run_round(a_state(logic), peers, logic)
    assert report.selected == 4
    assert not peers.tasks[0].weights.any()
    assert "selector" not in state.memory


def test_a_sketch_makes_the_same_strata_and_leaves_the_first_model_alone() -> None:
    clients = {
        client: bowl(np.repeat(data.b, 50), data.n) for client, data in clients_of(0, 1, 2).items()
    }
    whole, _, _ = after_a_round(clients, size=150)
    logic = a_logic(FedSSO(learning_rate=1.0, sketch=64), size=150, training=STILL)
    sent = []

    def watched(answer):
        sent.append(answer.values)
        return [answer]

    peers = MemoryCarrier(logic, clients, forge_answer=watched)
    state, _ = run_round(a_state(logic), peers, logic)
    assert {key: value.shape for values in sent for key, value in values.items()} == {
        "sketch": (64,)
    }
    one, other = Clustering.of_state(whole), Clustering.of_state(state)
    np.testing.assert_array_equal(one.labels, other.labels)
    assert not peers.tasks[0].weights.any()


def test_who_joins_later_is_among_the_noise_and_leaves_the_model_alone() -> None:
    clients = clients_of(0, 1)
    late = {20: bowl([5.0, 5, 5])}
    state, _, peers = after_a_round(clients, FedSSO(beta=0.1, learning_rate=1.0))
    before = Clustering.of_state(state)
    peers.clients = {**clients, **late}
    peers.tasks.clear()
    state, report = run_round(state, peers, peers.logic)
    after = Clustering.of_state(state)
    assert peers.asked[1:] == [("step", (20,))]
    assert after.clients.tolist() == [*range(8), 20]
    assert after.labels.tolist() == [*before.labels.tolist(), -1]
    np.testing.assert_array_equal(after.points[:8], before.points)
    assert np.isnan(after.points[8]).all()
    assert 20 in report.of("accepted"), "it is alone in its stratum"
    assert len(report.of("accepted")) == 3
    assert not any(state.memory["survey"]["step"].values())


def test_a_client_that_lost_its_connection_in_the_survey_takes_part_all_the_same() -> None:
    clients = clients_of(0, 1)
    logic = a_logic(FedSSO(learning_rate=1.0), training=STILL)
    peers = MemoryCarrier(logic, clients, lost=[3])
    state, _ = run_round(a_state(logic), peers, logic)
    peers.lost = ()
    _, reports = run_rounds(1, state, peers)
    assert 3 in reports[0].of("accepted")


def memory_of(labels: list[int]) -> Mapping[str, Any]:
    clients = np.arange(len(labels))
    points = np.zeros((clients.size, 2))
    return Clustering(clients, np.array(labels), np.full(clients.size, 10), points).memory()


@pytest.mark.parametrize(
    ("noise", "strata"),
    [
        ("stratum", {"0": 2, "1": 1, "noise": 1}),
        ("drop", {"0": 2, "1": 1}),
        ("singletons", {"0": 2, "1": 1, "client 25": 1, "client 26": 1, "client 27": 1}),
    ],
)
def test_noise_is_a_stratum_or_nobody_or_each_alone(noise, strata) -> None:
    memory = memory_of([0] * 20 + [1] * 5 + [-1] * 3)
    assert Counter(strata_of(FedSSO(noise=noise), range(28), memory).values()) == strata


@pytest.mark.parametrize("noise", ["stratum", "drop", "singletons"])
def test_nothing_but_noise_is_one_stratum(noise) -> None:
    cohort = strata_of(FedSSO(noise=noise), range(20), memory_of([-1] * 20))
    assert list(cohort.values()) == ["noise", "noise"]


def test_a_strata_share_is_drawn_from_those_that_are_there() -> None:
    memory = memory_of([0] * 20 + [1] * 20 + [2] * 20)
    there = [*range(12), 20, *range(70, 75)]
    cohort = strata_of(FedSSO(beta=0.5), there, memory)
    assert Counter(cohort.values()) == {"0": 10, "1": 1, "noise": 3}
    assert set(cohort) <= set(there)


def test_all_of_a_stratum_are_asked_in_a_random_order_and_the_first_of_its_quota_count() -> None:
    memory = memory_of([0] * 20 + [1] * 8 + [-1] * 2)
    there, selector = [*range(10, 28), 29], FedSSO(beta=0.5, ask="all")
    cohort, other = (strata_of(selector, there, memory, number) for number in (1, 2))
    assert sorted(cohort) == sorted(other) == there
    assert list(cohort) != list(other)
    assert list(cohort.values()) == ["0"] * 10 + ["1"] * 8 + ["noise"]
    logic = a_logic(selector, training=STILL)
    kept = {"selector": memory, "survey": {"step": {client: {} for client in there}}}
    peers = MemoryCarrier(logic, {client: bowl([1.0] * 3) for client in there})
    _, report = run_round(replace(a_state(logic), memory=kept), peers, logic)
    assert set(report.of("accepted")) == {*range(10, 24), 29}
    assert set(report.of("declined")) == {24, 25, 26, 27}


def test_a_reserve_of_all_is_refused() -> None:
    with pytest.raises(LogicError, match=r"ask: all .* over_select 1.5"):
        a_logic(FedSSO(ask="all"), over_select=1.5)


def test_every_stratum_takes_part_in_every_round_and_every_client_in_some() -> None:
    memory = memory_of([0] * 34 + [1] * 5 + [2] + [-1] * 4)
    seen = set()
    for number in range(1, 200):
        cohort = strata_of(FedSSO(), range(44), memory, number)
        assert Counter(cohort.values()) == {"0": 3, "1": 1, "2": 1, "noise": 1}
        for client, group in cohort.items():
            label = memory["labels"][client]
            assert group == ("noise" if label < 0 else str(label))
        seen |= set(cohort)
    assert seen == set(range(44))


def test_a_selection_hangs_on_memory_clients_and_seed_alone() -> None:
    memory = memory_of([0] * 20 + [1] * 5 + [-1] * 3)
    cohort = strata_of(FedSSO(), range(28), memory)
    assert strata_of(FedSSO(), reversed(range(28)), memory) == cohort
    assert strata_of(FedSSO(), range(28), memory, 2) != cohort


seeds = st.integers(0, 10_000)


def blobs(seed: int, sizes: tuple[int, ...] = (6, 5, 8), d: int = 40) -> list[np.ndarray]:
    """Return tight groups of vectors, far from one another."""
    rng = np.random.default_rng(seed)
    return [
        (centre + 0.01 * rng.normal(size=d)).astype(np.float32)
        for centre, size in zip(10 * rng.normal(size=(len(sizes), d)), sizes, strict=True)
        for _ in range(size)
    ]


def test_many_clients_are_clustered_row_by_row_into_the_same_strata(monkeypatch) -> None:
    vectors = blobs(5, (40, 30, 50))
    origin = np.zeros(vectors[0].size, np.float32)
    inner = products(vectors, origin)
    expected, points = clusters(inner, 2, 0.25), projection(inner)
    monkeypatch.setattr("layers.logic.algorithms.fedsso.WHOLE", 100)
    monkeypatch.setattr("layers.logic.algorithms.fedsso.ROWS", 16)
    by_rows = products(vectors, origin)
    np.testing.assert_allclose(by_rows, inner, rtol=1e-9, atol=1e-9)
    # An axis of a projection has no sign.
    np.testing.assert_allclose(np.abs(projection(by_rows)), np.abs(points), rtol=1e-4, atol=1e-4)
    small = 1e6 * np.abs(projection(by_rows / 1e12))
    np.testing.assert_allclose(small, np.abs(points), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(clusters(by_rows, 2, 0.25), expected)
    assert not by_rows.diagonal().any()  # overwritten, so that there is no second matrix


@given(seed=seeds)
def test_clusters_are_those_of_scikit_learn_on_the_vectors_themselves(seed) -> None:
    from sklearn.cluster import OPTICS

    vectors = np.array(blobs(seed))
    inner = products(list(vectors), np.zeros(vectors.shape[1]))
    expected = OPTICS(min_samples=2, xi=0.25).fit(vectors.astype(np.float64)).labels_
    np.testing.assert_array_equal(clusters(inner, 2, 0.25), expected)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e30])
def test_equal_vectors_are_one_cluster(value) -> None:
    vectors = [np.full(1000, value, np.float32)] * 9
    assert clusters(products(vectors, np.zeros(1000)), 2, 0.25).tolist() == [0] * 9


def test_one_wild_vector_does_not_hide_the_clusters_of_the_others() -> None:
    sane = blobs(1)
    wild = np.full(40, 1e38, np.float32)
    inner = products([*sane, wild], np.zeros(40))
    labels = clusters(inner, 2, 0.25)
    assert len(set(labels[:6])) == len(set(labels[6:11])) == len(set(labels[11:19])) == 1
    assert len(set(labels[[0, 6, 11]])) == 3
    assert np.isfinite(projection(inner)).all()


@given(seed=seeds)
def test_the_projection_is_that_of_principal_components(seed) -> None:
    from sklearn.decomposition import PCA

    vectors = np.array(blobs(seed), np.float64)
    ours = projection(products(list(vectors), np.zeros(40)))
    theirs = PCA(2, svd_solver="full").fit_transform(vectors)
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-6)


def test_an_allocation_is_the_share_rounded_half_up_and_at_least_one() -> None:
    sizes = np.array([34, 5, 1, 10, 15, 25, 0])
    assert allocation(0.1, sizes).tolist() == [3, 1, 1, 1, 2, 3, 1]
    assert allocation(0.29, np.array([50])).tolist() == [15]  # 0.29 * 50 is 14.499999999999998


def test_a_single_client_is_a_cluster() -> None:
    state, report, _ = after_a_round({7: bowl([1.0, 2, 3])})
    assert Clustering.of_state(state).labels.tolist() == [0]
    assert report.of("accepted") == (7,)
