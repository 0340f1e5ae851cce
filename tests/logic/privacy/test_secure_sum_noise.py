"""Rounds of secure sums with noise: its size and freshness, what is refused, and who may lie."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from layers.logic import LogicError, Question, TooFewUpdates, run_round
from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.scaffold import Scaffold
from layers.logic.core.hook import Process
from layers.logic.core.preset import Preset
from layers.logic.core.privacy import Budget, Mechanism
from layers.logic.core.state import ServerState
from layers.logic.privacy.secure_sum import MaskedSum, SecureSum, _slot_of
from layers.logic.round.pipeline import answer_hooks
from layers.logic.secrets import Secret
from layers.logic.secure_sum.peer import Peer
from layers.logic.secure_sum.roster import Roster
from layers.logic.selectors.power_of_choice import PowerOfChoice
from layers.logic.selectors.uniform import Uniform
from tests.logic.memory_carrier import a_logic, a_state, same_bits
from tests.logic.privacy.test_secure_sum import (
    CONFIRMING,
    KEY,
    NUMBER,
    Lossy,
    processes,
)
from tests.logic.quadratic import bowls

SIZE = 400
CLIENTS = bowls(NUMBER, SIZE, noise=0.2)
CLIP, LEAST = 2.0, 6
FOR_ALL_BUT_ONE = math.sqrt(1 / (LEAST - 1))
"""The share of one client, as a multiple of the noise."""


def privacy(**given) -> SecureSum:
    settings = {"clip": CLIP, "noise": 1.0, "delta": 1e-3, "min_clients": LEAST}
    return SecureSum(**{**settings, **given})


def logic_of(preset: Preset | None = None, min_updates: int = 1, **given):
    preset = Preset(Uniform(count=NUMBER), Mean("uniform")) if preset is None else preset
    made = privacy(**given).applied(preset, NUMBER)
    parts = {"aggregator": made.aggregator, "hooks": made.hooks, "min_updates": min_updates}
    return a_logic(made.selector, SIZE, **parts)


def a_round(logic, masked: bool, **given) -> tuple[ServerState, Lossy]:
    peers = Lossy(logic, CLIENTS, processes=processes() if masked else {}, **given)
    return run_round(a_state(logic), peers, logic)[0], peers


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("weights", ["samples", "uniform"])
@pytest.mark.parametrize("no_upload", [(), (0, 4)])
def test_with_equal_noise_masked_and_simulated_rounds_end_in_the_same_bits(
    rounding, weights, no_upload, monkeypatch
) -> None:
    preset = Preset(Uniform(count=NUMBER), Mean(weights))
    logic = logic_of(preset, rounding=rounding)
    assert not same_bits(a_round(logic, True)[0].weights, a_round(logic, False)[0].weights)
    monkeypatch.setattr(MaskedSum.Client, "_draws", lambda self, context: context.secret("noise"))
    plain, masked = (a_round(logic, one, no_upload=no_upload)[0] for one in (False, True))
    assert same_bits(plain.weights, masked.weights)


def test_the_mean_has_the_clipped_updates_and_the_noise_of_all_that_came() -> None:
    def means(number: int, **given) -> np.ndarray:
        return np.array([a_round(logic_of(**given), True)[0].weights for _ in range(number)])

    sent: list[np.ndarray] = []
    plain = a_logic(Uniform(count=NUMBER), SIZE, aggregator=Mean("uniform"))
    peers = Lossy(plain, CLIENTS, forge=lambda one: sent.append(one.delta.astype(float)) or [one])
    run_round(a_state(plain), peers, plain)
    factors = [min(1, CLIP / float(np.linalg.norm(one))) for one in sent]
    assert min(factors) < 0.95 < max(factors)
    exact = np.mean([one * factor for one, factor in zip(sent, factors, strict=True)], 0)
    quiet = means(20, noise=0.01).mean(axis=0)
    np.testing.assert_allclose(quiet, exact, atol=5 * 0.01 * CLIP / NUMBER)
    off = (means(20) - exact) * NUMBER / CLIP
    size = math.sqrt(2 * off.size)
    assert off.std() == pytest.approx(FOR_ALL_BUT_ONE * math.sqrt(NUMBER), rel=5 / size + 0.01)
    assert np.abs(np.corrcoef(off) - np.eye(20)).max() < 6 / math.sqrt(SIZE)


def test_a_round_that_is_repeated_with_one_client_less_has_other_noise_of_all() -> None:
    """With the same noise, the two sums would differ by one client's update and its share."""
    logic, own = logic_of(), processes()
    sums = []
    for lost in ((), (3,)):
        peers = Lossy(logic, CLIENTS, processes=own, no_upload=lost)
        state, report = run_round(a_state(logic), peers, logic)
        sums.append(state.weights.astype(float) * len(report.of("accepted")) / CLIP)
    apart = (sums[0] - sums[1]).std()
    assert apart == pytest.approx(FOR_ALL_BUT_ONE * math.sqrt(2 * NUMBER - 1), rel=0.2)
    assert apart > 3 * FOR_ALL_BUT_ONE


