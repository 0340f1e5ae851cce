"""Robust rules bound what a few arbitrary clients can do, and leave honest ones alone."""

from __future__ import annotations

import mmap
import weakref
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from layers.logic import (
    AGGREGATORS,
    HOOKS,
    Contribution,
    LogicError,
    ServerState,
    Training,
    run_round,
)
from layers.logic.aggregators.geometric_median import GeometricMedian, geometric_median
from layers.logic.aggregators.krum import Krum, MultiKrum, NormClip
from layers.logic.aggregators.majority_vote import MajorityVote
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.median import Median, TrimmedMean
from tests.logic.memory_carrier import InLanes, MemoryCarrier, a_logic, a_state, alone, same_bits
from tests.logic.quadratic import QuadraticEngine, bowl
from tests.logic.vector_files import vectors

RULES = [
    *(GeometricMedian(), Krum(1), Median(), MultiKrum(1), MultiKrum(1, keep=2), NormClip(1e9)),
    TrimmedMean(0.3),
]
NOT_ROBUST = ["fedfv", "fednova", "mean", "q-fedavg"]
FINE = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 400}
honest = arrays(np.float32, (5, 3), elements=st.floats(-10, 10, width=32))
arbitrary = arrays(np.float32, (2, 3), elements=st.floats(-(2.0**120), 2.0**120, width=32))


def step(rule, deltas, samples=None) -> np.ndarray:
    """Return what a round adds to a model of zeros when clients send these updates."""
    deltas = np.asarray(deltas, np.float32)
    number, size = deltas.shape
    logic = a_logic(alone(*range(number)), size=size, aggregator=rule, min_updates=number)
    clients = {
        client: bowl(np.zeros(size), 10 if samples is None else samples[client])
        for client in range(number)
    }
    peers = MemoryCarrier(
        logic, clients, forge=lambda update: [replace(update, delta=deltas[update.client].copy())]
    )
    state, report = run_round(a_state(logic), peers, logic)
    assert len(report.of("accepted")) == number
    return state.weights


@pytest.mark.parametrize("rule", RULES, ids=repr)
@given(delta=arrays(np.float32, 4, elements=st.floats(-(2.0**28), 2.0**28, width=32)))
def test_equal_updates_aggregate_to_exactly_that_update(rule, delta) -> None:
    np.testing.assert_array_equal(step(rule, [delta] * 5), delta)


@pytest.mark.parametrize("rule", [Median(), TrimmedMean(0.3)], ids=repr)
@given(honest=honest, arbitrary=arbitrary)
def test_every_coordinate_lies_between_two_of_honest_clients(rule, honest, arbitrary) -> None:
    result = step(rule, np.concatenate([honest, arbitrary]))
    assert (result >= honest.min(axis=0)).all()
    assert (result <= honest.max(axis=0)).all()


@given(honest=honest, arbitrary=arbitrary)
def test_the_geometric_median_stays_near_the_honest_clients(honest, arbitrary) -> None:
    result = step(GeometricMedian(), np.concatenate([honest, arbitrary])).astype(np.float64)
    centre = honest.astype(np.float64).mean(axis=0)
    radius = np.linalg.norm(honest - centre, axis=1).max()
    n, f, d = 7, 2, 3
    # It starts within sqrt(d) radii, and no step makes the sum of distances larger.
    bound = (n * 2 * np.sqrt(d) * radius + 2 * (n - f) * radius) / (n - 2 * f)
    assert np.linalg.norm(result - centre) <= bound * (1 + 1e-5) + 1e-4


def buffers_of(rule, buffers, samples=None) -> np.ndarray:
    """Return the buffers after a round in which clients with equal updates send these."""
    buffers = np.asarray(buffers, np.float32)
    number, size = buffers.shape
    logic = a_logic(alone(*range(number)), size=2, aggregator=rule, min_updates=number)
    clients = {
        client: bowl(np.ones(2), 10 if samples is None else samples[client])
        for client in range(number)
    }
    peers = MemoryCarrier(
        logic, clients, forge=lambda update: [replace(update, buffers=buffers[update.client])]
    )
    peers.engine = QuadraticEngine(2, size)
    before = replace(a_state(logic), buffers=np.zeros(size, np.float32))
    state, report = run_round(before, peers, logic)
    assert len(report.of("accepted")) == number
    assert state.buffers.dtype == np.float32
    return state.buffers


