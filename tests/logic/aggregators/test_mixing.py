"""Rules before a rule: buckets and nearest neighbours, and what another rule makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from layers.logic import Contribution, LogicError, ServerState, run_round
from layers.logic.aggregators.fednova import FedNova
from layers.logic.aggregators.krum import Krum, MultiKrum, NormClip
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.median import Median
from layers.logic.aggregators.mixing import Bucketing, NearestNeighbourMixing
from layers.logic.core.aggregator import Aggregator
from layers.logic.core.declaration import Need, Trait, declared
from layers.logic.core.hook import ServerContext
from layers.logic.core.messages import Training
from layers.logic.errors import Rejected
from layers.logic.seeds import generator
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, same_bits
from tests.logic.quadratic import bowls
from tests.logic.vector_files import vectors


@dataclass(frozen=True)
class Seen(Aggregator):
    """Keeps what it is given, and takes the first."""

    given: list[Contribution] = field(default_factory=list, compare=False)

    def add(self, total, contribution):
        self.given.append(contribution)
        return total

    def finish(self, total, state):
        return replace(state, shares=np.eye(len(self.given))[0])


def a_context(**changed) -> ServerContext:
    given = {"round": 1, "client": None, "seed": 3, "training": Training(), "layout": []}
    return ServerContext(**{**given, "memory": {}, **changed})


def fold(rule: Aggregator, deltas, context: ServerContext | None = None, buffers=None):
    """Return the state after a round's aggregation of these updates, float64 (m, d)."""
    deltas = np.asarray(deltas, np.float64)
    buffers = np.zeros((len(deltas), 0), np.float32) if buffers is None else buffers
    zeros = np.zeros(deltas.shape[1])
    state = ServerState(0, zeros, zeros[:0])
    total = rule.begin(state, context or a_context())
    for lane, (delta, kept) in enumerate(zip(deltas, buffers, strict=True)):
        total = rule.add(total, Contribution(lane, 10, delta, kept, ()))
    return rule.finish(total, state)


@pytest.mark.parametrize("case", range(3))
def test_buckets_are_the_means_of_the_file(case, monkeypatch) -> None:
    known = vectors("robust2")["bucketing"][case]

    class Drawn:
        def permutation(self, number):
            assert number == len(known["perm"])
            return np.array(known["perm"])

    monkeypatch.setattr(ServerContext, "rng", lambda self, purpose: Drawn())
    rule = Bucketing(known["s"], Seen())
    fold(rule, known["updates"])
    out = [one.delta for one in rule.rule.given]
    np.testing.assert_allclose(out, known["out"], atol=1e-9)


@pytest.mark.parametrize("case", range(2))
def test_mixtures_of_neighbours_are_those_of_the_file(case) -> None:
    known = vectors("robust2")["nnm"][case]
    rule = NearestNeighbourMixing(known["f"], Seen())
    fold(rule, known["updates"])
    np.testing.assert_allclose([one.delta for one in rule.rule.given], known["out"], atol=1e-9)


@pytest.mark.parametrize("case", range(5))
def test_neighbours_before_the_trimmed_mean_agree_with_byzfl(case) -> None:
    known = vectors("byzantine")["cases"][case]
    rule = NearestNeighbourMixing(known["f"], Seen())
    fold(rule, known["vectors"])
    close = {"rtol": 1e-5, "atol": 1e-6}
    mixed = known["rules"]["nearest-neighbour mixing (m, d)"]
    np.testing.assert_allclose([one.delta for one in rule.rule.given], mixed, **close)


def test_an_update_is_a_neighbour_of_its_own_however_near_the_others_are() -> None:
    rule = NearestNeighbourMixing(3, Seen())
    fold(rule, [[0.0], [0.25], [0.5], [0.75], [1.5]])
    assert [float(one.delta[0]) for one in rule.rule.given] == [0.125, 0.125, 0.375, 0.625, 1.125]
    equal = NearestNeighbourMixing(2).mixtures(np.ones((5, 2)), a_context())
    assert equal == [[0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 1, 3], [0, 1, 4]]


