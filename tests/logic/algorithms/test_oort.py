"""Oort: who has a high loss and is fast takes part, and nobody stays new who was asked."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layers.logic import (
    ClientReport,
    OpenRound,
    RoundReport,
    Traffic,
    Update,
    run_round,
)
from layers.logic.algorithms.oort import (
    TOLD,
    Oort,
    Pacer,
    Scale,
    Standing,
    best,
    candidates_for,
    slowed,
)
from layers.logic.core.report import Times
from layers.logic.core.selector import SELECT, SURVEY, column, with_numbers
from layers.logic.selectors.uniform import Uniform
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, run_rounds
from tests.logic.quadratic import bowl, bowls
from tests.logic.timed_carrier import TimedCarrier
from tests.logic.toys import planned

EXPLOIT = Oort(count=2, exploration=0.0, least_exploration=0.0)


def people(number: int, memory: Mapping[str, Any], round: int, **settings: Any) -> OpenRound:
    return OpenRound(dict.fromkeys(range(number), 10), number=round, memory=memory, **settings)


def a_report(
    round: int,
    losses: Mapping[int, float],
    others: Mapping[int, str] | None = None,
    took_s: Mapping[int, float] | None = None,
) -> RoundReport:
    """Return a round in which these told their losses, of 10 samples each, and others did not."""
    fates = {**dict.fromkeys(losses, "accepted"), **(others or {})}
    clients = tuple(
        ClientReport(
            client,
            fate,
            samples=10 if fate == "accepted" else 0,
            metrics={"loss": losses[client]} if fate == "accepted" else {},
            times=Times(1.0, ended_s=1.0 + took_s[client]) if took_s else None,
        )
        for client, fate in fates.items()
    )
    return RoundReport(round, 0.1, len(clients), clients, Traffic())


def kept(memory: Mapping[str, Any], name: str) -> dict[int, float]:
    return dict(
        zip(memory[name]["clients"].tolist(), memory[name]["numbers"].tolist(), strict=True)
    )


# --- stragglers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "over_select", "most"),
    [
        (Oort(count=10), 1.0, 0.05),
        (Oort(count=10), 1.3, 0.05),
        (Oort(count=10, ask_times=False), 1.0, 0.1),
        (Oort(count=10, candidates=0, cutoff=0.95, clip=0.95, least_exploration=0.2), 1.0, 0.0),
        (Oort(count=10, candidates=0, cutoff=0.7, ask_times=False), 1.0, 0.0),
    ],
    ids=["default", "over-selection", "not asked", "paper", "not asked, no augmentation"],
)
def test_clients_that_cannot_meet_the_deadline_are_tried_and_then_left_alone(
    selector, over_select, most
) -> None:
    clients = {client: bowl([float(client % 7 + 1)] * 3) for client in range(100)}
    slow = set(range(0, 90, 3))
    train_s = {client: 30.0 if client in slow else 1 + 0.1 * client for client in clients}
    logic = a_logic(selector, deadline_s=20.0, over_select=over_select, min_updates=0)
    upload_s = dict.fromkeys(clients, 0.0)
    peers = TimedCarrier(logic, clients, train_s=train_s, upload_s=upload_s)
    _, reports = run_rounds(120, a_state(logic), peers)
    asked = [one.client for report in reports for one in report.clients]
    assert len(asked) == 120 * int(10 * over_select)
    assert set(asked) == set(clients), "everybody was tried"
    again = sum(client in slow for client in asked) - len(slow)
    assert again <= most * len(asked)


@pytest.mark.parametrize("fate", ["declined", "lost", "rejected"])
def test_who_was_asked_in_vain_is_not_new_and_has_the_mean_reward_of_the_round(fate) -> None:
    report = a_report(7, {0: 1.0, 1: 3.0}, {2: fate}, {0: 4.0, 1: 5.0, 2: 20.0})
    memory = EXPLOIT.on_round_end({}, report)
    assert kept(memory, "reward") == {0: 10.0, 1: 30.0, 2: 20.0}
    assert kept(memory, "round") == dict.fromkeys(range(3), 7.0)
    assert kept(memory, "count") == dict.fromkeys(range(3), 1.0)
    assert kept(memory, "took_s") == {0: 4.0, 1: 5.0, 2: 20.0}


def test_a_round_that_brought_nothing_leaves_rewards_as_they_were() -> None:
    memory = EXPLOIT.on_round_end({}, a_report(1, {0: 3.0}))
    memory = EXPLOIT.on_round_end(memory, a_report(2, {}, {0: "lost", 1: "lost"}))
    assert kept(memory, "reward") == {0: 30.0}
    assert kept(memory, "count") == {0: 2.0, 1: 1.0}
    standing = EXPLOIT.standing(people(3, memory, 3), 2)
    assert standing.tried.tolist() == [True, True, False]
    assert standing.utility[0] > standing.utility[1] > 0


def test_a_client_cut_short_takes_at_least_as_long_as_was_known_of_it() -> None:
    memory: Mapping[str, Any] = with_numbers({}, "told_s", {0: 50.0, 1: 3.0})
    took_s = []
    for round, (fate, seconds) in enumerate(
        [("declined", 9.0), ("lost", 60.0), ("declined", 5.0), ("accepted", 8.0), ("lost", 2.0)], 1
    ):
        losses = {0: 1.0} if fate == "accepted" else {}
        others = {} if losses else {0: fate}
        memory = EXPLOIT.on_round_end(memory, a_report(round, losses, others, {0: seconds}))
        took_s.append(kept(memory, "took_s")[0])
    assert took_s == [50.0, 60.0, 60.0, 8.0, 8.0]


def test_strangers_to_the_plan_teach_nothing() -> None:
    report = a_report(1, {0: 1.0})
    stranger = ClientReport(5, "rejected", "not asked in this round")
    memory = EXPLOIT.on_round_end({}, replace(report, clients=(*report.clients, stranger)))
    assert kept(memory, "count") == {0: 1.0}


# --- rewards --------------------------------------------------------------------------------


def test_only_a_selector_that_needs_the_squared_losses_is_told_of_them() -> None:
    for selector, told in ((Oort(fraction=1.0), True), (Uniform(fraction=1.0), False)):
        logic = a_logic(selector)
        updates: list[Update] = []
        peers = MemoryCarrier(
            logic, bowls(2), forge=lambda one, to=updates: to.append(one) or [one]
        )
        run_round(a_state(logic), peers, logic)
        assert len(updates) == 2
        assert all(("rms_loss" in update.metrics) is told for update in updates)


# --- speed ----------------------------------------------------------------------------------


def test_rewards_that_are_none_or_tiny_have_a_scale() -> None:
    for nothing in ([], [0.0], [0.0, -1.0]):
        scale = Scale.of(np.array(nothing), clip=0.5)
        assert scale == Scale(least=0.0, span=1.0, clip=0.0)
        assert scale.scaled(np.zeros(2)).tolist() == [0.0, 0.0]
    assert Scale.of(np.array([1e-9]), clip=1.0).span == 1e-4


def test_who_takes_just_as_long_as_preferred_is_worth_as_much() -> None:
    values, durations_s = np.full(4, 3.0), np.array([1.0, 2.0, 4.0, np.nan])
    assert slowed(values, durations_s, 2.0, alpha=2.0).tolist() == [3.0, 3.0, 0.75, 3.0]


def test_the_percentile_stays_between_its_step_and_the_slowest() -> None:
    pacer = Pacer(step=1, delta=5.0)
    assert pacer.percentile(98.0, np.array([1.0, 1.0]), 2) == 100.0
    assert pacer.percentile(7.0, np.array([1.0, 9.0]), 2) == 5.0


def test_candidates_are_at_least_as_many_as_are_drawn_and_whoever_is_at_the_cut_off() -> None:
    utility = np.array([0.1, 1.0, 0.5, 0.9, 0.4])
    for number, cutoff, times, places in (
        *((1, 0.5, 0.0, [1, 3, 2]), (1, 1.0, 0.0, [1, 3]), (1, 1.0, 3.0, [1, 3, 2, 4])),
        *((number, 0.5, 0.0, [1, 3, 2, 4, 0]) for number in (4, 5)),
    ):
        assert candidates_for(utility, number, cutoff, times).tolist() == places


def test_clients_say_once_how_long_they_take_and_the_quick_are_explored_first() -> None:
    logic = a_logic(Oort(count=2, new_candidates=1), deadline_s=1000.0)
    train_s = {client: 10.0 + client for client in range(8)}
    upload_s = dict.fromkeys(range(8), 2.0)
    clients = {client: bowl([1.0] * 3) for client in range(8)}
    peers = TimedCarrier(logic, clients, train_s=train_s, upload_s=upload_s)
    state, reports = run_rounds(4, a_state(logic), peers)
    assert peers.asked == [("times", tuple(range(8)))], "nobody is asked twice"
    told = kept(state.memory[SELECT], "told_s")
    assert told == {client: train_s[client] + 2.0 for client in range(8)}
    assert state.memory[SURVEY]["times"] == {client: {} for client in range(8)}
    before = set(reports[0].of("accepted"))
    new = set(reports[1].of("accepted")) - before
    assert new == {min(set(range(8)) - before)}, "the first of the others, equal in size, is quick"


def test_how_long_clients_took_comes_from_the_clock_of_the_round() -> None:
    logic = a_logic(replace(EXPLOIT, ask_times=False), deadline_s=1000.0)
    train_s = {0: 5.0, 1: 6.0, 2: 7.0, 3: 8.0}
    upload_s = dict.fromkeys(range(4), 2.0)
    clients = {client: bowl([1.0] * 3) for client in range(4)}
    peers = TimedCarrier(logic, clients, train_s=train_s, upload_s=upload_s)
    state, report = run_round(a_state(logic), peers, logic)
    expected = {client: train_s[client] + 2.0 for client in report.of("accepted")}
    # One upload at a time: the second waits for the first.
    first, second = sorted(expected)
    if expected[second] - expected[first] < 2.0:
        expected[second] = expected[first] + 2.0
    assert kept(state.memory[SELECT], "took_s") == expected


def test_devices_that_need_no_time_are_not_told_apart_by_how_busy_the_machine_is() -> None:
    """A simulation without devices measures the machine that it runs on, never twice the same."""
    idle: Mapping[str, Any] = with_numbers({}, "told_s", {0: 0.0, 1: 0.0, 2: 0.0})
    losses = {0: 1.0, 1: 2.0, 2: 3.0}
    one = EXPLOIT.on_round_end(idle, a_report(1, losses, None, {0: 1.0, 1: 2.0, 2: 3.0}))
    other = EXPLOIT.on_round_end(idle, a_report(1, losses, None, {0: 9.0, 1: 0.1, 2: 4.0}))
    np.testing.assert_equal(dict(one), dict(other))
    # In a deployment one alone may say so, and gains nothing by it.
    liar = EXPLOIT.on_round_end(
        with_numbers(idle, "told_s", {1: 5.0}), a_report(1, losses, None, {0: 1.0, 1: 2.0, 2: 3.0})
    )
    assert kept(liar, "took_s") == {0: 1.0, 1: 2.0, 2: 3.0}


def test_without_a_penalty_nobody_is_asked_and_nothing_is_measured() -> None:
    selector = replace(EXPLOIT, alpha=0.0)
    assert selector.asks == ()
    assert replace(EXPLOIT, ask_times=False).asks == ()
    memory = selector.on_round_end({}, a_report(1, {0: 1.0}, None, {0: 4.0}))
    assert "took_s" not in memory


# --- who is drawn ---------------------------------------------------------------------------


def test_the_first_round_is_uniform() -> None:
    samples = {client: 1000 if client else 1 for client in range(10)}
    rounds = [OpenRound(samples, seed=seed) for seed in range(400)]
    times = sum(0 in planned(Oort(count=5), round) for round in rounds)
    assert times == pytest.approx(200, abs=40)


def test_known_and_new_clients_fill_up_for_each_other() -> None:
    half = Oort(count=4, exploration=0.5, least_exploration=0.5, decay=1.0)
    for known, explored in ((10, 0), (9, 1), (7, 2), (2, 2), (1, 3)):
        memory = half.on_round_end({}, a_report(1, dict.fromkeys(range(known), 1.0)))
        cohort = planned(half, people(10, memory, 2))
        assert (len(cohort), sum(client >= known for client in cohort)) == (4, explored)
    memory = half.on_round_end({}, a_report(1, {20: 1.0}))
    assert len(planned(half, people(10, memory, 2))) == 4, "no known client is there"


def test_who_was_asked_too_often_is_barred_and_the_most_asked_first() -> None:
    selector = replace(EXPLOIT, most_rounds=2, most_barred=0.2)
    memory: Mapping[str, Any] = selector.on_round_end(
        {}, a_report(1, dict.fromkeys(range(10), 1.0))
    )
    for round, asked in enumerate([(1, 2, 3), (1, 2, 3), (2, 3), (2,)], start=2):
        memory = selector.on_round_end(memory, a_report(round, dict.fromkeys(asked, 9.0)))
    everybody = selector.standing(people(10, memory, 6), 2).clients.tolist()
    assert everybody == [0, 1, 4, 5, 6, 7, 8, 9], "a fifth of ten, of the three"
    often = replace(selector, most_rounds=3)
    assert 1 in often.standing(people(10, memory, 6), 2).clients

    def drawn(number: int, *there: int) -> list[int]:
        round = OpenRound(dict.fromkeys(there, 10), number=6, memory=memory)
        return planned(replace(selector, count=number), round)

    # Who is barred takes part when nobody else is there, or when all that are there are wanted.
    assert drawn(1, 2, 3) in ([2], [3])
    assert drawn(2, 2, 3) == [2, 3]
    assert [drawn(number, 2, 3, 5) for number in (1, 2, 3)] == [[5], [5], [2, 3, 5]]


def test_there_are_some_in_reserve_for_those_that_are_asked_too_many() -> None:
    logic = a_logic(EXPLOIT, over_select=1.5)
    peers = MemoryCarrier(logic, bowls(20))
    _, reports = run_rounds(2, a_state(logic), peers)
    assert [(one.selected, len(one.of("accepted"))) for one in reports] == [(3, 2)] * 2


# --- always ---------------------------------------------------------------------------------

FATES = st.sampled_from(["accepted", "declined", "lost", "rejected"])
SELECTORS = st.builds(
    Oort,
    count=st.integers(1, 6),
    alpha=st.sampled_from([0.0, 2.0]),
    least_exploration=st.sampled_from([0.0, 0.3]),
    candidates=st.sampled_from([0.0, 1.0]),
    cutoff=st.sampled_from([0.05, 0.95]),
    pacer_step=st.integers(1, 3),
    most_rounds=st.none() | st.integers(1, 3),
    most_barred=st.sampled_from([0.3, 1.0]),
)


@settings(max_examples=60, deadline=None)
@given(selector=SELECTORS, data=st.data(), seed=st.integers(0, 9))
def test_it_is_pure_resumes_alike_and_asks_only_who_is_there_and_not_barred(
    selector, data, seed
) -> None:
    memory: Mapping[str, Any] = with_numbers({}, "told_s", {0: 3.0, 1: 400.0})
    for round in range(1, 7):
        samples = data.draw(
            st.dictionaries(st.integers(0, 14), st.integers(0, 50), min_size=1).filter(
                lambda drawn: any(drawn.values())
            )
        )
        given = {"number": round, "seed": seed}
        given["over_select"] = data.draw(st.sampled_from([1.0, 1.5]))
        before = copy.deepcopy(dict(memory))
        drawn = OpenRound(samples, memory=memory, **given)
        cohort = planned(selector, drawn)
        again = OpenRound(samples, memory=copy.deepcopy(before), **given)
        assert planned(replace(selector), again) == cohort
        np.testing.assert_equal(dict(memory), before)
        there = set(drawn.clients)
        assert set(cohort) <= there
        wanted = drawn.asked(min(selector.count, len(there)))
        assert len(cohort) <= wanted
        if "count" in memory and wanted < len(there):
            times = column(memory, "count", np.arange(15), 0.0)
            too_often = {k for k in range(15) if times[k] > (selector.most_rounds or 99)}
            if selector.most_barred == 1 and there - too_often:
                assert not set(cohort) & too_often
        clients = tuple(
            ClientReport(
                client,
                data.draw(FATES),
                samples=samples[client],
                metrics={"rms_loss": data.draw(st.floats(0, 1e200))},
                times=Times(0.0, ended_s=data.draw(st.floats(0, 1e6))),
            )
            for client in cohort
        )
        report = RoundReport(round, 0.1, len(clients), clients, Traffic())
        learned = selector.on_round_end(memory, report)
        np.testing.assert_equal(dict(memory), before)
        np.testing.assert_equal(
            dict(learned), dict(replace(selector).on_round_end(copy.deepcopy(before), report))
        )
        for name in ("reward", "round", "count", "told_s", "took_s"):
            if name in learned:
                assert np.isfinite(learned[name]["numbers"]).all()
        memory = learned


GIVEN = json.loads((Path(__file__).parent / "oort_reference.json").read_text())
SAMPLES, TOOK_S, ASKED = GIVEN["samples"], GIVEN["took_s"], GIVEN["asked"]
OORT = Oort(count=ASKED, **GIVEN["settings"])
CLOSE = pytest.approx


def report_of(script: dict[str, Any]) -> RoundReport:
    """Return the script's round; who was late is declined, lost or rejected in turn."""
    came = {int(client): loss for client, loss in script["came"].items()}
    told = [
        ClientReport(
            client,
            "accepted",
            samples=SAMPLES[client],
            metrics={"loss": 99.0, "rms_loss": loss},
            times=Times(1.0, ended_s=1.0 + TOOK_S[client]),
        )
        for client, loss in came.items()
    ]
    fates = ("declined", "lost", "rejected")
    late = [
        # It was given up before it would have ended: how long it takes is known from before.
        ClientReport(client, fates[script["round"] % 3], times=Times(0.0, ended_s=1.0))
        for client in script["late"]
    ]
    clients = (*told, *late)
    return RoundReport(script["round"], 0.1, len(clients), clients, Traffic())


