"""Rounds with secure sums: with masks or, in a simulation, without, they end in the same bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from layers.logic import (
    Answer,
    LogicError,
    Question,
    TooFewUpdates,
    run_round,
)
from layers.logic.aggregators.fedfv import FedFV
from layers.logic.aggregators.fednova import FedNova
from layers.logic.aggregators.krum import Krum
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.median import Median
from layers.logic.algorithms.asynchronous import Concurrent
from layers.logic.algorithms.csfedavg import CsFedAvg, Divergence
from layers.logic.algorithms.fedsso import FedSSO
from layers.logic.algorithms.knapsack import OnlineKP
from layers.logic.algorithms.oort import Oort
from layers.logic.algorithms.scaffold import Scaffold
from layers.logic.core.hook import Process
from layers.logic.core.preset import Preset
from layers.logic.hooks.compressors import Quantise, Stc
from layers.logic.hooks.local_gradients import FedProx
from layers.logic.hooks.server_optimisers import FedAdam, FedAvgM
from layers.logic.hooks.stragglers import Stragglers
from layers.logic.privacy.secure_sum import (
    OTHER_TASK,
    UNREADABLE,
    MaskedSum,
    SecureSum,
    _slot_of,
)
from layers.logic.round.pipeline import answer_hooks
from layers.logic.secrets import Secret
from layers.logic.secure_sum.peer import Peer
from layers.logic.secure_sum.roster import Roster
from layers.logic.secure_sum.whole_numbers import dequantised, quantised
from layers.logic.selectors.power_of_choice import PowerOfChoice
from layers.logic.selectors.uniform import Uniform
from tests.logic.memory_carrier import (
    MemoryCarrier,
    a_logic,
    a_state,
    lying,
    run_rounds,
    same_bits,
)
from tests.logic.quadratic import bowls

NUMBER = 9
CLIENTS = bowls(NUMBER, noise=0.2)
EVERYBODY = tuple(range(NUMBER))
KEY = "0:MaskedSum"
OTHERS = "other keys than those"
TASK, KEYS, SHARES, CONFIRMING, OPENING = range(5)
"""The steps of a round: the task, and the numbers of its questions."""


def private(preset: Preset | None = None, deadline_s: float | None = None, **settings):
    preset = Preset(Uniform(count=NUMBER), Mean()) if preset is None else preset
    made = SecureSum(**{"clip": 2.0, **settings}).applied(preset, NUMBER)
    parts = {"aggregator": made.aggregator, "hooks": made.hooks}
    return a_logic(made.selector, deadline_s=deadline_s, **parts)


Asks = Callable[[int, Question, int], Question | None]


@dataclass
class Lossy(MemoryCarrier):
    """Clients are lost at steps of a test's choice, and a server asks what the test wants.

    Attributes:
        dead: the clients that are lost from a question on, by its number in the round.
        no_upload: the clients that are lost with their task.
        asks: the question that a client gets, by its number in the round; None: it gets none.
    """

    dead: dict[int, tuple[int, ...]] | None = None
    no_upload: tuple[int, ...] = ()
    asks: Asks = lambda number, question, client: question

    def _ask(self, question, clients):
        self.number = question.number + (2 if question.name == "hooks returned" else 0)
        dead = {} if self.dead is None else self.dead
        self.lost = [one for number in dead if number <= self.number for one in dead[number]]
        super()._ask(question, clients)
        self.lost = ()

    def _answer_of(self, question, client):
        asked = self.asks(self.number, question, client)
        if asked is None:
            raise LogicError("it is asked nothing")
        return super()._answer_of(asked, client)

    def _work(self):
        item = min(self._queue, key=lambda item: self._turn(item.client))
        if item.client in self.no_upload:
            self.lost = (item.client,)
        found = list(super()._work())
        self.lost = ()
        return found


def processes(number: int = NUMBER) -> dict[int, Process]:
    return {client: Process() for client in range(number)}


def a_round(masked: bool, logic=None, **given):
    logic = private() if logic is None else logic
    peers = Lossy(logic, CLIENTS, processes=processes() if masked else {}, **given)
    state, report = run_round(a_state(logic, [0.5, -1.0, 0.25]), peers, logic)
    return state, report, peers


def updates(logic=None) -> dict[int, np.ndarray]:
    """The update of each client as it is before the hook."""
    found = {}
    plain = a_logic(Uniform(count=NUMBER))
    peers = MemoryCarrier(plain, CLIENTS)
    peers.forge = lambda one: found.update({one.client: one.delta}) or [one]
    run_round(a_state(plain, [0.5, -1.0, 0.25]), peers, plain)
    return found


def mean_of(clients, by_samples: bool = True, of=EVERYBODY) -> np.ndarray:
    """The mean by the definition: whole numbers of weighted values, and their exact sum.

    The weights are shares of the most samples of all clients with keys.
    """
    most = max(CLIENTS[one].n for one in of)
    parts = {one: CLIENTS[one].n / most if by_samples else 1.0 for one in clients}
    whole = sum(
        quantised(updates()[one].astype(float) * parts[one], 2.0).astype(int) for one in parts
    )
    return (dequantised(whole, len(parts), 2.0) / sum(parts.values())).astype(np.float32)


@pytest.mark.parametrize("server", ["malicious", "honest"])
@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_masked_and_simulated_rounds_end_in_the_exact_mean_of_whole_numbers(
    weights, server
) -> None:
    logic = private(Preset(Uniform(count=NUMBER), Mean(weights)), server=server)
    plain, report, seen = a_round(False, logic)
    masked, other, peers = a_round(True, logic)
    assert same_bits(plain.weights, masked.weights)
    assert same_bits(plain.buffers, masked.buffers)
    start = np.array([0.5, -1.0, 0.25], np.float32)
    np.testing.assert_array_equal(masked.weights, start + mean_of(EVERYBODY, weights == "samples"))
    assert report.of("accepted") == other.of("accepted") == EVERYBODY
    assert peers.asked == seen.asked
    after = 1 if server == "honest" else 2
    assert [name for name, _ in peers.asked] == ["hooks cohort"] * 2 + ["hooks returned"] * after
    assert not peers.reasons


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(
    ("given", "counted"),
    [
        ({"dead": {KEYS: (0, 4, 8)}}, (1, 2, 3, 5, 6, 7)),
        ({"dead": {SHARES: (0, 4, 8)}}, (1, 2, 3, 5, 6, 7)),
        ({"no_upload": (0, 4, 8)}, (1, 2, 3, 5, 6, 7)),
        ({"dead": {CONFIRMING: (0, 4, 8)}}, EVERYBODY),
        ({"dead": {OPENING: (0, 4, 8)}}, EVERYBODY),
        (
            {"dead": {KEYS: (0,), SHARES: (3,), OPENING: (7,)}, "no_upload": (5,)},
            (1, 2, 4, 6, 7, 8),
        ),
    ],
)
def test_a_third_of_the_clients_is_lost_in_each_phase(given, counted, masked) -> None:
    state, report, peers = a_round(masked, **given)
    assert report.of("accepted") == counted
    unasked = {one for number in (KEYS, SHARES) for one in given.get("dead", {}).get(number, ())}
    assert not unasked & {task.client for task in peers.tasks}
    start = np.array([0.5, -1.0, 0.25], np.float32)
    of = [one for one in EVERYBODY if one not in given.get("dead", {}).get(KEYS, ())]
    np.testing.assert_array_equal(state.weights, start + mean_of(counted, of=of))


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"dead": {KEYS: tuple(range(7))}}, "a sum needs 3 clients"),
        ({"dead": {SHARES: tuple(range(7))}}, "a sum needs 3 clients"),
        ({"no_upload": (0, 1, 2, 3, 4)}, "[34] clients can open .* 5 are needed"),
        ({"dead": {CONFIRMING: (0, 1, 2, 3, 4)}}, "clients can open .* 5 are needed"),
        ({"dead": {OPENING: (0, 1, 2, 3, 4)}}, "clients can open .* 5 are needed"),
        ({"dead": {CONFIRMING: EVERYBODY}}, "left to open"),
    ],
)
def test_with_fewer_than_the_threshold_left_the_round_does_not_count_and_the_next_one_does(
    given, why, masked
) -> None:
    logic = private()
    peers = Lossy(logic, CLIENTS, processes=processes() if masked else {}, **given)
    before = a_state(logic)
    with pytest.raises(TooFewUpdates) as failed:
        run_round(before, peers, logic)
    assert "\n" not in str(failed.value)
    assert any(re.search(why, one.reason) for one in failed.value.report.clients)
    assert not before.weights.any()
    peers.dead, peers.no_upload = {}, ()
    state, report = run_round(before, peers, logic)
    assert (state.round, report.of("accepted")) == (1, EVERYBODY)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(
    "given", [{"dead": {KEYS: (0, 1)}}, {"dead": {SHARES: (0, 1)}}, {"no_upload": (0, 1)}]
)
def test_a_sum_of_fewer_clients_than_min_clients_is_not_opened(given, masked) -> None:
    logic = private(min_clients=8)
    peers = Lossy(logic, CLIENTS, processes=processes() if masked else {}, **given)
    with pytest.raises(TooFewUpdates) as failed:
        run_round(a_state(logic), peers, logic)
    assert any("a sum needs 8 clients" in one.reason for one in failed.value.report.clients)
    assert run_round(a_state(logic), Lossy(logic, CLIENTS, no_upload=(3,)), logic)


def test_several_rounds_with_a_server_optimiser_and_a_proximal_term() -> None:
    for hooks in ((FedAvgM(0.5, 0.9),), (FedAdam(),), (FedProx(),), ()):
        logic = private(Preset(Uniform(count=7), Mean(), hooks))
        ends = [
            run_rounds(3, a_state(logic), MemoryCarrier(logic, CLIENTS, processes=given))[0]
            for given in (processes(), {})
        ]
        assert same_bits(ends[0].weights, ends[1].weights)
        assert ends[0].weights.any()


def test_the_variates_of_scaffold_are_a_second_sum() -> None:
    near = {}
    for given in (processes(), {}, None):
        preset = Preset(Uniform(count=NUMBER), Mean("uniform"), (Scaffold(),))
        logic = private(preset, sums_clip=4.0)
        if given is None:
            logic = a_logic(preset.selector, aggregator=preset.aggregator, hooks=preset.hooks)
        peers = MemoryCarrier(logic, CLIENTS, processes=given or {})
        state, _ = run_rounds(4, a_state(logic), peers)
        near[str(given and 1)] = state
    masked, plain, exact = near.values()
    assert same_bits(masked.weights, plain.weights)
    kept = [one.memory["0:Scaffold"] for one in (masked, plain, exact)]
    assert same_bits(kept[0]["sum"], kept[1]["sum"])
    np.testing.assert_array_equal(kept[0]["senders"], EVERYBODY)
    np.testing.assert_allclose(masked.weights, exact.weights, atol=1e-3)
    np.testing.assert_allclose(kept[0]["sum"], kept[2]["sum"], atol=1e-2)
    assert np.abs(kept[2]["sum"]).max() > 0.1


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_a_server_optimiser_works_on_the_mean(rate) -> None:
    logic = private(Preset(Uniform(count=NUMBER), Mean(), (FedAvgM(rate, 0.0),)))
    state, _, _ = a_round(True, logic)
    start = np.array([0.5, -1.0, 0.25], np.float32)
    moved = np.float32(rate) * mean_of(EVERYBODY)
    np.testing.assert_allclose(state.weights, start + moved, rtol=0, atol=6e-8)  # one rounding


def test_stochastic_rounding_draws_the_same_in_simulation_and_deployment() -> None:
    logic = private(rounding="stochastic")
    plain, masked = (a_round(one, logic)[0] for one in (False, True))
    nearest = a_round(False)[0]
    assert same_bits(plain.weights, masked.weights)
    assert not same_bits(plain.weights, nearest.weights)


def test_a_graph_of_neighbours_beyond_100_clients() -> None:
    clients = bowls(110, noise=0.2)
    preset = SecureSum().applied(Preset(Uniform(count=110), Mean()), 110)
    logic = a_logic(preset.selector, hooks=preset.hooks)
    ends = [
        run_round(a_state(logic), Lossy(logic, clients, processes=given, no_upload=(3, 50)), logic)
        for given in (processes(110), {})
    ]
    assert same_bits(ends[0][0].weights, ends[1][0].weights)
    assert len(ends[0][1].of("accepted")) == 108


# --- what clients send is not what the protocol says -------------------------------------------


def forged_answers(number: int, client: int, **values):
    """Change a client's answer to one of the questions."""

    def forge(answer: Answer):
        order = answer.number + (2 if answer.question == "hooks returned" else 0)
        if answer.client != client or order != number:
            return [answer]
        return [replace(answer, slots={KEY: {**answer.slots[KEY], **values}})]

    return forge


