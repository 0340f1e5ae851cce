"""Power-of-choice: who has a high loss takes part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import (
    ClientReport,
    OpenRound,
    RoundReport,
    Traffic,
    run_round,
)
from layers.logic.aggregators.mean import Mean
from layers.logic.core.selector import column, with_numbers
from layers.logic.seeds import generator
from layers.logic.selectors.draws import draw_weighted
from layers.logic.selectors.power_of_choice import PowerOfChoice
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, run_rounds
from tests.logic.quadratic import bowl
from tests.logic.toys import planned

PLAIN = Mean("uniform")


def far(number: int) -> dict:
    """Clients whose targets lie ever farther off: client k has the k-th lowest loss."""
    return {client: bowl([float(client + 1)] * 3) for client in range(number)}


# --- power of choice ------------------------------------------------------------------------


def test_the_candidates_with_the_highest_loss_of_the_model_take_part() -> None:
    logic = a_logic(PowerOfChoice(count=3, candidates=8), aggregator=PLAIN)
    peers = MemoryCarrier(logic, far(20))
    state = a_state(logic)
    for _ in range(3):
        state, report = run_round(state, peers, logic)
        question, candidates = peers.asked[-1]
        assert question == "loss"
        assert len(candidates) == 8
        away = {k: np.linalg.norm(peers.tasks[-1].weights - (k + 1)) for k in candidates}
        assert set(report.of("accepted")) == set(sorted(away, key=away.get)[-3:])
    assert len({candidates for _, candidates in peers.asked}) == 3, "each round draws its own"


def test_a_candidate_without_an_answer_or_with_nonsense_for_one_is_not_taken() -> None:
    logic = a_logic(PowerOfChoice(count=2, candidates=6), aggregator=PLAIN)

    def forged(told):
        if told.client == 5:
            return []
        if told.client == 4:
            return [replace(told, values={"loss": float("inf")})]
        return [replace(told, values={"loss": "high"})] if told.client == 3 else [told]

    peers = MemoryCarrier(logic, far(6), forge_answer=forged)
    _, report = run_round(a_state(logic), peers, logic)
    assert report.of("accepted") == (1, 2)


def test_reported_losses_are_asked_of_nobody_and_the_unknown_come_first() -> None:
    logic = a_logic(PowerOfChoice(count=2, candidates=6, loss="reported"), aggregator=PLAIN)
    peers = MemoryCarrier(logic, far(6))
    state, reports = run_rounds(3, a_state(logic), peers)
    assert peers.asked == []
    cohorts = [set(report.of("accepted")) for report in reports]
    assert set.union(*cohorts) == set(range(6)), "everybody before anybody twice"
    _, (last,) = run_rounds(1, state, peers)
    assert last.of("accepted") == (4, 5)


def test_the_last_losses_of_accepted_updates_are_kept() -> None:
    selector = PowerOfChoice(count=2, loss="reported")
    memory = with_numbers({}, "loss", {0: 5.0, 1: 6.0, 2: 7.0, 3: 8.0})
    clients = (
        ClientReport(0, "accepted", metrics={"loss": 1.0}),
        ClientReport(1, "rejected", metrics={"loss": 2.0}),
        ClientReport(2, "accepted", metrics={"accuracy": 0.5}),
        ClientReport(4, "accepted", metrics={"loss": 3.0}),
    )
    report = RoundReport(1, 0.1, len(clients), clients, Traffic())
    kept = column(selector.on_round_end(memory, report), "loss", np.arange(6), np.inf)
    assert kept.tolist() == [1.0, 6.0, 7.0, 8.0, 3.0, np.inf]
    assert replace(selector, loss="asked").on_round_end(memory, report) == memory


def test_candidates_are_drawn_by_size() -> None:
    selector = PowerOfChoice(count=1, candidates=1, loss="reported")
    rounds = [OpenRound({0: 1, 1: 1, 2: 998}, seed=seed) for seed in range(200)]
    assert [planned(selector, round) for round in rounds].count([2]) > 190


def test_there_are_candidates_in_reserve_for_those_that_are_asked_too_many() -> None:
    selector = PowerOfChoice(count=4, candidates=5, loss="reported")
    logic = a_logic(selector, over_select=2.0, aggregator=PLAIN)
    _, report = run_round(a_state(logic), MemoryCarrier(logic, far(20)), logic)
    assert (report.selected, len(report.of("accepted"))) == (8, 4)


def test_a_loss_is_asked_for_on_as_many_samples_as_are_set() -> None:
    asked = next(PowerOfChoice(count=1, samples=7).run(OpenRound(dict.fromkeys(range(3), 5))))
    assert (asked.question.name, asked.question.samples) == ("loss", 7)


# --- what selection by loss stands on -------------------------------------------------------


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