def the_run() -> list[tuple[dict[str, Any], OpenRound, Standing]]:
    """Return each round from the second: the script, the round, our numbers."""
    memory: dict[str, Any] = with_numbers({}, TOLD, dict(enumerate(TOOK_S)))
    seen = []
    for script in GIVEN["rounds"]:
        if script["round"] > 1:
            round = scripted(script, memory)
            seen.append((script, round, OORT.standing(round, ASKED)))
        memory = dict(OORT.on_round_end(memory, report_of(script)))
    return seen


def scripted(script: dict[str, Any], memory: Mapping[str, Any], seed: int = 0) -> OpenRound:
    samples = {k: n for k, n in enumerate(SAMPLES) if k not in script["absent"]}
    return OpenRound(samples, number=script["round"], memory=memory, seed=seed)


RUN = the_run()
ROUNDS = pytest.mark.parametrize(
    ("script", "round", "standing"), RUN, ids=[str(one[0]["round"]) for one in RUN]
)


@ROUNDS
def test_the_scale_and_the_preferred_duration_are_theirs(script, round, standing) -> None:
    assert standing.scale.clip == CLOSE(script["clip"], rel=1e-9)
    assert standing.scale.least == CLOSE(script["least"], rel=1e-9)
    assert standing.scale.span == CLOSE(script["span"], rel=1e-9)
    assert standing.preferred_s == CLOSE(script["preferred_s"], rel=1e-9)