@pytest.mark.parametrize(
    ("number", "values", "says"),
    [
        (KEYS, {"public": b"short"}, OTHERS),
        (KEYS, {"public": bytes(128)}, OTHERS),
        (KEYS, {"public": 3.0}, OTHERS),
        (KEYS, {"proof": "x"}, OTHERS),
        (KEYS, {"proof": bytes(9000)}, OTHERS),
        (SHARES, {"sealed": b"x"}, "sealed"),
        (SHARES, {"sealed": None}, "sealed"),
        (SHARES, {"refused": np.zeros(2)}, "refused"),
        (SHARES, {"refused": np.array([-1])}, "refused"),
    ],
)
def test_a_client_whose_answer_has_another_form_gets_no_task(number, values, says) -> None:
    state, report, peers = a_round(True, forge_answer=forged_answers(number, 2, **values))
    others = tuple(one for one in EVERYBODY if one != 2)
    assert report.of("accepted") == others
    (out,) = [one for one in report.clients if one.client == 2]
    assert says in (out.reason if number == SHARES else peers.reasons[2])
    start = np.array([0.5, -1.0, 0.25], np.float32)
    of = others if number == KEYS else EVERYBODY
    np.testing.assert_array_equal(state.weights, start + mean_of(others, of=of))


def test_a_client_that_publishes_the_key_of_another_one_is_alone_with_it() -> None:
    stolen: dict[int, bytes] = {}

    def forge(answer: Answer):
        if answer.number == 1 and answer.question == "hooks cohort":
            stolen.setdefault(answer.client, answer.slots[KEY]["public"])
            if answer.client == 2:
                return [replace(answer, slots={KEY: {"public": stolen[1], "proof": b""}})]
        return [answer]

    _, report, peers = a_round(True, forge_answer=forge)
    assert report.of("accepted") == tuple(one for one in EVERYBODY if one != 2)
    assert "other keys" in peers.reasons[2]


