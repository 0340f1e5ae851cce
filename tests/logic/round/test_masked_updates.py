"""Masked updates and several questions in a phase, by a toy of secure aggregation."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from layers.logic import Hook, LogicError, Need, ServerSide, run_round
from layers.logic.aggregators.krum import Krum
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.median import Median
from layers.logic.algorithms.scaffold import Scaffold
from layers.logic.errors import PartFailed
from layers.logic.hooks.server_optimisers import FedAvgM
from tests.logic.memory_carrier import (
    InLanes,
    MemoryCarrier,
    a_logic,
    a_state,
    alone,
    lying,
    run_rounds,
)
from tests.logic.quadratic import bowls
from tests.logic.toy_of_masks import NO_KEY, SILENT, SecureSum, dequantised, quantised
from tests.logic.toys import Offered
from tests.logic.vector_files import vectors

CLIENTS = bowls(4, noise=0.2)
UPDATES: dict[int, np.ndarray] = {}


def secure(**settings: Any):
    return a_logic(alone(*CLIENTS), hooks=[SecureSum()], **settings)


def updates() -> dict[int, np.ndarray]:
    """The update of each client in round 1, as it is before the hook."""
    if not UPDATES:
        logic = a_logic(alone(*CLIENTS))
        peers = MemoryCarrier(logic, CLIENTS)
        peers.forge = lambda one: UPDATES.update({one.client: one.delta}) or [one]
        run_round(a_state(logic), peers, logic)
    return UPDATES


def mean_of(clients) -> np.ndarray:
    total = sum(quantised(updates()[client]) for client in clients)
    return (dequantised(total, len(clients)) / len(clients)).astype(np.float32)


@dataclass
class Silent(MemoryCarrier):
    """A client falls silent at a question: at the given number of all that are asked."""

    mute: tuple[tuple[int, int], ...] = ()

    def _ask(self, question, clients):
        number = len(self.asked) + 1
        self.lost = [one for one, at in self.mute if at == number]
        super()._ask(question, clients)
        self.lost = ()


def test_the_server_asks_twice_before_the_uploads_and_twice_after_them() -> None:
    logic = secure()
    peers = MemoryCarrier(logic, CLIENTS)
    state, report = run_round(a_state(logic), peers, logic)
    everybody = tuple(CLIENTS)
    asked = ["hooks cohort", "hooks cohort", "hooks returned", "hooks returned"]
    assert peers.asked == [(name, everybody) for name in asked]
    assert report.of("accepted") == everybody
    assert {one.peak for one in report.clients} == {0.0}, "how far it goes is not known"
    np.testing.assert_array_equal(state.weights, mean_of(everybody))
    later, _ = run_rounds(2, state, peers)
    assert later.round == 3


def test_a_server_optimiser_works_on_the_mean() -> None:
    for rate in (1.0, 0.5):
        logic = a_logic(alone(*CLIENTS), hooks=[SecureSum(), FedAvgM(rate, 0.0)])
        state, _ = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
        np.testing.assert_array_equal(state.weights, np.float32(rate) * mean_of(tuple(CLIENTS)))


@pytest.mark.parametrize("number", [1, 2])
def test_who_fails_a_question_before_the_uploads_gets_no_task(number) -> None:
    logic = secure()
    peers = Silent(logic, CLIENTS, mute=((2, number),))
    state, report = run_round(a_state(logic), peers, logic)
    assert sorted(task.client for task in peers.tasks) == [0, 1, 3]
    assert (report.of("accepted"), report.of("lost")) == ((0, 1, 3), (2,))
    np.testing.assert_array_equal(state.weights, mean_of((0, 1, 3)))


def test_a_client_whose_answer_is_no_key_gets_no_task() -> None:
    logic = secure()
    peers = MemoryCarrier(logic, CLIENTS)

    def forge(answer):
        slot = answer.slots["0:SecureSum"]
        if answer.client == 2 and "key" in slot:
            answer = replace(answer, slots={"0:SecureSum": {"key": "x"}})
        return [answer]

    peers.forge_answer = forge
    state, report = run_round(a_state(logic), peers, logic)
    assert sorted(task.client for task in peers.tasks) == [0, 1, 3]
    assert [one.reason for one in report.clients if one.client == 2] == [NO_KEY]
    np.testing.assert_array_equal(state.weights, mean_of((0, 1, 3)))


@pytest.mark.parametrize("number", [3, 4])
def test_who_fails_a_question_after_the_uploads_is_left_out_of_the_sum(number) -> None:
    logic = secure()
    peers = Silent(logic, CLIENTS, mute=((1, number),))
    state, report = run_round(a_state(logic), peers, logic)
    assert (report.of("accepted"), report.of("lost")) == ((0, 2, 3), (1,))
    (lost,) = [one for one in report.clients if one.client == 1]
    assert lost.reason == SILENT
    assert 1 not in state.last_accepted, "its memory is that before the round"
    assert [clients for _, clients in peers.asked][-1] == (0, 2, 3), "asked until it can be opened"
    np.testing.assert_array_equal(state.weights, mean_of((0, 2, 3)))


def test_a_client_that_is_lost_with_its_task_leaves_no_mask_in_the_sum() -> None:
    logic = secure()
    peers = MemoryCarrier(logic, CLIENTS)
    peers.forge = lambda update: [update] if update.client != 3 else []
    peers.deadline = 3
    state, report = run_round(a_state(logic), peers, logic)
    assert report.of("accepted") == (0, 1, 2)
    np.testing.assert_array_equal(state.weights, mean_of((0, 1, 2)))


def words(change: Callable[[np.ndarray], np.ndarray]):
    def forge(update):
        if update.client != 2:
            return [update]
        slot = update.slots["0:SecureSum"]
        return [replace(update, slots={"0:SecureSum": {"words": change(slot["words"])}})]

    return forge


@pytest.mark.parametrize(
    ("forge", "says"),
    [
        (words(lambda one: one | np.uint32(2**31)), "1073741824"),
        (words(lambda one: one[:-1]), "4 numbers"),
        (words(lambda one: one.astype(np.float32)), "32 bits"),
        (lying(2, slots={}), "32 bits"),
        (lying(2, delta=np.zeros(3, np.float32)), "can be read"),
    ],
)
def test_the_hook_checks_the_range_and_plain_values_are_rejected(forge, says) -> None:
    logic = secure()
    peers = MemoryCarrier(logic, CLIENTS, forge=forge)
    state, report = run_round(a_state(logic), peers, logic)
    assert (report.of("accepted"), report.of("rejected")) == ((0, 1, 3), (2,))
    (rejected,) = [one for one in report.clients if one.client == 2]
    assert says in rejected.reason
    np.testing.assert_array_equal(state.weights, mean_of((0, 1, 3)))


@dataclass(frozen=True)
class Peeks(Hook):
    """Its server side looks at each accepted update."""

    class Server(ServerSide):
        def on_accepted(self, update, context):
            raise AssertionError("nobody sees a single update")


@dataclass(frozen=True)
class Collects(Hook):
    requires = frozenset({Need.EACH_CLIENT})


@dataclass(frozen=True)
class Plain(SecureSum):
    provides = frozenset()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"aggregator": Krum(1), "min_updates": 4}, "SecureSum .* Krum"),
        ({"aggregator": Median()}, "SecureSum .* Median"),
        ({"aggregator": Mean("plan")}, "SecureSum"),
        ({"hooks": [SecureSum(), Peeks()]}, "SecureSum .* Peeks"),
        ({"hooks": [SecureSum(), Collects()]}, "SecureSum .* Collects"),
        ({"hooks": [SecureSum(), Scaffold(dense=True)]}, "SecureSum .* Scaffold"),
        ({"hooks": [Plain()]}, "ENCODES_UPDATE"),
    ],
)
def test_parts_that_look_at_single_updates_are_refused(settings, says) -> None:
    with pytest.raises(LogicError, match=says):
        a_logic(alone(*CLIENTS), **{"hooks": [SecureSum()], **settings})


@pytest.mark.parametrize("selector", [Offered(), InLanes(((0, 1), (2,), (3,)))])
def test_lanes_of_several_clients_and_offers_are_refused_in_the_round(selector) -> None:
    logic = a_logic(selector, hooks=[SecureSum()])
    peers = MemoryCarrier(logic, CLIENTS)
    with pytest.raises(LogicError, match=f"SecureSum .* {type(selector).__name__}"):
        run_round(a_state(logic), peers, logic)
    assert not peers.tasks


def test_a_sum_of_another_form_names_the_hook(monkeypatch) -> None:
    logic = secure()
    wrong = lambda *_: (np.zeros(3), np.zeros(1, np.float32))  # noqa: E731
    monkeypatch.setattr("tests.logic.toy_of_masks.SecureSum.Server.reveal", wrong)
    with pytest.raises(PartFailed, match=re.escape("float64 of shape (3,)")):
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)


def test_the_toy_has_the_numbers_of_the_vectors() -> None:
    found = vectors("secagg")
    for one in found["quantise"]:
        whole = quantised(np.array(one["values"]), one["clip"], one["bits"])
        assert whole.tolist() == one["nearest_even"]
    for one in found["protocol"]:
        if (one["clip"], one["bits"]) == (1.0, 16):
            whole = [quantised(np.array(one["values"][client])) for client in one["uploaded"]]
            total = sum(whole)
            assert total.tolist() == one["unmasked_sum"]
            found_sum = dequantised(total, len(whole))
            np.testing.assert_allclose(found_sum, one["dequantised_sum"], atol=1e-12)
