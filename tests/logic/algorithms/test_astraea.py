"""Astraea: mediators whose clients have balanced data together, and classes that are brought up."""

from __future__ import annotations

import hashlib
import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import affine_transform

from layers.logic import ClientContext, LogicError, Rejected, Training, run_round
from layers.logic.algorithms.astraea import Astraea, Augmentation, Rebalance, astraea, ratios
from layers.logic.algorithms.mediators import (
    at_random,
    balanced,
    even,
    greedy_fill,
    lines_of,
)
from layers.logic.core.engine import ArrayData
from layers.logic.numeric.distances import kullback_leibler, uniform
from tests.logic.label_counts import EVEN, ONE_CLASS, counted, labels_of
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, run_rounds
from tests.logic.points import Points, PointsEngine
from tests.logic.vector_files import vectors

CLIENTS = counted([EVEN, ONE_CLASS[0], ONE_CLASS[9], ONE_CLASS[4], ONE_CLASS[5]])


def an_astraea(**settings):
    selector = Astraea(**{"gamma": 2, **settings})
    return a_logic(selector, training=Training(steps=2, learning_rate=0.1))


@pytest.mark.parametrize("gamma", ["3", "7"])
def test_the_mediators_are_as_worked_out(gamma) -> None:
    told = vectors("astraea")
    logic = an_astraea(gamma=int(gamma))
    clients = counted(told["inputs"]["counts"])
    state, report = run_round(a_state(logic), MemoryCarrier(logic, clients), logic)
    lines = [list(line) for line in lines_of(state.memory["selector"])]
    assert lines == told["expected"]["mediators"][gamma]
    assert report.of("accepted") == tuple(client for line in lines for client in line)


def test_the_divergence_of_labels_is_that_of_kullback_and_leibler() -> None:
    counts = np.array([[[5, 5, 0], [0, 7, 0]], [[1, 1, 2], [3, 3, 3]]])
    thirds = kullback_leibler(counts, uniform(3))
    expected = [[math.log(1.5), math.log(3)], [math.log(3) - 1.5 * math.log(2), 0]]
    np.testing.assert_allclose(thirds, expected, atol=1e-12)
    skewed = kullback_leibler(counts[0], np.array([0.5, 0.25, 0.25]))
    np.testing.assert_allclose(skewed, [0.5 * math.log(2), math.log(4)], atol=1e-12)


@pytest.mark.parametrize("case", range(3))
def test_the_ratios_are_as_worked_out(case) -> None:
    told = vectors("astraea")
    asked = told["inputs"]["zscore"][case]
    found = ratios(np.array(asked["num"]), asked["td"], asked.get("ta"))
    expected = np.ones(10)
    for kind, ratio in told["expected"]["zscore"][case].items():
        expected[int(kind)] = ratio
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_histograms_that_are_absurd_let_nobody_train_without_end() -> None:
    def forge(answer):
        if answer.client > 1:
            return [answer]
        absurd = np.bincount([answer.client], minlength=10) << 52
        return [replace(answer, values={"histogram": absurd})]

    clients = {k: Points.of(list(range(10))) for k in range(4)}
    logic = a_logic(Astraea(gamma=2, above=3.0), 2, hooks=[Rebalance()])
    peers = MemoryCarrier(logic, clients, forge_answer=forge)
    peers.engine = PointsEngine(2)
    _, report = run_round(a_state(logic), peers, logic)
    assert set(report.of("accepted")) == set(clients)
    assert all(10 < told.samples <= 1000 for told in report.clients)


def test_the_lines_are_made_again_when_a_client_joins_and_by_histograms_alone() -> None:
    logic = an_astraea()
    peers = MemoryCarrier(logic, {k: data for k, data in CLIENTS.items() if k != 3})
    early, _ = run_rounds(2, a_state(logic), peers)
    peers.clients = CLIENTS
    late, report = run_round(early, peers, logic)
    at_once, _ = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    assert lines_of(late.memory["selector"]) == lines_of(at_once.memory["selector"])
    assert set(report.of("accepted")) == set(CLIENTS)


