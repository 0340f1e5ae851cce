"""What liars do to samples and updates, against the papers' equations and the authors' code."""

from __future__ import annotations

import math

import numpy as np
import pytest

from layers.logic import ATTACKS, LogicError, run_round
from layers.logic.aggregators.krum import scores
from layers.logic.attacks.colluding import (
    FangKrum,
    FangTrim,
    InnerProduct,
    LittleIsEnough,
    Mimic,
    MinMax,
    MinSum,
)
from layers.logic.attacks.samples import BackDoor, LabelFlipping
from layers.logic.attacks.updates import FreeRider, Gaussian, Scaling, SignFlip
from layers.logic.core.attack import Attack
from layers.logic.core.engine import ArrayData
from layers.logic.core.hook import ClientContext
from layers.logic.core.messages import EMPTY, Training, Update
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone
from tests.logic.quadratic import bowls
from tests.logic.vector_files import CLOSE, vectors

RNG = np.random.default_rng(0)


def a_context(**changed) -> ClientContext:
    given = {"round": 1, "client": 0, "seed": 3, "training": Training(), "layout": []}
    return ClientContext(**{**given, "memory": {}, **changed})


@pytest.mark.parametrize("case", range(6))
@pytest.mark.parametrize(("name", "attack"), [("min_max", MinMax), ("min_sum", MinSum)])
def test_the_farthest_vector_is_that_of_the_file(name, attack, case) -> None:
    known = vectors("robust2")[name][case]
    honest = np.array(known["updates"])
    lie = attack(direction=known["direction"]).collude(honest, 1, RNG)
    np.testing.assert_allclose(lie, known["malicious_exact"], rtol=0, atol=1e-9)
    searched = honest.mean(axis=0) - known["gamma_search"] * np.array(known["p"])
    np.testing.assert_allclose(lie, searched, rtol=0, atol=2e-5 * np.abs(known["p"]).max() + 1e-9)


@pytest.mark.parametrize("attack", [MinMax, MinSum])
@pytest.mark.parametrize("direction", ["unit_vec", "sign", "std"])
def test_small_updates_have_the_farthest_vector_of_large_ones_in_small(attack, direction) -> None:
    honest = np.random.default_rng(5).normal(size=(5, 4))
    lie = attack(direction=direction).collude(honest, 1, RNG)
    small = attack(direction=direction).collude(2.0**-10 * honest, 1, RNG)
    np.testing.assert_allclose(small, 2.0**-10 * lie, rtol=1e-9)


OF_BYZFL = {
    "sign flipping: minus the honest mean": InnerProduct(epsilon=1.0),
    "inner product manipulation tau=0.5": InnerProduct(epsilon=0.5),
    "inner product manipulation tau=2": InnerProduct(epsilon=2.0),
    "a little is enough tau=1.5": LittleIsEnough(z=1.5),
    "mimic of the first": Mimic(),
}


@pytest.mark.parametrize("name", OF_BYZFL)
@pytest.mark.parametrize("case", range(5))
def test_colluders_agree_with_byzfl(name, case) -> None:
    known = vectors("byzantine")["cases"][case]
    honest = np.array(known["vectors"])[known["f"] :]
    lie = OF_BYZFL[name].collude(honest, known["f"], RNG)
    expected = known["attacks on the honest ones (rows f to m)"][name]
    np.testing.assert_allclose(lie, expected, **CLOSE)


def test_fangs_values_lie_beyond_all_honest_ones_against_their_mean() -> None:
    honest = np.array([[1.0, -1.0, 3.0, -4.0], [2.0, -3.0, -1.0, 2.0]])
    lies = [FangTrim().collude(honest, 1, np.random.default_rng(seed)) for seed in range(50)]
    low = np.array([0.5, -1.0, -2.0, 2.0])
    high = np.array([1.0, -0.5, -1.0, 4.0])
    assert (np.array(lies) >= low).all()
    assert (np.array(lies) <= high).all()
    assert np.ptp(lies, axis=0).min() > 0.3
    with pytest.raises(LogicError, match="beyond"):
        FangTrim(beyond=1.0)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("malicious", [2, 3])