ALL_RULES = [*RULES, MajorityVote(), MajorityVote(0.1)]


@pytest.mark.parametrize("rule", ALL_RULES, ids=repr)
@given(
    honest=arrays(np.float32, (5, 3), elements=st.floats(-10, 10, width=32)),
    arbitrary=arrays(np.float32, (2, 3), elements=st.floats(-(2.0**18), 2.0**18, width=32)),
)
def test_buffers_lie_between_those_of_honest_clients_whoever_sends_honest_updates(
    rule, honest, arbitrary
) -> None:
    """Where the updates are equal, no rule can tell from them who lies in the buffers."""
    samples = [1, 1, 1, 1, 1, 1 << 40, 1 << 50]
    result = buffers_of(rule, np.concatenate([honest, arbitrary]), samples)
    assert (result >= honest.min(axis=0)).all()
    assert (result <= honest.max(axis=0)).all()


@pytest.mark.parametrize("rule", ALL_RULES, ids=repr)
def test_samples_do_not_weigh_buffers_in_a_robust_rule(rule) -> None:
    middle = [[1.0, 8.0], [2.0, 7.0], [3.0, 6.0], [4.0, 5.0], [50.0, -60.0]]
    assert buffers_of(rule, middle, [1000, 1, 1, 1, 1]).tolist() == [3.0, 6.0]


@pytest.mark.parametrize("rule", ALL_RULES, ids=repr)
def test_a_fold_keeps_of_a_message_no_more_than_its_buffers(rule) -> None:
    """A view of the message, however small, would keep all of its memory."""
    state = ServerState(0, np.zeros(3, np.float32), np.zeros(2, np.float32))
    message = mmap.mmap(-1, 1 << 16)
    gone = weakref.ref(message)
    buffers = np.frombuffer(message, np.float32)[:2]
    contribution = Contribution(0, 1, np.ones(3, np.float32), buffers, ())
    total = rule.add(rule.init(state), contribution)
    del message, buffers, contribution
    assert gone() is None
    assert total is not None


def spread(z: np.ndarray, points: np.ndarray, shares: np.ndarray | float = 1.0) -> float:
    """Return the sum of distances from z, which the geometric median makes least."""
    return float((shares * np.linalg.norm(points.astype(np.float64) - z, axis=1)).sum())


@st.composite
def weighted_points(draw) -> tuple[np.ndarray, np.ndarray]:
    number, size = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    # Both values of which there are few, so that many are equal, and any others.
    values = draw(st.sampled_from([st.integers(-3, 3), st.floats(-100, 100, width=32)]))
    points = draw(arrays(np.float32, (number, size), elements=values))
    samples = draw(st.lists(st.integers(1, 9), min_size=number, max_size=number))
    return points, np.array(samples) / sum(samples)


# Half of the weight is at one point, and all others pull almost as hard in one direction.
ALMOST_BALANCED = (
    np.array([[21, 0], [0, 1], [0, 0], [0, 0], [0, 0], [0, 0]], np.float32),
    np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1]),
)


@example(given_points=ALMOST_BALANCED, far=1.0)
@given(given_points=weighted_points(), far=st.sampled_from([1.0, 1.0, 1e9]))
def test_no_update_and_no_other_point_has_a_smaller_sum_of_distances(given_points, far) -> None:
    from scipy.optimize import minimize  # takes a second

    points, shares = given_points
    points[0] *= np.float32(far)
    result = spread(geometric_median(list(points), shares, 1000), points, shares)
    assert result <= min(spread(z, points, shares) for z in points) * (1 + 1e-9)
    middle = np.median(points.astype(np.float64), axis=0)
    found = [
        minimize(spread, start, (points, shares), method="Nelder-Mead", options=FINE).fun
        for start in (middle, geometric_median(list(points), shares, 1))
    ]
    assert result <= min(found) * (1 + 1e-6)