@ROUNDS
def test_as_many_are_explored_and_the_same_are_barred(script, round, standing) -> None:
    assert (standing.exploiting, standing.exploring) == (script["exploiting"], script["exploring"])
    assert standing.clients.tolist() == sorted(set(round.clients) - set(script["barred"]))


def test_the_pacer_moves_when_theirs_does_and_by_as_much() -> None:
    percentiles = [round.memory["percentile"] for _, round, _ in RUN]
    assert percentiles == [script["percentile"] for script, *_ in RUN]
    steps = {after - before for before, after in itertools.pairwise(percentiles)}
    assert steps == {-5.0, 0.0, 5.0}


@pytest.mark.parametrize(
    ("script", "standing"), [(one[0], one[2]) for one in RUN if "utility" in one[0]]
)
def test_utilities_and_candidates_are_theirs(script, standing) -> None:
    tried, clients = standing.tried, standing.clients
    ours = dict(zip(clients[tried].tolist(), standing.utility[tried].tolist(), strict=True))
    assert ours == CLOSE({int(k): x for k, x in script["utility"].items()}, rel=1e-9)
    utility, number = standing.utility[tried], standing.exploiting
    places = candidates_for(utility, number, OORT.cutoff, OORT.candidates)
    assert sorted(clients[tried][places].tolist()) == script["candidates"]
    promise = standing.promise[~tried]
    places = best(promise, int(OORT.new_candidates * standing.exploring))
    picked = zip(clients[~tried][places].tolist(), promise[places].tolist(), strict=True)
    assert dict(picked) == CLOSE({int(k): x for k, x in script["new"].items()}, rel=1e-9)


def test_the_cohort_is_drawn_from_their_candidates() -> None:
    for script, round, _ in RUN:
        if "utility" not in script:
            continue
        new = {int(client) for client in script["new"]}
        for seed in range(20):
            cohort = set(planned(OORT, scripted(script, round.memory, seed)))
            assert len(cohort & set(script["candidates"])) == script["exploiting"]
            assert len(cohort & new) == script["exploring"]
            assert len(cohort) == ASKED