def test_fangs_lie_is_what_krum_takes_and_twice_as_far_it_does_not(malicious, seed) -> None:
    honest = np.random.default_rng([malicious, seed]).normal(0.3, 1.0, (8, 20)).astype(np.float32)
    lie = FangKrum().collude(honest.astype(np.float64), malicious, RNG)
    size = np.abs(lie).max()
    np.testing.assert_array_equal(lie, -size * np.sign(honest.astype(np.float64).mean(axis=0)))

    def taken(vector: np.ndarray) -> bool:
        rows = [*honest, *[vector.astype(np.float32)] * malicious]
        return int(np.argmin(scores(rows, malicious))) >= len(honest)

    assert size > 1e-3
    assert taken(lie)
    assert not taken(2 * lie)


def fangs_bound(honest: np.ndarray, malicious: int) -> float:
    """Return the largest lambda, theorem 1 of the paper; the model before the round is zero."""
    h, d = honest.shape
    neighbours, others = max(h - 2, 1), max(h - malicious - 1, 1)  # m - c - 2 and m - 2 c - 1
    sums = [sum(sorted(math.dist(a, b) for b in honest)[1 : neighbours + 1]) for a in honest]
    longest = max(math.hypot(*one) for one in honest)
    return (min(sums) / others + longest) / math.sqrt(d)


@pytest.mark.parametrize(("number", "malicious"), [(8, 2), (8, 3), (3, 1), (2, 1)])
def test_fangs_lie_is_as_far_as_the_bound_of_the_paper_halved_some_times(number, malicious) -> None:
    honest = np.random.default_rng(number).normal(0.3, 1.0, (number, 20))
    size = np.abs(FangKrum().collude(honest, malicious, RNG)).max()
    halvings = math.log2(fangs_bound(honest, malicious) / size)
    assert halvings == pytest.approx(round(halvings), abs=1e-9)


def test_fangs_lie_begins_at_the_bound_of_the_paper() -> None:
    """Of equal updates, Krum takes none but these, so that lambda is halved down to 1e-5.

    The bound is 0 / (m - 2 c - 1) / sqrt(d) + |x| / sqrt(d) = 1.
    """
    lie = FangKrum().collude(np.ones((4, 9)), 1, RNG)
    np.testing.assert_allclose(lie, -np.full(9, 0.5**17))


@pytest.mark.parametrize("attack", [MinMax(), MinSum()])
def test_where_the_honest_updates_give_no_direction_the_lie_is_their_mean(attack) -> None:
    honest = np.array([[2.0, -1.0], [-2.0, 1.0]])
    assert attack.collude(honest, 1, RNG).tolist() == [0.0, 0.0]


def test_alie_takes_the_z_of_the_paper() -> None:
    """Of 50 clients with 12 liars, 14 honest ones must be on their side: z = inv(24 / 38)."""
    assert LittleIsEnough._z_max(38, 12) == pytest.approx(0.33603814, abs=1e-7)
    assert LittleIsEnough._z_max(2, 8) == 0
    for few, malicious in ((1, 1), (2, 3)):  # all honest ones, or none, must be on their side
        updates = np.arange(2.0 * few).reshape(few, 2)
        lie = LittleIsEnough().collude(updates, malicious, RNG)
        assert lie.tolist() == updates.mean(axis=0).tolist()


def test_a_mimic_sends_the_update_at_its_place_or_the_last_one() -> None:
    honest = np.arange(6.0).reshape(3, 2)
    lies = [Mimic(place=place).collude(honest, 1, RNG).tolist() for place in range(5)]
    assert lies == [[0, 1], [2, 3], [4, 5], [4, 5], [4, 5]]


def test_the_same_clients_lie_whatever_asks_and_more_of_them_for_a_larger_share() -> None:
    few, more = (SignFlip(share).among(50, 7).malicious for share in (0.2, 0.4))
    assert len(few) == 10
    assert few < more
    assert few == SignFlip(0.2).among(50, 7).malicious != SignFlip(0.2).among(50, 8).malicious
    assert SignFlip((4, 1)).among(50, 7).malicious == {1, 4}
    assert SignFlip(0.2).malicious == frozenset()
    with pytest.raises(LogicError, match="from 0 to 49, not 50"):
        SignFlip((50,)).among(50, 7)


def test_labels_are_those_of_the_other_end() -> None:
    data = ArrayData(np.zeros((3, 2)), np.array([0, 3, 9]))
    assert LabelFlipping().lie_in_samples(data, a_context()).y.tolist() == [9, 6, 0]