def test_who_tells_no_histogram_takes_no_part() -> None:
    def forge(answer):
        return [replace(answer, values={}) if answer.client == 2 else answer]

    logic = an_astraea()
    _, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS, forge_answer=forge), logic)
    assert set(report.of("accepted")) == {0, 1, 3, 4}


@given(
    counts=st.lists(
        st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any), min_size=1, max_size=20
    ),
    mediators=st.integers(1, 5),
)
def test_however_mediators_are_filled_everybody_stands_in_one_line(counts, mediators) -> None:
    counts = np.array(counts, float)
    sizes = even(len(counts), mediators)

    def away(pooled):
        return np.abs(pooled / pooled.sum(-1, keepdims=True) - 1 / 3).sum(-1)

    for lines in (
        greedy_fill(counts, sizes, away),
        balanced(counts, sizes, away),
        at_random(range(len(counts)), sizes, 1),
    ):
        assert [len(line) for line in lines] == sizes
        assert sorted(row for line in lines for row in line) == list(range(len(counts)))
    greedy = greedy_fill(counts, sizes, away)
    assert greedy == slow_greedy_fill(counts, sizes, away)


def slow_greedy_fill(counts, sizes, away):
    left, lines = list(range(len(counts))), []
    for size in sizes:
        line, pooled = [], np.zeros(counts.shape[1])
        for _ in range(size):
            row = min(left, key=lambda row: (round(float(away(pooled + counts[row])), 9), row))
            line.append(row)
            left.remove(row)
            pooled = pooled + counts[row]
        lines.append(line)
    return lines


NUMBERS = [[60, 0, 2, 0, 100], [0, 60, 0, 60, 50]]  # class 2 is rare, class 4 frequent


def test_clients_train_on_more_of_the_rare_and_fewer_of_the_frequent_classes() -> None:
    clients = {k: Points.of(labels_of(counts)) for k, counts in enumerate(NUMBERS)}
    selector = Astraea(gamma=1, classes=5, above=1.2)
    logic = a_logic(selector, 2, hooks=[Rebalance(1.2)], training=Training(steps=1))
    peers = MemoryCarrier(logic, clients)
    peers.engine = PointsEngine(2)
    _, reports = run_rounds(2, a_state(logic), peers)
    factors = ratios(np.sum(NUMBERS, 0), 1.2)
    assert factors[4] < 1 < factors[2]
    for had, seen, again in zip(NUMBERS, *np.split(np.array(peers.engine.trained), 2), strict=True):
        assert seen.x.tobytes() == again.x.tobytes(), "the same in every round"
        got = np.bincount(seen.y, minlength=5)
        assert got[[0, 1, 3]].tolist() == [had[0], had[1], had[3]]
        assert had[2] * int(factors[2]) <= got[2] <= had[2] * int(factors[2] + 1)
        assert 0 < got[4] < had[4]
    trained = [len(seen) for seen in peers.engine.trained[:2]]
    for report in reports:
        assert [trained[told.client] for told in report.clients] == [
            told.samples for told in report.clients
        ]


def test_the_lines_are_made_of_the_samples_that_clients_will_train_on() -> None:
    counts = np.array([[13, 0, 9], [3, 0, 4], [19, 0, 13], [0, 15, 12]])
    clients = {k: Points.of(labels_of(histogram)) for k, histogram in enumerate(counts)}
    found = {}
    for above in (None, 0.5, 1.0):
        logic = a_logic(Astraea(gamma=2, classes=3, above=above), 2)
        peers = MemoryCarrier(logic, clients)
        peers.engine = PointsEngine(2)
        state, _ = run_round(a_state(logic), peers, logic)
        found[above] = [list(line) for line in lines_of(state.memory["selector"])]
        seen = counts if above is None else counts * ratios(counts.sum(0), above)

        def away(pooled):
            shares = pooled / pooled.sum(-1, keepdims=True)
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.nansum(shares * np.log(shares * 3), axis=-1)

        assert found[above] == slow_greedy_fill(seen, [2, 2], away)
    assert found[None] != found[0.5] != found[1.0] != found[None], "the example tells them apart"


