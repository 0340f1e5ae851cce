"""FLTrust, centered clipping, RFA and bounded norms agree with the file, and say what counted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from layers.logic import Contribution, LogicError, ServerState, run_round
from layers.logic.aggregators.centered_clipping import CenteredClipping
from layers.logic.aggregators.fltrust import FLTrust
from layers.logic.aggregators.geometric_median import GeometricMedian, smoothed
from layers.logic.aggregators.krum import Krum, MultiKrum, NormClip
from layers.logic.aggregators.median import Median
from layers.logic.aggregators.mixing import Bucketing, NearestNeighbourMixing
from layers.logic.core.aggregator import AGGREGATE, Aggregator
from layers.logic.core.hook import ServerContext
from layers.logic.core.messages import Training
from layers.logic.errors import PartFailed
from layers.logic.seeds import derive
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds, same_bits
from tests.logic.quadratic import bowls
from tests.logic.vector_files import vectors


@pytest.fixture
def steps(monkeypatch) -> list[np.ndarray]:
    """The steps of the rules before they are rounded to float32."""
    found: list[np.ndarray] = []

    def stepped(state, delta, buffers):
        found.append(np.array(delta, np.float64))
        return replace(state, weights=state.weights + delta, change=delta.astype(np.float32))

    monkeypatch.setattr("layers.logic.aggregators.collected.stepped", stepped)
    monkeypatch.setattr("layers.logic.aggregators.krum.stepped", stepped)
    return found


def fold(rule: Aggregator, deltas, samples=None, memory=None, auxiliary=None) -> ServerState:
    """Return the state after a round's aggregation of these updates, float64 (m, d)."""
    deltas = np.asarray(deltas, np.float64)
    state = ServerState(0, np.ones(deltas.shape[1]), np.zeros(0), memory or {})
    context = ServerContext(1, None, 3, Training(epochs=4), [], {}, auxiliary=auxiliary)
    total = rule.begin(state, context)
    for lane, delta in enumerate(deltas):
        number = 10 if samples is None else samples[lane]
        total = rule.add(total, Contribution(lane, number, delta, np.zeros(0, np.float32), ()))
    return rule.finish(total, state)


@pytest.mark.parametrize("case", range(4))
def test_fltrust_agrees_with_the_equations(case, steps) -> None:
    known = vectors("robust2")["fltrust"][case]
    asked = []

    def auxiliary(weights, buffers, training, seed):
        asked.append((training.epochs, seed))
        return weights + np.array(known["server_update"])

    after = fold(FLTrust(), known["updates"], auxiliary=auxiliary)
    assert asked == [(4, derive(3, "root"))]
    np.testing.assert_allclose(steps[0], known["aggregate"], rtol=0, atol=1e-9)
    trust = np.array(known["trust"])
    np.testing.assert_allclose(after.shares, trust / (trust.sum() or 1), rtol=0, atol=1e-9)


def test_fltrust_without_samples_is_refused_in_one_line() -> None:
    logic = a_logic(alone(0, 1), aggregator=FLTrust())
    assert logic.held_out == 0.01
    with pytest.raises(LogicError, match=r"fltrust.*no samples"):
        run_round(a_state(logic), MemoryCarrier(logic, bowls(2)), logic)


@pytest.mark.parametrize("case", range(2))
def test_centered_clipping_takes_the_iterations_of_the_file(case, steps) -> None:
    known = vectors("robust2")["centered_clipping"][case]
    for number, expected in enumerate(known["iterates"], 1):
        memory = {AGGREGATE: {"step": np.array(known["start"])}}
        fold(CenteredClipping(known["tau"], number), known["updates"], memory=memory)
        np.testing.assert_allclose(steps[-1], expected, rtol=0, atol=1e-9)


def test_without_settings_centered_clipping_moves_once_by_at_most_one(steps) -> None:
    fold(CenteredClipping(), np.full((3, 4), 8.0))
    np.testing.assert_allclose(steps[0], np.full(4, 0.5))  # 1 / sqrt(4) in each of four values


def test_an_update_at_the_last_step_counts_in_full_in_centered_clipping(steps) -> None:
    after = fold(CenteredClipping(1.0), [[0.0, 0.0], [0.0, 2.0], [4.0, 0.0]])
    np.testing.assert_allclose(steps[0], [1 / 3, 1 / 3])
    np.testing.assert_allclose(after.shares, np.array([4, 2, 1]) / 7)


