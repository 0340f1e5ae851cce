"""DP-FTRL in rounds: what moves the model, what is recorded of it, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from layers.logic import HOOKS, Logic, LogicError, OpenRound, Preset
from layers.logic.aggregators.mean import Mean
from layers.logic.core.state import ServerState
from layers.logic.hooks.server_optimisers import FedAvgM
from layers.logic.privacy.dp_ftrl import DpFtrl
from layers.logic.privacy.tree import TreeMechanism
from layers.logic.selectors.cyclic import Cyclic
from layers.logic.selectors.poisson import Poisson
from layers.logic.selectors.uniform import Uniform
from tests.logic.memory_carrier import run_rounds
from tests.logic.privacy.test_central import CLIENTS, SIZE, START, logic_of, peers_of
from tests.logic.quadratic import bowl
from tests.logic.toys import planned

PRIVATE = DpFtrl(clip=0.5, delta=1e-3, noise=0.01)


def preset_of(privacy: DpFtrl = PRIVATE, period: int = 2, **parts: Any) -> Preset:
    given = {"selector": Cyclic(period), "aggregator": Mean("uniform"), **parts}
    return privacy.applied(Preset(**given), CLIENTS)


def after(logic: Logic, rounds: int) -> list[ServerState]:
    """The state after each round of four clients; each pulls all weights to 50."""
    peers = peers_of(logic, {one: bowl([50.0] * SIZE) for one in range(CLIENTS)})
    states = [START]
    for _ in range(rounds):
        states.append(run_rounds(1, states[-1], peers)[0])
    return states


def noise_alone(privacy: DpFtrl, rounds: int, **changed: Any) -> np.ndarray:
    """What is added to the sum of all rounds, in units of sigma C, after each round."""
    preset = preset_of(privacy, **changed)
    nobody = replace(preset, selector=replace(preset.selector, period=10**6))
    states = after(logic_of(nobody), rounds)
    unit = 2.0 * 0.5 / (CLIENTS / 2)
    return np.array([one.weights for one in states[1:]]) / unit


def test_clients_take_part_in_turn_and_the_mean_divides_by_what_is_expected() -> None:
    preset = preset_of()
    peers = peers_of(logic_of(preset), {one: bowl([50.0] * SIZE) for one in range(CLIENTS)})
    state, reports = run_rounds(4, START, peers)
    cohorts = [tuple(report.of("accepted")) for report in reports]
    assert cohorts[0] == cohorts[2]
    assert cohorts[1] == cohorts[3]
    assert sorted(cohorts[0] + cohorts[1]) == list(range(CLIENTS))
    # Four rounds of two clients, each with length 0.5 in the same direction, by N / R = 2.
    assert state.weights.mean() == pytest.approx(4 * 0.5 / np.sqrt(SIZE), rel=0.02)
    assert all(not one.metrics for report in reports for one in report.clients)


@pytest.mark.parametrize(
    ("honaker", "variances"),
    [(False, [1, 1, 2, 1, 2, 2, 3]), (True, [1, 2 / 3, 5 / 3, 4 / 7, 11 / 7, 26 / 21, 47 / 21])],
)
def test_the_noise_of_the_sum_follows_the_tree(honaker: bool, variances: list[float]) -> None:
    noise = noise_alone(DpFtrl(clip=0.5, delta=1e-3, noise=2.0, honaker=honaker), 7)
    assert noise.var(axis=1) == pytest.approx(variances, rel=0.35)


def test_trees_add_up() -> None:
    privacy = DpFtrl(clip=0.5, delta=1e-3, noise=2.0, restart=4)
    noise = noise_alone(privacy, 8)
    assert noise[7].var() == pytest.approx(2 * 4 / 7, rel=0.35)
    assert abs(np.corrcoef(noise[3], noise[7] - noise[3])[0, 1]) < 0.3


def test_optimisers_work_on_the_noisy_differences() -> None:
    noise = noise_alone(DpFtrl(clip=0.5, delta=1e-3, noise=2.0), 2, hooks=(FedAvgM(),))
    plain = noise_alone(DpFtrl(clip=0.5, delta=1e-3, noise=2.0), 2)
    assert np.allclose(noise[0], plain[0])
    assert np.allclose(noise[1] - noise[0], plain[1] - plain[0] + 0.9 * plain[0], atol=1e-4)


def test_the_account_knows_how_often_a_client_is_in_a_node() -> None:
    mechanism = replace(PRIVATE, restart=2).mechanism(preset_of(period=3))
    assert mechanism == TreeMechanism(0.01, 1.0, 3, 2)
    assert [mechanism.releases(0, rounds) for rounds in (1, 2, 3, 4, 5)] == [1, 2, 2, 4, 4]


def test_a_cycle_is_shuffled_and_no_client_changes_the_round_of_another() -> None:
    def rounds_of(clients: Any, period: int, seed: int = 0) -> dict[int, int]:
        samples = dict.fromkeys(clients, 3)
        cohorts = [
            planned(Cyclic(period), OpenRound(samples, number=number, seed=seed))
            for number in range(1, 2 * period + 1)
        ]
        assert cohorts[:period] == cohorts[period:]
        return {one: place for place in range(period) for one in cohorts[place]}

    everybody = rounds_of(range(1003), 10)
    assert sorted(everybody) == list(range(1003))
    sizes = np.bincount(list(everybody.values()))
    assert sizes.min() >= 100
    assert sizes.max() <= 101
    assert [everybody[one] for one in range(10)] != [everybody[one] for one in range(10, 20)]
    assert [everybody[one] for one in range(10)] == [5, 6, 4, 8, 0, 1, 9, 2, 3, 7]
    assert rounds_of(range(1003), 10, seed=1) != everybody
    some = [one for one in range(700) if one % 3]
    assert rounds_of(some, 10) == {one: everybody[one] for one in some}
    assert rounds_of((), 3) == {}


class Pretends(Uniform):
    name = "cyclic"


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"selector": Poisson(0.5)}, "selector cyclic"),
        ({"selector": Uniform()}, "selector cyclic"),
        ({"selector": Pretends()}, "inherit from Cyclic"),
        ({"aggregator": Mean()}, "by samples"),
        ({"hooks": (HOOKS["scaffold"](),)}, "Scaffold sums what clients send"),
    ],
)
def test_what_breaks_the_bound_is_refused_with_the_reason(
    parts: dict[str, Any], named: str
) -> None:
    with pytest.raises(LogicError, match=named):
        preset_of(**parts)


def test_a_delta_that_the_clients_do_not_make_small_is_refused() -> None:
    with pytest.raises(LogicError, match="delta must be below 1 / 4"):
        preset_of(DpFtrl(clip=0.5, delta=0.25, noise=1.0))
