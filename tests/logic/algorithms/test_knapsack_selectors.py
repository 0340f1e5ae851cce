"""What FedCS, OfflineKP-FL and OnlineKP-FL have in common."""

from __future__ import annotations

import numpy as np
import pytest

from layers.logic import (
    LogicError,
    Population,
)
from layers.logic.algorithms.fedcs import FedCS
from layers.logic.algorithms.knapsack import OfflineKP, OnlineKP
from tests.logic.algorithms.knapsack_cases import KNAPSACKS, played
from tests.logic.memory_carrier import a_logic


@pytest.mark.parametrize("selector", KNAPSACKS)
def test_a_round_without_a_deadline_is_refused_with_what_to_do(selector) -> None:
    with pytest.raises(LogicError, match=r"set clock\.deadline_s"):
        a_logic(selector)
    with pytest.raises(LogicError, match="over_select to 1"):
        a_logic(selector, deadline_s=10.0, over_select=1.3)


@pytest.mark.parametrize("selector", KNAPSACKS)
def test_a_round_into_which_nobody_fits_keeps_the_model_and_lasts_as_long_as_it_may(
    selector,
) -> None:
    case = {"t_uc": [10.0] * 3, "t_ul": [95.0] * 3, "T_round": 100.0}
    state, report = played(selector, case)
    assert report.of("accepted") == ()
    assert state.round == 1
    assert not state.weights.any()
    assert report.took_s == 100.0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FedCS(candidates=1.5), "candidates"),
        (
            lambda: a_logic(
                FedCS(select_s=2.0, distribute_s=3.0, aggregate_s=5.0), deadline_s=10.0
            ),
            "take 10 s together",
        ),
        (lambda: OfflineKP(resolution_s=0.0), "resolution_s"),
        (lambda: OnlineKP(L0=0.0, U=1.0), "L0"),
        (lambda: OnlineKP(L0=0.1), "together"),
        (lambda: OnlineKP(L0=2.0, U=1.0), "L0"),
        (
            lambda: a_logic(OfflineKP(solver="dp", resolution_s=1e-3), deadline_s=1e3),
            "set resolution_s to 0.01",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(make, said) -> None:
    with pytest.raises(LogicError, match=said):
        make()


@pytest.mark.filterwarnings("error")
def test_times_beyond_reason_are_taken_for_too_long_without_a_word() -> None:
    answers = {0: {"train_s": 1e308, "upload_s": 1e308}, 1: {"train_s": 1.0, "upload_s": 2.0}}
    population = Population({0: 10, 1: 10}, {"times": answers}, deadline_s=10.0)
    for selector in (FedCS(), FedCS(multicast=True)):
        plan = selector.select(population, {}, 1, np.random.default_rng(0))
        assert plan.lanes == ((1,),)