def test_a_class_of_a_single_sample_is_rare_and_its_ratio_is_at_most_100() -> None:
    numbers = [0, 1, 20, 21, 22]
    mean, spread = statistics.mean(numbers), statistics.stdev(numbers)
    of_one = mean - spread * math.sqrt((mean - 1) / spread)  # z is -1.09, below -1 / T_d = -1
    np.testing.assert_allclose(ratios(np.array(numbers), 1.0), [1, of_one, 1, 1, 1], rtol=1e-12)
    assert ratios(np.array([1, 5000, 5000, 5000]), 1.0).tolist() == [100.0, 1.0, 1.0, 1.0]


def taken(sent, labels=(0, 1, 2, 2)) -> list[int]:
    """Return the labels that a client trains on when it is sent these ratios."""
    slot = {} if sent is None else {"ratios": sent}
    context = ClientContext(1, 0, 0, Training(), [], {}, slot=slot)
    return Rebalance().client().samples(Points.of(list(labels)), context).y.tolist()


@pytest.mark.parametrize(
    "sent",
    [
        *(2.0, "ratios", [1.0, 1.0, 1.0]),
        *(np.ones((1, 3)), np.array(1.0), np.ones(2), np.ones(0)),
        *(np.array([1.0, value, 1.0]) for value in (np.nan, np.inf)),
    ],
    ids=str,
)
def test_ratios_that_a_client_cannot_use_are_refused(sent) -> None:
    with pytest.raises(Rejected, match="ratios"):
        taken(sent)


def test_the_nearest_ratios_that_a_client_can_use_are_used() -> None:
    assert taken(None) == [0, 1, 2, 2]
    assert taken(np.ones(3)) == [0, 1, 2, 2]
    assert taken(np.array([2.0, 0.0, 1.0, 9.0])) == [0, 0, 2, 2]
    assert taken(np.array([3.0, 2.0, 0.0])) == [0, 0, 0, 1, 1]
    assert taken(np.zeros(3)) == [0], "something is left, of the class with the highest ratio"
    assert taken(np.array([0.0, 1e-9, 0.0])) == [1]


def test_balanced_classes_are_left_alone_and_nothing_is_sent() -> None:
    logic = a_logic(Astraea(gamma=2, classes=2), 2, hooks=[Rebalance()])
    clients = {k: Points.of([0, 1] * 5) for k in range(2)}
    peers = MemoryCarrier(logic, clients)
    peers.engine = PointsEngine(2)
    _, report = run_round(a_state(logic), peers, logic)
    assert [told.samples for told in report.clients] == [10, 10]
    assert all(not task.slots for task in peers.tasks)


def test_new_images_without_a_rebalancing_that_needs_them_are_refused() -> None:
    with pytest.raises(LogicError, match="set rebalance"):
        astraea(augment=True)


STILL = {"shift": 0.0, "rotation": 0.0, "shear": 0.0, "zoom": 0.0}


def images(number: int = 5, shape: tuple[int, ...] = (2, 9, 7)) -> np.ndarray:
    return np.random.default_rng(4).random((number, *shape), np.float32)


class Drawn:
    """A generator that draws what a test wants, each from -1 to 1."""

    def __init__(self, *draws: float) -> None:
        self.draws = np.array([draws])

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        assert shape == self.draws.shape
        return (self.draws + 1) / 2