def test_a_client_that_seals_rubbish_is_left_out_and_the_others_go_on() -> None:
    sealed = bytes(82 * (NUMBER - 1))
    state, report, _ = a_round(True, forge_answer=forged_answers(SHARES, 2, sealed=sealed))
    others = tuple(one for one in EVERYBODY if one != 2)
    assert report.of("accepted") == others
    (out,) = [one for one in report.clients if one.client == 2]
    assert out.reason == UNREADABLE
    assert 2 not in state.last_accepted, "its memory is that before the round"
    start = np.array([0.5, -1.0, 0.25], np.float32)
    np.testing.assert_array_equal(state.weights, start + mean_of(others))


def test_a_client_that_refuses_others_or_tells_wrong_shares_changes_nothing_for_them() -> None:
    refusing = forged_answers(SHARES, 2, refused=np.array([3]))
    wrong = forged_answers(OPENING, 2, told=bytes([9]) * (33 * (NUMBER - 1)))
    missing = forged_answers(OPENING, 2, told=b"")
    unsigned = forged_answers(CONFIRMING, 2, signature=bytes(64))
    start = np.array([0.5, -1.0, 0.25], np.float32)
    for forge in (wrong, missing, unsigned, refusing):
        state, report, _ = a_round(True, forge_answer=forge)
        assert 2 in report.of("accepted") or forge is refusing
        if forge is not refusing:
            np.testing.assert_array_equal(state.weights, start + mean_of(EVERYBODY))