class Twice(Lossy):
    """A server that sends each task twice, and then another one for the same sum."""

    def _train(self, task):
        first, again = super()._train(task), super()._train(task)
        assert first.slots[KEY]["words"].tobytes() == again.slots[KEY]["words"].tobytes()
        with pytest.raises(LogicError, match="twice, with other values"):
            super()._train(replace(task, weights=task.weights + 1))
        return again


def test_a_task_that_is_repeated_in_one_sum_has_the_same_noise_and_another_one_none() -> None:
    logic = logic_of()
    peers = Twice(logic, CLIENTS, processes=processes())
    _, report = run_round(a_state(logic), peers, logic)
    assert len(report.of("accepted")) == NUMBER


def test_a_server_that_shows_a_shorter_roster_gets_no_smaller_noise() -> None:
    """A client keeps the number of clients with which it has shared."""
    process, logic = Process(), logic_of(min_clients=4)
    memory: dict = {}

    def asked(number, slot):
        question = Question("hooks cohort", round=1, slots={KEY: slot}, number=number)
        return answer_hooks(0, question, logic, memory, None, process).slots[KEY]

    own = asked(1, {})
    public = {0: own["public"]}
    public |= {client: Peer(client, 1, "malicious").public for client in range(1, 60)}

    def roster(number: int) -> dict:
        shown = dict(list(public.items())[:number])
        return _slot_of(Roster(1, "malicious", shown, dict.fromkeys(shown, b""), 10))

    asked(2, roster(60))
    with pytest.raises(LogicError, match="twice, with other values"):
        asked(2, roster(10))
    assert memory["clients"] == 60


def test_a_sum_of_fewer_clients_than_the_noise_is_for_is_opened_by_nobody() -> None:
    logic = logic_of()
    alive = tuple(range(LEAST - 1))

    def asks(number, question, client):
        if number >= CONFIRMING:
            slot = {**question.slots[KEY], "survivors": np.array(alive)}
            return replace(question, slots={KEY: slot})
        return question

    peers = Lossy(logic, CLIENTS, processes=processes(), asks=asks)
    with pytest.raises(TooFewUpdates):
        run_round(a_state(logic), peers, logic)
    assert {peers.reasons[one] for one in alive} == {
        f"a sum of {len(alive)} clients, and {LEAST} are needed"
    }


def test_a_round_in_which_all_of_the_smallest_sum_may_be_corrupt_ends_with_the_reason() -> None:
    clients = bowls(60, SIZE)
    made = privacy(min_clients=3).applied(Preset(Uniform(count=60), Mean()), 60)
    logic = a_logic(made.selector, SIZE, aggregator=made.aggregator, hooks=made.hooks)
    with pytest.raises(TooFewUpdates) as failed:
        run_round(a_state(logic), Lossy(logic, clients), logic)
    reasons = {one.reason for one in failed.value.report.clients}
    assert len(reasons) == 1
    assert re.search("of 60 clients 3 may be in league .* min_clients", reasons.pop())


def test_what_epsilon_counts_is_the_noise_of_the_smallest_sum() -> None:
    made = privacy(epsilon=3.0)
    mechanism = made.mechanism(Preset(Uniform(), Mean()))
    assert mechanism == Mechanism(made.noise_of_clients, 1.0)
    assert made.noise_of_clients == pytest.approx(1.0, abs=1e-8)
    assert made.noise_of_clients < 1.0
    assert made.budget == Budget(1e-3, 3.0)
    assert SecureSum().budget is None


def test_a_client_that_adds_noise_answers_no_question_of_a_selector() -> None:
    (hook,) = logic_of().hooks
    secret = Secret.of_seed(0, "client", 0)
    assert hook.answered("times", 0, {"train_s": 1.0}, secret) == {}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"delta": None}, "delta"),
        ({"noise": None}, "noise"),
        ({"delta": 0.5}, r"1 / 9 clients, not 0\.5"),
        ({"noise": 0.01, "min_clients": 10**4}, "10000 clients"),
        ({"preset": Preset(Uniform(), Mean("uniform"), (Scaffold(),))}, "Scaffold sends more"),
        ({"preset": Preset(PowerOfChoice(), Mean("uniform"))}, "PowerOfChoice"),
        ({"min_updates": LEAST + 1}, f"min_updates is {LEAST + 1}, .* {LEAST}"),
    ],
)
def test_what_epsilon_would_not_count_is_refused(given, says) -> None:
    with pytest.raises(LogicError, match=says):
        logic_of(**given)