@given(
    honest=arrays(np.float32, (5, 3), elements=st.floats(-10, 10, width=32)), arbitrary=arbitrary
)
def test_krum_chooses_an_update_that_has_honest_neighbours(honest, arbitrary) -> None:
    """Either an honest one, or one as near to as many honest ones as an honest one is."""
    sent = np.concatenate([honest, arbitrary, honest[:2] + np.float32(0.5)])
    result = step(Krum(2), sent)
    assert any(np.array_equal(result, delta) for delta in sent)
    distance = np.linalg.norm(honest.astype(np.float64) - result, axis=1)
    widest = max(np.linalg.norm(a - b) for a in honest.astype(float) for b in honest.astype(float))
    assert distance.min() <= np.sqrt(5) * (widest + 1)


def test_krum_gives_the_scores_of_the_definition() -> None:
    deltas = np.array([[0.0], [1.0], [3.0], [7.0], [100.0]], np.float32)
    # f = 1: the sum of the squared distances to the 5 - 1 - 2 = 2 nearest
    # 0: 1 + 9, 1: 1 + 4, 3: 4 + 9, 7: 16 + 36
    assert step(Krum(1), deltas)[0] == 1.0
    assert step(MultiKrum(1, keep=2), deltas)[0] == 0.5
    assert step(MultiKrum(1), deltas)[0] == np.float32((0 + 1 + 3 + 7) / 4)
    # f = 0: the nearest one; 0 and 1 have the same score, and the first of them counts
    assert step(Krum(0), deltas[:3])[0] == 0.0


@given(arbitrary=arrays(np.float32, 3, elements=st.floats(-(2.0**120), 2.0**120, width=32)))
def test_a_clipped_client_moves_the_model_no_further_than_its_share_of_the_norm(arbitrary) -> None:
    quiet = np.zeros((3, 3), np.float32)
    result = step(NormClip(2.0, "uniform"), np.concatenate([quiet, arbitrary[None]]))
    assert np.linalg.norm(result.astype(np.float64)) <= 2.0 / 4 * (1 + 1e-6)


def test_a_norm_that_nobody_reaches_gives_the_mean_bit_for_bit() -> None:
    deltas = np.random.default_rng(0).normal(size=(4, 6))
    samples = [3, 50, 7, 1]
    for weights in ("samples", "uniform"):
        one, other = (
            step(NormClip(1e6, weights), deltas, samples),
            step(Mean(weights), deltas, samples),
        )
        assert same_bits(one, other)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_numbering_the_clients_otherwise_makes_the_same_model(rule) -> None:
    rng = np.random.default_rng(1)
    deltas = rng.normal(size=(7, 20)).astype(np.float32)
    one, other = step(rule, deltas), step(rule, deltas[rng.permutation(7)])
    if isinstance(rule, (Median, TrimmedMean, Krum)):
        assert same_bits(one, other)
    else:
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("rule", "sent", "middle"),
    [
        (Median(), [1.0, 4.0], 2.5),
        (Median(), [1.0, 2.0, 4.0, 9.0], 3.0),
        (TrimmedMean(0.25), [1.0, 2.0, 4.0, 9.0], 3.0),
        (TrimmedMean(0.0), [1.0, 2.0, 4.0, 9.0], 4.0),
        *(
            (TrimmedMean(trim), [1.0, 4.0, 9.0], 4.0)
            for trim in (0.34, float(np.nextafter(0.5, 0)))
        ),
        (TrimmedMean(0.499), [1.0, 4.0, 6.0, 9.0], 5.0),
    ],
)
def test_one_update_or_two_in_the_middle_are_never_cut_off(rule, sent, middle) -> None:
    assert step(rule, [[one] for one in sent])[0] == middle


def test_as_many_updates_are_asked_for_as_leave_one_to_cut_off() -> None:
    for need in range(3, 101):
        rule = TrimmedMean(1 / need)
        with pytest.raises(LogicError, match=f"min_updates to {need} or more"):
            a_logic(alone(0), aggregator=rule, min_updates=need - 1)
        a_logic(alone(0), aggregator=rule, min_updates=need)