def words(change):
    def forge(update):
        slot = update.slots[KEY]
        return [replace(update, slots={KEY: change(slot)})] if update.client == 2 else [update]

    return forge


@pytest.mark.parametrize(
    ("forge", "says"),
    [
        (words(lambda slot: {**slot, "words": slot["words"][:-1]}), "bytes"),
        (words(lambda slot: {**slot, "words": slot["words"].astype(np.float32)}), "bytes"),
        (words(lambda slot: {**slot, "unreadable": np.array([2])}), "sent it none"),
        (words(lambda slot: {**slot, "unreadable": np.array([77])}), "sent it none"),
        (words(lambda slot: {"words": slot["words"]}), "unreadable"),
        (words(lambda slot: {}), "bytes"),
        (lying(2, delta=np.zeros(3, np.float32)), "can be read"),
        (
            lambda one: [replace(one, metrics={"loss": 1.0})] if one.client == 2 else [one],
            "metrics",
        ),
    ],
)
def test_an_update_of_another_form_is_rejected_and_the_others_go_on(forge, says) -> None:
    state, report, _ = a_round(True, forge=forge)
    others = tuple(one for one in EVERYBODY if one != 2)
    assert (report.of("accepted"), report.of("rejected")) == (others, (2,))
    (out,) = [one for one in report.clients if one.client == 2]
    assert says in out.reason
    start = np.array([0.5, -1.0, 0.25], np.float32)
    np.testing.assert_array_equal(state.weights, start + mean_of(others))