def moved(image: np.ndarray, draws=(0, 0, 0, 0, 0, 0), **amounts: float) -> np.ndarray:
    return Augmentation(**{**STILL, **amounts}).new_images(image, Drawn(*draws))


def test_every_move_is_the_one_that_scipy_makes() -> None:
    amounts = {"shift": 0.2, "rotation": 40.0, "shear": 25.0, "zoom": 0.3}
    draws = np.random.default_rng(8).uniform(-1, 1, (6, 6))
    for image, draw in zip(images(6), draws, strict=True):
        right, down, turn, lean, wide, high = draw
        turned, leant = math.radians(40 * turn), math.radians(25 * lean)
        # Of (row, column), as scipy has it.
        rotation = [[math.cos(turned), math.sin(turned)], [-math.sin(turned), math.cos(turned)]]
        shear = [[1, 0], [math.tan(leant), 1]]
        matrix = np.array(rotation) @ shear @ np.diag([1 + 0.3 * high, 1 + 0.3 * wide])
        middle = np.array([4, 3])
        offset = middle + 0.2 * np.array([9 * down, 7 * right]) - matrix @ middle
        expected = [affine_transform(one, matrix, offset, order=1, mode="nearest") for one in image]
        found = moved(image[None], draw, **amounts)[0]
        np.testing.assert_allclose(found, expected, atol=2e-6)


def test_the_bits_are_these_on_every_machine() -> None:
    made = Augmentation().new_images(images(40, (1, 28, 28)), np.random.default_rng(1))
    assert hashlib.sha256(made.tobytes()).hexdigest()[:16] == "bc35c355b5092a58"


def test_how_many_images_are_made_at_once_changes_nothing(monkeypatch) -> None:
    whole = Augmentation().new_images(images(9), np.random.default_rng(1))
    monkeypatch.setattr("layers.logic.algorithms.astraea.AT_ONCE", 1)
    one_by_one = Augmentation().new_images(images(9), np.random.default_rng(1))
    assert whole.tobytes() == one_by_one.tobytes()
    assert Augmentation().new_images(images(0), np.random.default_rng(1)).shape == (0, 2, 9, 7)


def augmented(hook: Rebalance, x: np.ndarray, y: list[int], client: int = 0) -> ArrayData:
    context = ClientContext(
        1, client, 0, Training(), [], {}, {"ratios": np.array([1.0, 3.0, 0.0])}, run_seed=client
    )
    return hook.client().samples(ArrayData(x, np.array(y)), context)


def test_a_rare_sample_is_taken_as_it_is_and_then_as_new_images() -> None:
    x = images(4)
    plain = augmented(Rebalance(), x, [0, 1, 2, 1])
    found = augmented(Rebalance(augment=True), x, [0, 1, 2, 1])
    assert found.y.tolist() == plain.y.tolist() == [0, 1, 1, 1, 1, 1, 1]
    assert [found.x[place].tobytes() for place in (0, 1, 4)] == [
        x[row].tobytes() for row in (0, 1, 3)
    ]
    seen = {image.tobytes() for image in found.x}
    assert len(seen) == 7, "no image twice"
    assert found.x.dtype == x.dtype
    assert augmented(Rebalance(augment=True), x, [0, 1, 2, 1]).x.tobytes() == found.x.tobytes()
    assert augmented(Rebalance(augment=True), x, [0, 1, 2, 1], 1).x.tobytes() != found.x.tobytes()
    assert images(4).tobytes() == x.tobytes(), "the client's own images stay as they are"


@pytest.mark.parametrize(
    "x", [np.ones((2, 12), np.float32), np.ones((2, 1, 4, 4), np.int64), np.ones((2, 5), np.int32)]
)
def test_samples_that_are_no_images_are_refused_with_the_way_out(x) -> None:
    with pytest.raises(LogicError, match="leave augment out"):
        augmented(Rebalance(augment=True), x, [0, 1])
    assert len(augmented(Rebalance(), x, [0, 1])) == 4
