"""A plan that contradicts itself is refused; the nearest that does not is accepted."""

from __future__ import annotations

import numpy as np
import pytest
from layers.logic.core.plan import Population, single_lanes

from layers.logic import LogicError, Plan

REFILLS = {"lanes": (), "enough": 2, "keeps_in_flight": True, "refills": True}
PAIRS = [
    ({"lanes": ((1,), (1,))}, "names clients \\[1\\] twice", {"lanes": ((1,), (2,))}),
    ({"lanes": ((1, 2, 1),)}, "twice", {"lanes": ((1, 2, 3),)}),
    ({"lanes": ((1,),), "late": (1,)}, "twice", {"lanes": ((1,),), "late": (2,)}),
    ({"lanes": ((1,), ())}, "empty lane", {"lanes": ()}),
    (
        {"lanes": (1, 2)},
        "a lane of a plan must hold numbers of clients, not be 1",
        {"lanes": ((1,),)},
    ),
    ({"lanes": ((1.0,),)}, "must hold numbers of clients, not be \\(1.0,\\)", {"lanes": ((1,),)}),
    (
        {"lanes": ((1, 2),), "offers": True},
        "plan with offers has lanes of several",
        {"lanes": ((1,), (2,)), "offers": True},
    ),
    (
        {"lanes": ((1,),), "offers": True, "late": (2,)},
        "offers keeps stragglers or waits",
        {"lanes": ((1,),), "late": (2,)},
    ),
    (
        {"lanes": ((1,),), "offers": True, "keeps_in_flight": True},
        "offers keeps stragglers",
        {"lanes": ((1,),), "keeps_in_flight": True},
    ),
    (
        {"lanes": ((1, 2),), "keeps_in_flight": True},
        "keeps stragglers has lanes of several",
        {"lanes": ((1, 2),)},
    ),
    (
        {"lanes": ((1,),), "enough": 0},
        "enough=0 lanes end no round",
        {"lanes": ((1,),), "enough": 1},
    ),
    ({"lanes": ((1,),), "enough": -1}, "enough=-1", {"lanes": ((1,),), "enough": 2}),
    (
        {"lanes": ((1,), (2,)), "groups": ("a",)},
        "2 lanes has 1 groups",
        {"lanes": ((1,), (2,)), "groups": ("a", "a")},
    ),
    (
        {"lanes": ((1,),), "weights": (0.5, 0.5)},
        "1 lanes has 2 weights",
        {"lanes": ((1,),), "weights": (1.0,)},
    ),
    *(
        (
            {**REFILLS, **wrong},
            "a plan with refills has lanes, no number of updates",
            REFILLS,
        )
        for wrong in ({"lanes": ((1,),)}, {"enough": None}, {"keeps_in_flight": False})
    ),
    *(
        (
            {"lanes": ((1,), (2,)), "groups": ("a", "b"), **wrong},
            reason,
            {"lanes": ((1,), (2,)), "groups": ("a", "b"), "quotas": {"a": 1}},
        )
        for wrong, reason in (
            ({"quotas": {"a": 0}}, "quotas={'a': 0}"),
            ({"quotas": {"a": 1, "c": 1}}, "quotas={'c': 1}"),
            ({"quotas": {"a": 1}, "keeps_in_flight": True}, "quotas keeps stragglers"),
        )
    ),
    ({"lanes": (), "before_s": -1.0}, "before_s=-1.0", {"lanes": (), "before_s": 0.0}),
    ({"lanes": (), "after_s": float("nan")}, "after_s=nan", {"lanes": (), "after_s": 2.0}),
]


@pytest.mark.parametrize(("refused", "reason", "accepted"), PAIRS)
def test_a_plan_is_refused_and_the_nearest_one_is_accepted(refused, reason, accepted) -> None:
    with pytest.raises(LogicError, match=reason):
        Plan(**refused)
    plan = Plan(**accepted)
    assert {name: getattr(plan, name) for name in accepted} == accepted


def test_the_clients_that_numpy_has_drawn_are_plain_numbers_that_a_checkpoint_can_keep() -> None:
    drawn = np.random.default_rng(0).choice(9, 4, replace=False)
    plan = Plan(single_lanes(drawn[:3]), late=(drawn[3],), keeps_in_flight=True)
    assert [type(client) for client in (*plan.clients, *plan.late)] == [int] * 4
    assert sorted(plan.clients) == sorted(drawn[:3].tolist())


def test_the_lanes_of_single_clients_are_ascending() -> None:
    assert single_lanes([3, 1, 2]) == ((1,), (2,), (3,))


def test_a_client_without_samples_is_not_in_the_population() -> None:
    population = Population({4: 1, 2: 0, 1: 7})
    assert population.clients == (1, 4)
    assert population.number == 2
    assert Population({4: 1}, total=9).number == 9


@pytest.mark.parametrize(
    ("factor", "needed", "asked"),
    [(1.0, 10, 10), (1.3, 10, 13), (1.31, 10, 14), (1.0001, 3, 4), (1.5, 0, 0), (2.0, 30, 40)],
)
def test_a_reserve_is_rounded_up_and_never_more_than_there_are(factor, needed, asked) -> None:
    population = Population(dict.fromkeys(range(40), 1), over_select=factor)
    assert population.asked(needed) == asked
    assert population.asked(needed, among=12) == min(asked, 12)
