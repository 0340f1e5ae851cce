"""Devices: times of training and upload, as they are drawn from a seed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from layers.logic import LogicError, Training
from layers.logic.clock import DEVICES, VirtualClock
from layers.logic.clock.devices import (
    SMALL,
    Knapsack,
    KnapsackFleet,
    Lognormal,
    Range,
    Tiers,
    trained_samples,
    upload_time,
)
from layers.logic.clock.uploads import Serial
from layers.logic.seeds import generator
from tests.logic.clock.one_round import Rounds
from tests.logic.timed_carrier import Given
from tests.logic.vector_files import vectors

TRAINING = Training()
TINY, LARGEST = 5e-324, math.nextafter(math.inf, 0)
ALL = [make() for make in DEVICES.values()]


def test_the_knapsack_papers_times() -> None:
    """Eqs. (1) and (2)."""
    vector = vectors("knapsack_timing")
    given, expected, atol = vector["inputs"], vector["expected"], vector["tolerance"]
    model = Knapsack(given["c_k"], given["M_k"], upload_s=given["D_over_gammaB"])
    fleet = KnapsackFleet(model, np.array(given["f_k"]), seed=0)
    found = [fleet.train_s(client, 600, TRAINING) for client in range(len(given["f_k"]))]
    np.testing.assert_allclose(found, expected["t_uc"], rtol=0, atol=atol)
    found = [upload_time(model.upload_s, snr) for snr in given["snr"]]
    np.testing.assert_allclose(found, expected["t_ul_log2"], rtol=0, atol=atol)


def test_a_round_of_the_knapsack_papers_costs_the_last_training_and_all_uploads() -> None:
    """Eq. (6), of verdicts that count from when the last client had trained."""
    example = vectors("knapsack_timing")["expected"]["T_cost_offline"]
    trained, uploads = example["t_uc_finished"], example["t_ul_selected"]
    devices = Given(dict(enumerate(trained)), dict(enumerate([*uploads, 1.0])))
    clock = Rounds(VirtualClock(3, devices, uploads=Serial()))
    clock.begin(1)
    for client in range(3):
        clock.ask(client, 1, TRAINING, 0)
    for _ in trained:
        assert clock.next().kind == "trained"
    for client in range(3):
        granted = client < len(uploads)
        clock.decide(client, granted, dated_s=max(trained))
        if granted:
            clock.upload(client, 0, dated_s=max(trained))
    while clock.next() is not None:
        pass
    assert clock.elapsed_s == pytest.approx(example["value"], abs=1e-9)


@pytest.mark.parametrize("devices", ALL, ids=lambda d: type(d).__name__)
def test_a_seed_draws_the_same_devices_again_and_another_seed_others(devices) -> None:
    def drawn(seed: int) -> list[tuple[float, ...]]:
        fleet = devices.draw(40, seed)
        return [
            (
                fleet.train_s(client, 100, TRAINING),
                fleet.upload_s(client, 1000, 3),
                fleet.download_s(client, 1000, 3),
            )
            for client in range(40)
        ]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert all(0 <= time < math.inf for times in drawn(1) for time in times)


@pytest.mark.parametrize("devices", [Range(), Lognormal(), Tiers()], ids=lambda d: type(d).__name__)
def test_twice_the_work_takes_twice_the_time(devices) -> None:
    fleet = devices.draw(5, 0)
    for client in range(5):
        once = fleet.train_s(client, 100, Training(epochs=1))
        assert fleet.train_s(client, 100, Training(epochs=2)) == pytest.approx(2 * once)
        assert fleet.train_s(client, 200, Training(epochs=1)) == pytest.approx(2 * once)
        up = fleet.upload_s(client, 1000, 1)
        assert fleet.upload_s(client, 2000, 1) == pytest.approx(2 * up)


@pytest.mark.parametrize(
    ("samples", "training", "expected"),
    [
        (100, Training(epochs=5), 500),
        (100, Training(steps=7, batch_size=10), 70),
        (5, Training(steps=7, batch_size=10), 35),
        (100, Training(steps=2, batch_size=0), 200),
    ],
)
def test_a_client_looks_at_this_many_samples(samples, training, expected) -> None:
    assert trained_samples(samples, training) == expected


def test_the_knapsack_channel_changes_from_round_to_round_and_the_speed_does_not() -> None:
    fleet = Knapsack().draw(50, 0)
    assert [fleet.upload_s(k, 1, 1) for k in range(50)] != [
        fleet.upload_s(k, 1, 2) for k in range(50)
    ]
    for client in range(50):
        assert 250 / 9 <= fleet.train_s(client, 1, TRAINING) <= 250


def test_speeds_lie_within_their_range() -> None:
    fleet = Range((10, 20), (100, 200), (1000, 2000)).draw(200, 0)
    for client in range(200):
        assert 1 / 20 <= fleet.train_s(client, 1, TRAINING) <= 1 / 10
        assert 1 / 200 <= fleet.upload_s(client, 1, 1) <= 1 / 100
        assert 1 / 2000 <= fleet.download_s(client, 1, 1) <= 1 / 1000


@pytest.mark.parametrize(
    ("make", "setting"),
    [
        *((Range, name) for name in ("samples_per_s", "up_bytes_per_s", "down_bytes_per_s")),
        (Knapsack, "speed"),
    ],
)
def test_a_range_is_above_0_finite_and_in_order(make, setting) -> None:
    for value in ((0, 1), (2, 1), (1, math.inf), (math.nan, 1), (1, math.nan)):
        with pytest.raises(LogicError, match=setting):
            make(**{setting: value})
    for value in ((TINY, TINY), (1, LARGEST)):
        assert getattr(make(**{setting: value}), setting) == value


def test_speeds_are_their_medians_times_a_lognormal_factor() -> None:
    fleet = Lognormal(100.0, 200.0, 400.0, sigma=0.7).draw(5, seed=3)
    factors = np.exp(0.7 * generator(3, "devices").standard_normal((3, 5)))
    for client, (training, up, down) in enumerate(factors.T):
        seconds = (
            fleet.train_s(client, 50, Training(epochs=2)),
            fleet.upload_s(client, 1000, 1),
            fleet.download_s(client, 1000, 1),
        )
        expected = (100 / (100 * training), 1000 / (200 * up), 1000 / (400 * down))
        assert seconds == pytest.approx(expected)


@pytest.mark.parametrize("name", ["share", "samples_per_s", "up_bytes_per_s", "down_bytes_per_s"])
def test_a_tier_is_refused_unless_it_has_these_numbers_above_0_and_nothing_else(name) -> None:
    whole = {"share": 1, "samples_per_s": 2.0, "up_bytes_per_s": 3, "down_bytes_per_s": 4.0}
    for value in (0, -1, math.inf, math.nan, True, "5", None):
        with pytest.raises(LogicError, match=rf"tiers\.1\.{name} .*{value}"):
            Tiers([whole, {**whole, name: value}])
    without = {key: value for key, value in whole.items() if key != name}
    for tier in (without, {**whole, "cores": 4}, 5):
        with pytest.raises(LogicError, match=r"tiers\.1:"):
            Tiers([whole, tier])  # type: ignore[list-item]
    assert len(Tiers([whole, {**whole, name: TINY}]).tiers) == 2
    with pytest.raises(LogicError, match="the list is empty"):
        Tiers([])


def test_the_channel_of_many_clients_is_drawn_for_the_cohort_alone(monkeypatch) -> None:
    few, many = (KnapsackFleet(Knapsack(), np.ones(n), seed=3) for n in (SMALL, SMALL + 1))
    assert few.upload_s(7, 1, 2) == upload_time(100.0, few.snr(2)[7])
    monkeypatch.setattr(KnapsackFleet, "snr", lambda *_: pytest.fail("all clients were drawn"))
    times = [many.upload_s(client, 1, round) for client in range(50) for round in (1, 2)]
    assert len(set(times)) == 100
    assert times[0] == many.upload_s(0, 1, 1)
    # The median of log2(1 + SNR) is log2(1 + ln 2).
    assert 90 < np.median(times) < 200


def test_the_shares_of_tiers_are_scaled_to_one() -> None:
    def tier(share: float, speed: float) -> dict:
        rates = {"samples_per_s": speed, "up_bytes_per_s": 1.0, "down_bytes_per_s": 1.0}
        return {"share": share, **rates}

    fleet = Tiers([tier(1, 1.0), tier(1, 2.0), tier(2, 4.0)]).draw(8, 3)
    seconds = [fleet.train_s(client, 8, Training()) for client in range(8)]
    assert sorted(seconds) == [2.0, 2.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0]
    assert sorted(seconds) != seconds, "in a random order"