def test_samples_weigh_where_a_rule_says_so_and_nowhere_else() -> None:
    deltas, samples = [[0.0], [0.0], [1.0]], [1, 1, 100]
    assert step(GeometricMedian(weights="samples"), deltas, samples)[0] == pytest.approx(1, abs=0.1)
    for rule in (GeometricMedian(), Median(), TrimmedMean(0.4)):
        assert step(rule, deltas, samples)[0] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("name", NOT_ROBUST)
def test_an_aggregator_that_is_not_robust_takes_the_buffers_by_samples_as_fedavg_does(name) -> None:
    clients = {k: bowl(1.0, n, steps_per_epoch=k + 1) for k, n in enumerate([30, 10, 20, 5, 15])}
    rule, training = AGGREGATORS[name](), Training(batch_size=1)  # so many steps may be taken
    logic = a_logic(alone(*range(5)), size=1, aggregator=rule, training=training, min_updates=5)
    state, _ = run_round(a_state(logic), MemoryCarrier(logic, clients), logic)
    expected = sum((k + 1) * data.n for k, data in clients.items()) / 80
    assert state.buffers.tolist() == [np.float32(expected)]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_fold_that_has_seen_only_sums_is_refused(rule) -> None:
    logic = a_logic(InLanes(((0, 1), (2,))), aggregator=rule, min_updates=9)
    peers = MemoryCarrier(logic, {k: bowl([1.0, 1, 1]) for k in range(3)})
    with pytest.raises(LogicError, match="which give only the sum"):
        run_round(a_state(logic), peers, logic)


@pytest.mark.parametrize("rule", [Median(True), TrimmedMean(0.2, True), TrimmedMean(0.0)], ids=repr)
def test_sparse_updates_are_accepted_where_it_is_meant_or_nothing_is_compared(rule) -> None:
    a_logic(alone(*range(5)), aggregator=rule, min_updates=5, hooks=[HOOKS["top-k"](p=0.1)])


# ByzFL's name of each rule that is here, the rule for f of m clients, and how near they must be.
# ByzFL's Krum adds up the m - f nearest, the update itself among them: one neighbour more than the
# m - f - 2 of Blanchard et al., so that it is the rule here for one arbitrary client less.
OF_BYZFL = {
    "median": (lambda f, m: Median(), 1e-7),
    "trimmed-mean": (lambda f, m: TrimmedMean(f / m), 1e-7),
    "krum": (lambda f, m: Krum(f - 1), 1e-7),
    "multi-krum": (lambda f, m: MultiKrum(f - 1, keep=m - f), 1e-7),
    "geometric median (T=5000, nu=1e-9)": (lambda f, m: GeometricMedian(), 1e-4),
    # ByzFL returns the clipped updates; their plain mean is the rule here.
    "static clipping c=2 (m, d)": (lambda f, m: NormClip(2.0, "uniform"), 1e-7),
}


@pytest.mark.parametrize("name", OF_BYZFL)
def test_the_rules_agree_with_byzfl(name) -> None:
    make, close = OF_BYZFL[name]
    cases = vectors("byzantine")["cases"]
    assert len(cases) == 5
    for case in cases:
        sent, f = np.array(case["vectors"]), case["f"]
        expected = np.array(case["rules"][name])
        if expected.ndim == 2:
            expected = expected.mean(axis=0)
        # float32 rounds to 6e-8 of the value, beside the rule's own exactness.
        np.testing.assert_allclose(step(make(f, len(sent)), sent), expected, rtol=1e-7, atol=close)


@given(given_points=weighted_points(), power=st.sampled_from([-40, -20, -13, -1, 1, 13, 40]))
def test_the_geometric_median_of_smaller_or_larger_updates_is_as_much_smaller_or_larger(
    given_points, power
) -> None:
    """It ends by what is left to gain as a share of the sum, and not by a length."""
    points, shares = given_points
    scale = np.float32(2.0**power)  # which rounds nothing
    points = np.round(points, 2)
    plain = geometric_median(list(points), shares, 1000)
    scaled = geometric_median(list(points * scale), shares, 1000)
    np.testing.assert_array_equal(scaled, plain * float(scale))
