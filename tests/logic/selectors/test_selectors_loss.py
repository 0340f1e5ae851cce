"""Power-of-choice and Oort: who has a high loss takes part, and Oort's are fast besides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import (
    ClientReport,
    LogicError,
    Population,
    Question,
    RoundReport,
    Traffic,
    run_round,
)
from layers.logic.core.report import Times
from layers.logic.core.survey import answer_survey
from layers.logic.seeds import generator
from layers.logic.selectors.client_values import column, with_numbers
from layers.logic.selectors.oort import Oort
from layers.logic.selectors.power_of_choice import PowerOfChoice
from layers.logic.selectors.weighted import draw_weighted
from tests.logic.memory_peers import MemoryPeers, a_logic, a_state, run_rounds
from tests.logic.quadratic import Measured, QuadraticEngine, bowl
from tests.logic.timed_peers import TimedPeers


def far(number: int) -> dict:
    """Clients whose targets lie ever farther off: client k has the k-th lowest loss."""
    return {client: bowl([float(client + 1)] * 3) for client in range(number)}


def drawn(selector, population: Population, memory=None, round: int = 1, seed: int = 0):
    rng = generator(seed, "select", round)
    return selector.select(population, memory or {}, round, rng)


def a_report(round: int, losses: dict[int, float], took_s: dict[int, float] | None = None):
    clients = tuple(
        ClientReport(
            client,
            "accepted",
            samples=10,
            metrics={"loss": loss},
            times=Times(1.0, ended_s=1.0 + took_s[client]) if took_s else None,
        )
        for client, loss in losses.items()
    )
    return RoundReport(round, 0.1, len(clients), clients, Traffic())


# --- power of choice ------------------------------------------------------------------------


def test_the_candidates_with_the_highest_loss_of_the_model_take_part() -> None:
    logic = a_logic(PowerOfChoice(count=3, candidates=8))
    peers = MemoryPeers(logic, far(20))
    state = a_state(logic)
    for _ in range(3):
        state, report = run_round(state, peers, logic)
        question, candidates = peers.asked[-1]
        assert question == "loss"
        assert len(candidates) == 8
        away = {k: np.linalg.norm(peers.tasks[-1].weights - (k + 1)) for k in candidates}
        assert set(report.of("accepted")) == set(sorted(away, key=away.get)[-3:])
    assert len({candidates for _, candidates in peers.asked}) == 3, "each round draws its own"


def test_all_clients_as_candidates_leave_nothing_to_chance() -> None:
    logic = a_logic(PowerOfChoice(count=2, candidates=20))
    _, report = run_round(a_state(logic), MemoryPeers(logic, far(20)), logic)
    assert report.of("accepted") == (18, 19)


def test_a_candidate_without_an_answer_or_with_nonsense_for_one_is_not_taken() -> None:
    logic = a_logic(PowerOfChoice(count=2, candidates=6))

    def forged(told):
        if told.client == 5:
            return []
        if told.client == 4:
            return [replace(told, values={"loss": float("inf")})]
        return [replace(told, values={"loss": "high"})] if told.client == 3 else [told]

    peers = MemoryPeers(logic, far(6), forge_answer=forged)
    _, report = run_round(a_state(logic), peers, logic)
    assert report.of("accepted") == (1, 2)


def test_reported_losses_are_asked_of_nobody_and_the_unknown_come_first() -> None:
    logic = a_logic(PowerOfChoice(count=2, candidates=6, loss="reported"))
    peers = MemoryPeers(logic, far(6))
    state, reports = run_rounds(3, a_state(logic), peers)
    assert peers.asked == []
    cohorts = [set(report.of("accepted")) for report in reports]
    assert set.union(*cohorts) == set(range(6)), "everybody before anybody twice"
    _, (last,) = run_rounds(1, state, peers)
    assert last.of("accepted") == (4, 5)


def test_candidates_are_drawn_by_size() -> None:
    population = Population({0: 1, 1: 1, 2: 998})
    chosen = PowerOfChoice(count=1, candidates=1, loss="reported")
    times = [drawn(chosen, population, seed=seed).clients for seed in range(200)]
    assert times.count((2,)) > 190


def test_there_are_candidates_in_reserve_for_those_that_are_asked_too_many() -> None:
    population = Population(dict.fromkeys(range(20), 5), over_select=2.0)
    plan = drawn(PowerOfChoice(count=4, candidates=5, loss="reported"), population)
    assert (len(plan.lanes), plan.enough) == (8, 4)


def test_a_loss_is_measured_on_some_samples_that_each_round_draws() -> None:
    class Engine(QuadraticEngine):
        def evaluate(self, samples):
            return Measured(float(samples.x.sum()), 0.0, len(samples))

    class Rows:
        x, y = np.arange(100.0), np.zeros(100, np.int64)

        def __len__(self) -> int:
            return 100

    def loss(samples: int, round: int) -> float:
        model = {"weights": np.zeros(3), "buffers": np.zeros(1)}
        question = Question("loss", samples=samples, round=round, **model)
        return answer_survey(0, question, Engine(3), Rows()).values["loss"]

    assert loss(0, 1) == loss(100, 1) == loss(101, 1) == sum(range(100))
    assert loss(10, 1) == loss(10, 1) != loss(10, 2)
    population = Population(dict.fromkeys(range(3), 5))
    ((question, _),) = PowerOfChoice(count=1, samples=7).inquire(
        population, {}, 1, generator(0, "inquire", 1)
    )
    assert (question.name, question.samples) == ("loss", 7)


# --- Oort -----------------------------------------------------------------------------------

EXPLOIT = Oort(count=2, exploration=0.0, least_exploration=0.0)


def seen(losses: dict[int, float], took_s: dict[int, float] | None = None, **settings):
    """Return an Oort that has seen these clients, and what it remembers."""
    selector = replace(EXPLOIT, **settings)
    return selector, selector.on_round_end({}, a_report(1, losses, took_s))


def chosen_of(selector, memory, population, rounds=range(2, 40)) -> list[tuple[int, ...]]:
    return [drawn(selector, population, memory, round).clients for round in rounds]


def test_who_never_took_part_is_explored_and_known_clients_fill_up() -> None:
    population = Population(dict.fromkeys(range(10), 5))
    selector, memory = seen({0: 1.0, 1: 1.0, 2: 1.0}, count=4, exploration=0.5)
    cohorts = [set(c) for c in chosen_of(selector, memory, population, range(2, 3))]
    assert all(len(cohort & {0, 1, 2}) == 2 for cohort in cohorts)
    everybody = dict.fromkeys(range(10), 1.0)
    selector, memory = seen(everybody, count=4, exploration=1.0)
    assert len(drawn(selector, population, memory, 2).clients) == 4
    assert len(drawn(replace(selector, exploration=0.0), population, {}, 1).clients) == 4


def test_exploration_falls_to_its_least() -> None:
    population = Population(dict.fromkeys(range(1000), 5))
    selector, memory = seen(dict.fromkeys(range(500), 1.0), count=100, exploration=0.9)
    selector = replace(selector, least_exploration=0.2)
    new = {
        round: sum(client >= 500 for client in drawn(selector, population, memory, round).clients)
        for round in (2, 11, 500)
    }
    assert new == {2: 88, 11: 74, 500: 20}


def test_a_high_loss_is_drawn_and_a_low_one_is_not() -> None:
    population = Population(dict.fromkeys(range(6), 5))
    selector, memory = seen({0: 0.1, 1: 0.1, 2: 0.1, 3: 0.1, 4: 5.0, 5: 5.0})
    assert set(chosen_of(selector, memory, population, range(2, 4))) == {(4, 5)}


def test_who_was_long_not_seen_comes_back() -> None:
    population = Population(dict.fromkeys(range(3), 5))
    selector, memory = seen({0: 1.0, 1: 1.0, 2: 0.9}, count=1)
    for round in range(2, 2001):
        memory = selector.on_round_end(memory, a_report(round, {0: 1.0, 1: 1.0}))
    assert set(chosen_of(selector, memory, population, range(2001, 2010))) == {(2,)}


def test_the_slow_have_less_utility_and_no_penalty_leaves_them_all_of_it() -> None:
    population = Population(dict.fromkeys(range(4), 5))
    took_s = {0: 1.0, 1: 1.0, 2: 50.0, 3: 50.0}
    losses = {0: 1.0, 1: 1.0, 2: 2.0, 3: 2.0}
    selector, memory = seen(losses, took_s, preferred_s=10.0)
    assert set(chosen_of(selector, memory, population)) == {(0, 1)}
    timely = replace(population, deadline_s=10.0)
    by_deadline = replace(selector, preferred_s=None)
    assert set(chosen_of(by_deadline, memory, timely)) == {(0, 1)}
    assert set(chosen_of(by_deadline, memory, population)) == {(2, 3)}
    assert set(chosen_of(replace(selector, alpha=0.0), memory, population)) == {(2, 3)}


def test_the_pacer_gives_more_time_when_less_is_gained() -> None:
    selector = Oort(count=1, preferred_s=10.0, pacer_s=5.0, window=2)
    preferred, memory = [], {}
    for round, loss in enumerate([9.0, 9.0, 1.0, 1.0, 1.0, 1.0], start=1):
        memory = selector.on_round_end(memory, a_report(round, {0: loss}))
        preferred.append(memory["preferred_s"])
    assert preferred == [10.0, 10.0, 10.0, 15.0, 15.0, 15.0]
    assert memory["achieved"].size == 4


def test_how_long_clients_took_comes_from_the_clock_of_the_round() -> None:
    logic = a_logic(EXPLOIT, deadline_s=1000.0)
    train_s = {0: 5.0, 1: 6.0, 2: 7.0, 3: 8.0}
    upload_s = dict.fromkeys(range(4), 2.0)
    peers = TimedPeers(logic, far(4), train_s=train_s, upload_s=upload_s)
    state, report = run_round(a_state(logic), peers, logic)
    kept = state.memory["selector"]["took_s"]
    expected = {client: train_s[client] + 2.0 for client in report.of("accepted")}
    # One upload at a time: the second waits for the first.
    first, second = sorted(expected)
    if expected[second] - expected[first] < 2.0:
        expected[second] = expected[first] + 2.0
    assert dict(zip(kept["clients"].tolist(), kept["numbers"].tolist(), strict=True)) == expected


# --- what both stand on ---------------------------------------------------------------------


@given(
    first=st.dictionaries(st.integers(0, 30), st.floats(-5, 5)),
    second=st.dictionaries(st.integers(0, 30), st.floats(-5, 5)),
)
def test_numbers_by_client_are_those_that_were_last_given(first, second) -> None:
    memory = with_numbers(with_numbers({"other": 1}, "loss", first), "loss", second)
    both = {**first, **second}
    clients = np.arange(31)
    expected = [both.get(client, 99.0) for client in range(31)]
    assert column(memory, "loss", clients, 99.0).tolist() == expected
    assert memory["other"] == 1


def test_weighted_draws_are_in_proportion_and_without_replacement() -> None:
    weights = np.array([1.0, 2.0, 0.0, 5.0])
    firsts = np.zeros(4)
    for seed in range(4000):
        places = draw_weighted(generator(seed, "test"), weights, 4)
        assert sorted(places.tolist()) == [0, 1, 2, 3]
        assert places[-1] == 2, "what weighs nothing comes last"
        firsts[places[0]] += 1
    assert firsts / 4000 == pytest.approx(weights / 8, abs=0.03)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: PowerOfChoice(candidates=0), "candidates"),
        (lambda: PowerOfChoice(count=5, candidates=4), "candidates"),
        (lambda: PowerOfChoice(samples=-1), "samples"),
        (lambda: Oort(exploration=1.1), "exploration"),
        (lambda: Oort(cutoff=0.0), "cutoff"),
        (lambda: Oort(alpha=-1.0), "alpha"),
        (lambda: Oort(preferred_s=0.0), "preferred_s"),
        (lambda: Oort(pacer_s=1.0), "preferred_s"),
        (lambda: Oort(window=0), "window"),
    ],
)
def test_settings_that_cannot_be_are_refused(make, said) -> None:
    with pytest.raises(LogicError, match=said):
        make()