@pytest.mark.parametrize("case", range(5))
def test_centered_clipping_from_zero_agrees_with_byzfl(case, steps) -> None:
    known = vectors("byzantine")["cases"][case]
    fold(CenteredClipping(1.0, 3), known["vectors"])
    expected = known["rules"]["centered-clipping L=3 tau=1 from zero"]
    np.testing.assert_allclose(steps[0], expected, rtol=1e-5, atol=1e-6)


def test_centered_clipping_goes_on_from_the_last_round() -> None:
    logic = a_logic(alone(*range(4)), aggregator=CenteredClipping(0.01), seed=7)
    clients = bowls(4, noise=0.3)
    first, _ = run_rounds(1, a_state(logic), MemoryCarrier(logic, clients))
    assert same_bits(first.memory[AGGREGATE]["step"], first.weights)
    kept = ServerState.of_tree(first.tree())
    second, _ = run_rounds(1, kept, MemoryCarrier(logic, clients))
    forgotten, _ = run_rounds(1, replace(first, memory={}), MemoryCarrier(logic, clients))
    assert not same_bits(second.weights, forgotten.weights)


@pytest.mark.parametrize("case", range(2))
def test_smoothed_weiszfeld_takes_the_steps_of_the_file(case, steps) -> None:
    known = vectors("robust2")["weiszfeld"][case]
    shares, points = np.array(known["weights"]), np.array(known["updates"])
    samples = np.rint(shares / shares.min() * 1e9).astype(np.int64).tolist()
    pairs = zip(known["from_zero"], known["from_mean"], strict=True)
    for number, (zero, mean) in enumerate(pairs, 1):
        z, _ = smoothed(list(points), shares, known["nu"], number, np.zeros(points.shape[1]))
        np.testing.assert_allclose(z, zero, rtol=0, atol=1e-9)
        rule = GeometricMedian(number, "samples", known["nu"])
        fold(rule, points, samples)
        np.testing.assert_allclose(steps[-1], mean, rtol=0, atol=2e-8)


def test_bounded_norms_agree_with_the_file(steps) -> None:
    known = vectors("robust2")["norm_bound"]
    fold(NormClip(known["M"], "uniform"), known["updates"])
    np.testing.assert_allclose(steps[0], known["aggregate"], rtol=0, atol=1e-9)


FAR = np.array([[1.0, 0], [1.1, 0], [0.9, 0], [1, 0.1], [1, -0.1], [-50, 50]])


@pytest.mark.parametrize(
    ("rule", "left_out"),
    [
        (Krum(1), True),
        (MultiKrum(1), True),
        (NormClip(1.0, "uniform"), False),
        (CenteredClipping(1.0, 3), False),
        (GeometricMedian(20, smoothing=1e-6), False),
        (NearestNeighbourMixing(1, Krum(0)), True),
        (Bucketing(1, Krum(1)), True),
    ],
    ids=repr,
)
def test_shares_say_what_an_update_counted(rule, left_out) -> None:
    shares = fold(rule, FAR).shares
    assert shares.shape == (6,)
    assert shares.sum() == pytest.approx(1)
    assert (shares[5] == 0) == left_out
    assert shares[5] <= shares[:5].max()


def test_the_report_of_a_round_has_the_share_of_each_accepted_update() -> None:
    logic = a_logic(alone(3, 0, 5, 1, 2, 4), aggregator=Krum(1), min_updates=5, seed=7)
    peers = MemoryCarrier(logic, bowls(6, noise=0.3), lost=[5])
    _, report = run_round(a_state(logic), peers, logic)
    shares = {one.client: one.share for one in report.clients}
    assert shares.pop(5) is None
    assert sorted(shares.values()) == [0, 0, 0, 0, 1]
    silent = replace(logic, aggregator=Median())
    _, report = run_round(a_state(logic), MemoryCarrier(silent, bowls(6)), silent)
    assert {one.share for one in report.clients} == {None}


def test_shares_of_another_number_of_updates_are_refused() -> None:
    @dataclass(frozen=True)
    class Wrong(Median):
        def finish(self, total, state):
            return replace(super().finish(total, state), shares=np.ones(2))

    logic = a_logic(alone(0, 1, 2), aggregator=Wrong())
    with pytest.raises(PartFailed, match="2 shares, of 3"):
        run_round(a_state(logic), MemoryCarrier(logic, bowls(3)), logic)