# --- what cannot work under a sum --------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "says"),
    [
        (Preset(Uniform(), Krum(1)), "single ones"),
        (Preset(Uniform(), Median()), "single ones"),
        (Preset(Uniform(), FedFV()), "single ones"),
        (Preset(Uniform(), FedNova()), "single ones"),
        (Preset(Uniform(), Mean("plan")), "single ones"),
        (Preset(Uniform(), Mean(), (Stc(),)), "each encode the update"),
        (Preset(Uniform(), Mean(), (Quantise(),)), "each encode the update"),
        (Preset(Oort(), Mean("uniform")), "losses of single clients"),
        (Preset(PowerOfChoice(), Mean("uniform")), "each client tells of its data"),
        (Preset(PowerOfChoice(loss="reported"), Mean("uniform")), "each client tells of its data"),
        (Preset(FedSSO(), Mean()), "each client tells of its data"),
        (Preset(CsFedAvg(), Mean(), (Divergence(),)), "MaskedSum .* sum of the updates"),
        (Preset(OnlineKP(), Mean()), "each client tells of its data"),
        (Preset(Concurrent(), Mean()), "whole cohort"),
        (Preset(Uniform(), Mean(), (Stragglers(0.5),)), "server: honest"),
    ],
)
def test_parts_that_use_what_one_client_sends_are_refused_with_the_reason(preset, says) -> None:
    with pytest.raises(LogicError, match=says):
        private(preset, deadline_s=9.0 if isinstance(preset.selector, OnlineKP) else None)