def test_the_order_of_the_buckets_is_drawn_anew_in_each_round_from_the_seed() -> None:
    deltas = np.arange(8.0)[:, None]

    def buckets(**of) -> list[float]:
        rule = Bucketing(2, Seen())
        fold(rule, deltas, a_context(**of))
        return [float(one.delta[0]) for one in rule.rule.given]

    assert buckets() == buckets()
    assert buckets() != buckets(seed=4)
    order = generator(3, "buckets").permutation(8)
    assert buckets() == [(a + b) / 2 for a, b in order.reshape(4, 2)]


def test_a_mixture_has_the_samples_of_its_updates_and_its_share_is_divided_among_them() -> None:
    rule = Bucketing(2, Seen())
    after = fold(rule, np.arange(5.0)[:, None])
    assert [one.samples for one in rule.rule.given] == [20, 20, 10]
    first = generator(3, "buckets").permutation(5)[:2]
    assert sorted(after.shares) == [0, 0, 0, 0.5, 0.5]
    assert set(np.flatnonzero(after.shares)) == set(first.tolist())


def test_buckets_mix_buffers_and_neighbours_keep_their_own() -> None:
    deltas, buffers = np.ones((4, 2)), np.arange(4, dtype=np.float32)[:, None]
    rule = Bucketing(4, Seen())
    fold(rule, deltas, buffers=buffers)
    assert [one.buffers.tolist() for one in rule.rule.given] == [[1.5]]
    rule = NearestNeighbourMixing(1, Seen())
    fold(rule, deltas, buffers=buffers)
    assert [one.buffers.tolist() for one in rule.rule.given] == [[0], [1], [2], [3]]


def test_a_bucket_of_one_is_the_rule_alone_bit_for_bit() -> None:
    clients = bowls(6, noise=0.3)

    def after(rule: Aggregator) -> ServerState:
        logic = a_logic(alone(*range(6)), aggregator=rule, min_updates=5, seed=7)
        return run_round(a_state(logic), MemoryCarrier(logic, clients), logic)[0]

    assert same_bits(after(Bucketing(1, Median())).weights, after(Median()).weights)


def test_the_declarations_of_the_inner_rule_count_for_the_whole() -> None:
    assert {Need.DENSE, Need.EACH_CLIENT, Trait.ROBUST} <= declared(Bucketing(2, Median()))
    assert Trait.BY_SLICES not in declared(Bucketing(2, Median()))  # it holds whole updates
    assert Trait.ROBUST not in declared(Bucketing(2, Mean()))
    nested = Bucketing(2, NearestNeighbourMixing(1, NormClip(1.0, "samples")))
    assert Trait.BY_SAMPLES in declared(nested)


@pytest.mark.parametrize(
    ("rule", "least"),
    [
        (Bucketing(2, Krum(1)), 9),
        (Bucketing(3, Mean()), 0),
        (NearestNeighbourMixing(2, Median()), 5),
        (NearestNeighbourMixing(1, MultiKrum(2)), 7),
    ],
)
def test_a_round_has_as_many_updates_as_the_inner_rule_needs(rule, least) -> None:
    assert rule.least_updates == least
    if least:
        with pytest.raises(LogicError, match=rf"needs {least} updates"):
            a_logic(alone(*range(20)), aggregator=rule, min_updates=least - 1)
    a_logic(alone(*range(20)), aggregator=rule, min_updates=least)


def test_a_rule_that_uses_more_than_the_vectors_is_refused_inside() -> None:
    with pytest.raises(LogicError, match=r"FedNova .*steps"):
        a_logic(alone(*range(4)), aggregator=Bucketing(2, Bucketing(2, FedNova())))


def test_a_part_inside_another_is_checked_as_one_outside() -> None:
    @dataclass(frozen=True)
    class Misspelt(Median):
        def inspct(self, update):
            raise Rejected("never called")

    with pytest.raises(LogicError, match="inspect"):
        a_logic(alone(0, 1), aggregator=Bucketing(2, Misspelt()))


def test_an_update_that_the_inner_rule_refuses_is_rejected() -> None:
    @dataclass(frozen=True)
    class Strict(Mean):
        def inspect(self, update):
            raise Rejected("too long")

    logic = a_logic(alone(0, 1), aggregator=Bucketing(1, Strict()), min_updates=0)
    _, report = run_round(a_state(logic), MemoryCarrier(logic, bowls(2)), logic)
    assert report.of("rejected") == (0, 1)