def test_only_the_liars_change_their_samples_and_updates() -> None:
    data = ArrayData(np.zeros((3, 2)), np.array([0, 3, 9]))
    update = Update(1, 0, 3, 1, np.array([1.0, -2.0], np.float32), EMPTY)
    for client, lies in ((0, False), (1, True), (2, False), (4, True)):
        at = a_context(client=client)
        labels = LabelFlipping((4, 1)).client().samples(data, at)
        sent = SignFlip((4, 1)).client().send(update, at)
        assert labels.y.tolist() == ([9, 6, 0] if lies else [0, 3, 9])
        assert sent.delta.tolist() == ([-1, 2] if lies else [1, -2])


def test_a_part_of_the_images_has_the_trigger_and_the_target_in_every_round() -> None:
    data = ArrayData(np.zeros((10, 1, 5, 5), np.float32), np.arange(10))
    attack = BackDoor(target=7, part=0.3, size=2, value=2.0)
    lied = attack.lie_in_samples(data, a_context())
    marked = np.flatnonzero(lied.x.any(axis=(1, 2, 3)))
    assert len(marked) == 3
    assert lied.x[marked].sum(axis=(1, 2, 3)).tolist() == [8.0] * 3
    assert (lied.x[marked][..., -2:, -2:] == 2).all()
    assert lied.y[marked].tolist() == [7] * 3
    assert not data.x.any()
    again = attack.lie_in_samples(data, a_context(round=2, seed=4))
    assert np.array_equal(again.x, lied.x)
    test = attack.measured(data.x, data.y)["attack_success"]
    assert len(test) == 9
    assert set(test.y.tolist()) == {7}
    grey = attack.triggered(np.zeros((3, 2, 4)))  # without channels, and no higher than the trigger
    assert grey.tolist() == [[[0, 0, 2, 2], [0, 0, 2, 2]]] * 3
    for shape in ((3, 64), (3, 1, 4), (3, 4, 1)):
        with pytest.raises(LogicError, match=f"back-door.*{shape[-1]}"):
            attack.triggered(np.zeros(shape))


def test_each_liar_alone_changes_its_own_update() -> None:
    delta = np.array([1.0, -2.0], np.float32)
    assert SignFlip(scale=2.0).lie_in_update(delta, a_context()).tolist() == [-2, 4]
    assert Scaling(scale=3.0).lie_in_update(delta, a_context()).tolist() == [3, -6]
    assert BackDoor(scale=3.0).lie_in_update(delta, a_context()).tolist() == [3, -6]
    noise = Gaussian(sigma=2.0).lie_in_update(np.zeros(10000, np.float32), a_context())
    assert noise.dtype == np.float32
    assert float(noise.std()) == pytest.approx(2, rel=0.05)
    other = Gaussian(sigma=2.0).lie_in_update(np.zeros(10000, np.float32), a_context(seed=4))
    assert not np.array_equal(noise, other)


def test_a_free_rider_sends_the_change_of_the_model_since_its_last_round() -> None:
    memory: dict = {}
    start = np.array([1.0, 2.0], np.float32)
    delta = np.ones(2, np.float32)
    first = FreeRider().lie_in_update(delta, a_context(memory=memory, start=start))
    later = FreeRider().lie_in_update(delta, a_context(memory=memory, start=start + 3))
    assert (first.tolist(), later.tolist()) == ([0, 0], [3, 3])
    noise = Gaussian(sigma=2.0).lie_in_update(delta, a_context())
    noisy = FreeRider(sigma=2.0).lie_in_update(delta, a_context(memory=memory, start=start + 5))
    np.testing.assert_allclose(noisy, 2 + noise, rtol=1e-6)


def test_only_liars_lie_and_the_report_marks_them() -> None:
    attack = Scaling((1, 3), scale=-1.0 * -100.0)
    logic = a_logic(alone(*range(4)), hooks=[attack])
    plain = a_logic(alone(*range(4)))
    peers, honest = MemoryCarrier(logic, bowls(4)), MemoryCarrier(plain, bowls(4))
    lied, report = run_round(a_state(logic), peers, logic)
    true, _ = run_round(a_state(plain), honest, plain)
    assert [one.client for one in report.clients if one.malicious] == [1, 3]
    assert np.linalg.norm(lied.weights) > 10 * np.linalg.norm(true.weights)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_share_or_a_number_that_no_client_has_is_refused(name) -> None:
    for clients in (-0.1, 1.1, math.nan, (-1,)):
        with pytest.raises(LogicError, match="clients"):
            ATTACKS[name](clients=clients)
    assert issubclass(ATTACKS[name], Attack)