def test_a_client_tells_nothing_of_its_data_whatever_the_server_asks() -> None:
    (hook,) = private().hooks
    told = {"histogram": np.ones(3)}
    secret = Secret.of_seed(0, "client", 0)
    assert hook.answered("labels", 3, told, secret) == {}
    assert hook.answered("evaluate", 3, told, secret) == {}
    assert hook.answered("times", 0, {"train_s": 1.0}, secret) == {"train_s": 1.0}


# --- a server that does not follow the protocol ------------------------------------------------


def told(question: Question, **values) -> Question:
    return replace(question, slots={KEY: {**question.slots[KEY], **values}})


def test_a_server_that_tells_some_that_a_client_dropped_out_opens_nothing() -> None:
    def asks(number, question, client):
        if number >= CONFIRMING and client >= 5:
            return told(question, survivors=np.arange(1, NUMBER))
        return question

    logic = private()
    peers = Lossy(logic, CLIENTS, processes=processes(), asks=asks)
    with pytest.raises(TooFewUpdates, match="clients can open"):
        run_round(a_state(logic), peers, logic)
    # Client 0 is in the first list, which five have signed, and its neighbours need five others.
    assert {one for one, why in peers.reasons.items() if "signed the same list" in why} == {
        *(0, 1, 2, 3, 4, 5, 6, 7, 8)
    }


class Unequal(Lossy):
    """All clients but 1 get a task that has no effect."""

    def _train(self, task):
        if task.client != 1:
            task = replace(task, training=replace(task.training, learning_rate=0.0))
        return super()._train(task)


def test_a_server_that_gives_others_a_task_without_effect_reads_nothing(monkeypatch) -> None:
    start = np.array([0.5, -1.0, 0.25], np.float32)
    logic, given = private(), {"processes": processes()}
    state, report = run_round(a_state(logic, start), Unequal(logic, CLIENTS, **given), logic)
    (out,) = [one for one in report.clients if one.client == 1]
    assert out.reason == OTHER_TASK
    alone = updates()[1] * CLIENTS[1].n / sum(one.n for one in CLIENTS.values())
    monkeypatch.setattr(MaskedSum.Server, "_of_other_tasks", lambda self, clients: {})
    for server in ("malicious", "honest"):  # which believes what it should not
        logic = private(server=server)
        state, _ = run_round(a_state(logic, start), Unequal(logic, CLIENTS, **given), logic)
        near = np.allclose(state.weights - start, alone, atol=1e-3)
        assert near is (server == "honest")


def test_a_server_that_tells_others_another_weight_cannot_open_the_sum_with_them() -> None:
    def asks(number, question, client):
        if number == SHARES and client != 1:
            return told(question, most=2**40)
        return question

    _, report, _ = a_round(True, asks=asks)
    assert 1 not in report.of("accepted"), "others cannot read what it has sealed"


def test_a_server_that_asks_for_both_shares_gets_one() -> None:
    def asks(number, question, client):
        if number == OPENING:
            return told(question, survivors=np.arange(1, NUMBER))
        return question

    logic = private()
    peers = Lossy(logic, CLIENTS, processes=processes(), asks=asks)
    with pytest.raises(TooFewUpdates, match="can open"):
        run_round(a_state(logic), peers, logic)
    assert set(peers.reasons) == set(EVERYBODY)
    for client, why in peers.reasons.items():
        assert ("twice" if client else "without client 0") in why


def test_a_server_that_shows_one_client_other_neighbours_leaves_it_alone() -> None:
    other = Peer(5, 1, "malicious").public

    def asks(number, question, client):
        if number == SHARES and client == 1:
            public = question.slots[KEY]["public"]
            return told(question, public=public[: 5 * 128] + other + public[6 * 128 :])
        return question

    state, report, peers = a_round(True, asks=asks)
    others = tuple(one for one in EVERYBODY if one != 1)
    assert report.of("accepted") == others
    assert "0 neighbours have sent shares that can be read" in peers.reasons[1]
    start = np.array([0.5, -1.0, 0.25], np.float32)
    np.testing.assert_array_equal(state.weights, start + mean_of(others))


def test_a_server_that_repeats_a_round_gets_new_keys_and_a_restarted_client_tells_nothing() -> None:
    logic = private()
    own = processes()
    peers = Lossy(logic, CLIENTS, processes=own)
    before = a_state(logic)
    run_round(before, peers, logic)
    first = own[0].kept["secure sum"].public
    run_round(before, peers, logic)
    assert own[0].kept["secure sum"].public != first
    peers.processes = processes()
    question = Question("hooks returned", round=1, slots={KEY: {"survivors": np.arange(NUMBER)}})
    with pytest.raises(LogicError, match="published no keys"):
        answer_hooks(0, question, logic, {}, None, peers.processes[0])


def test_no_secret_is_in_the_memory_that_a_client_writes() -> None:
    _, _, peers = a_round(True)
    for ledger in peers.ledgers.values():
        kept = ledger.tree()["within"]
        for memory in (kept["before"], kept["after"]):
            assert memory == {"clients": NUMBER, "most": max(one.n for one in CLIENTS.values())}


ANY = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.binary(max_size=300),
    st.text(max_size=5),
    st.lists(st.integers(-2, NUMBER + 1), max_size=9).map(lambda one: np.array(one, np.int64)),
    st.lists(st.floats(), max_size=3).map(np.array),
)
ENTRIES = {
    KEYS: ("public", "proof"),
    SHARES: ("sealed", "refused"),
    CONFIRMING: ("signature",),
    OPENING: ("told",),
    TASK: ("words", "unreadable", "task"),
}


@settings(max_examples=60, deadline=None)
@drawn(st.sampled_from([(step, name) for step in ENTRIES for name in ENTRIES[step]]), ANY)
def test_whatever_one_client_sends_the_others_sum_is_that_of_those_that_are_accepted(
    at, value
) -> None:
    step, name = at
    forged = {"forge_answer": forged_answers(step, 2, **{name: value})}
    if step == TASK:
        forged = {"forge": words(lambda slot: {**slot, name: value})}
    state, report, _ = a_round(True, **forged)
    accepted = report.of("accepted")
    assert set(accepted) >= set(EVERYBODY) - {2}
    of = accepted if step == KEYS else EVERYBODY
    start = np.array([0.5, -1.0, 0.25], np.float32)
    np.testing.assert_array_equal(state.weights, start + mean_of(accepted, of=of))


@settings(max_examples=100, deadline=None)
@drawn(
    st.sampled_from([SHARES, CONFIRMING, OPENING]),
    st.dictionaries(
        st.sampled_from(
            ["clients", "public", "proofs", "lengths", "most", "survivors", "signers", "signatures"]
        ),
        ANY,
        min_size=1,
    ),
)
def test_whatever_a_server_asks_a_client_answers_or_refuses_with_a_reason(step, values) -> None:
    process, logic = Process(), private()

    def asked(name, number, slot, memory):
        question = Question(name, round=1, slots={KEY: slot}, number=number)
        return answer_hooks(0, question, logic, memory, None, process).slots[KEY]

    memory: dict = {}
    peers = {client: Peer(client, 1, "malicious") for client in range(1, 5)}
    own = asked("hooks cohort", 1, {}, memory)
    public = {0: own["public"], **{client: peer.public for client, peer in peers.items()}}
    roster = Roster(1, "malicious", public, dict.fromkeys(public, b""), 10)
    slot = _slot_of(roster)
    with suppress(LogicError):
        if step == SHARES:
            asked("hooks cohort", 2, {**slot, **values}, memory)
        else:
            asked("hooks cohort", 2, slot, memory)
            number = 1 if step == CONFIRMING else 2
            asked("hooks returned", number, {"survivors": np.arange(5), **values}, memory)
