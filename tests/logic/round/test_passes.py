"""A plan of several passes goes through its lanes again and again before anything is aggregated."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from layers.logic import (
    ClientLedger,
    ClientLost,
    ClientState,
    LogicError,
    OpenRound,
    Selector,
    StateLost,
    TooFewUpdates,
    Training,
    Trait,
    Update,
    run_round,
)
from layers.logic.aggregators.median import Median
from layers.logic.core.state import NO_ROUND
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, run_rounds, same_bits
from tests.logic.quadratic import bowls
from tests.logic.rounded import Rounded
from tests.logic.toys import InLanes

CLIENTS = bowls(6, noise=0.2)
NAN = np.full(3, np.nan, np.float32)


def a_run(lanes, passes: int = 2, **peers):
    logic = a_logic(InLanes(lanes, passes), hooks=[Rounded()], training=Training(epochs=2), seed=3)
    return logic, MemoryCarrier(logic, CLIENTS, **peers)


def in_pass(number: int, client: int, change):
    """Return a forge that touches the update of this client in this pass."""

    def forge(update):
        mine = (update.client, update.pass_number) == (client, number)
        return change(update) if mine else [update]

    return forge


def test_a_lane_is_gone_through_again_from_where_its_last_client_ended() -> None:
    logic, clients = a_logic(InLanes(((2, 0),), 3)), bowls(6)
    peers = MemoryCarrier(logic, clients)
    state, report = run_round(a_state(logic, [1, 2, 3]), peers, logic)
    assert [task.client for task in peers.tasks] == [2, 0, 2, 0, 2, 0]
    assert [task.pass_number for task in peers.tasks] == [1, 1, 2, 2, 3, 3]
    weights = np.array([1, 2, 3], np.float32)
    for task in peers.tasks:  # one plain step of a parabola each
        np.testing.assert_allclose(task.weights, weights, rtol=1e-6)
        weights = weights - np.float32(0.1) * (weights - clients[task.client].b)
    np.testing.assert_allclose(state.weights, weights, rtol=1e-6)
    assert state.buffers.tolist() == [6], "one step each, passed on"
    assert report.of("accepted") == (2, 0)
    assert [told.steps for told in report.clients] == [3, 3]
    assert [told.samples for told in report.clients] == [len(clients[2]), len(clients[0])]


def test_each_pass_of_a_client_draws_anew_and_the_first_one_as_without_passes() -> None:
    logic, peers = a_run(((1,),), 3)
    run_round(a_state(logic), peers, logic)
    once, peers_of_one = a_run(((1,),), 1)
    run_round(a_state(once), peers_of_one, once)
    assert len({task.seed for task in peers.tasks}) == 3
    assert peers.tasks[0].seed == peers_of_one.tasks[0].seed
    assert peers.tasks[0].slots == peers_of_one.tasks[0].slots == {}


def test_a_lane_weighs_the_samples_of_its_clients_once() -> None:
    logic = a_logic(InLanes(((0, 1), (2,))))
    peers = MemoryCarrier(logic, CLIENTS)
    state, _ = run_round(a_state(logic), peers, logic)
    ends = []
    for lane in ((0, 1), (2,)):
        alone = a_logic(InLanes((lane,)))
        ends.append(run_round(a_state(alone), MemoryCarrier(alone, CLIENTS), alone)[0].weights)
    samples = [len(CLIENTS[0]) + len(CLIENTS[1]), len(CLIENTS[2])]
    np.testing.assert_allclose(state.weights, np.average(ends, axis=0, weights=samples), rtol=1e-5)


def test_lanes_go_through_their_passes_side_by_side_and_in_any_order_of_arrival() -> None:
    found = []
    for order in ((), (3, 2, 1, 0), (1, 3, 0, 2)):
        logic, peers = a_run(((0, 1), (2, 3)), 3, order=order)
        state, _ = run_rounds(2, a_state(logic), peers)
        found.append(state.weights.tobytes())
    assert len(set(found)) == 1


def test_the_memory_goes_from_pass_to_pass_and_from_the_last_one_to_the_next_round() -> None:
    logic, peers = a_run(((0, 1),), 3)
    state, _ = run_rounds(2, a_state(logic), peers)
    for client in (0, 1):
        assert peers.memory(client, state).memory["0:Rounded"]["sent"] == 6


def test_a_round_that_is_run_again_starts_from_the_memories_before_it() -> None:
    """Whichever pass the server's first attempt had come to."""
    logic, peers = a_run(((0, 1), (2,)), 3)
    state, _ = run_rounds(2, a_state(logic), peers)
    straight, _ = run_rounds(2, state, peers)
    for events in range(1, 9):
        other = MemoryCarrier(logic, CLIENTS)
        early, _ = run_rounds(2, a_state(logic), other)
        other.deadline = events
        with contextlib.suppress(TooFewUpdates):
            run_round(early, other, logic)
        ledgers = {
            client: ClientLedger.of_tree(ledger.tree()) for client, ledger in other.ledgers.items()
        }
        again, _ = run_rounds(2, early, MemoryCarrier(logic, CLIENTS, ledgers=ledgers))
        assert same_bits(again.weights, straight.weights)


def test_a_client_that_is_asked_again_for_the_same_pass_starts_from_the_same_memory() -> None:
    before = ClientState(3, {"a": {"x": 3}})
    one, two = (ClientState(5, {"a": {"x": 50 + number}}, number) for number in (1, 2))
    ledger = ClientLedger(before).settle(3).trained(one, NO_ROUND)
    assert ledger.settle(5, 2).start is one
    ledger = ledger.settle(5, 2).trained(two, NO_ROUND)
    assert ledger.rounds == (3, 5)
    for same in (ledger, ClientLedger.of_tree(ledger.tree())):
        assert same.settle(5, 2).start.memory == one.memory, "the second pass again"
        assert same.settle(5, 3).start.memory == two.memory, "the third pass"
        assert same.settle(5).start.memory == two.memory, "the round counts"
        assert same.settle(3).start.memory == before.memory, "the round does not count"
        assert same.settle(5, 4).start.memory == {}, "a pass that it has not done"
        assert same.settle(0, 2).start.memory == {}, "it begins anew"


@pytest.mark.parametrize("how", ["lost", "rejected"])
def test_a_client_that_falls_out_between_passes_leaves_what_it_did_and_begins_anew(how) -> None:
    def fall_out(update):
        if how == "lost":
            return [ClientLost(update.round, update.client, "cable cut")]
        return [replace(update, delta=NAN)]

    logic, peers = a_run(((0, 1, 2), (3,)), 3)
    start, _ = run_rounds(1, a_state(logic), peers)
    begun = len(peers.tasks)
    peers.forge = in_pass(2, 1, fall_out)
    state, report = run_round(start, peers, logic)
    lane = [task.client for task in peers.tasks[begun:] if task.client != 3]
    assert lane == [0, 1, 2, 0, 1, 2, 0, 2]
    assert report.of("accepted") == (0, 2, 3)
    assert report.of(how) == (1,)
    fallen = next(told for told in report.clients if told.client == 1)
    assert fallen.counted_before
    assert (fallen.samples, fallen.steps >= 2) == (len(CLIENTS[1]), True)
    assert sorted(state.last_accepted) == [0, 2, 3]
    peers.forge = lambda update: [update]
    begun = len(peers.tasks)
    state, _ = run_round(state, peers, logic)
    assert next(t for t in peers.tasks[begun:] if t.client == 1).last_accepted_round == 0
    assert peers.memory(1, state).memory["0:Rounded"]["sent"] == 3
    assert peers.memory(0, state).memory["0:Rounded"]["sent"] == 9


def test_a_client_that_falls_out_of_the_first_pass_has_done_nothing() -> None:
    logic, peers = a_run(((0, 1),), 3, lost=[1])
    state, report = run_round(a_state(logic), peers, logic)
    assert [task.client for task in peers.tasks] == [0, 1, 0, 0]
    assert report.of("lost") == (1,)
    assert not next(told for told in report.clients if told.client == 1).counted_before
    alone, peers_alone = a_run(((0,),), 3)
    expected, _ = run_round(a_state(alone), peers_alone, alone)
    assert same_bits(state.weights, expected.weights)


def test_a_round_that_is_cut_off_keeps_what_was_done_and_says_so() -> None:
    logic, peers = a_run(((0, 1),), 2, deadline=3)
    state, report = run_round(a_state(logic), peers, logic)
    assert report.of("accepted") == (0,)
    (_, cut) = report.clients
    assert (cut.client, cut.status) == (1, "lost")
    assert cut.counted_before
    assert state.last_accepted == {0: 1}


def test_an_update_of_another_pass_is_not_taken_for_the_one_that_is_due() -> None:
    logic, peers = a_run(((0, 1),), 2)
    first: dict[int, Update] = {}

    def repeat(update):
        return [first.setdefault(update.client, update)] if update.client == 0 else [update]

    peers.forge = repeat
    _, report = run_round(a_state(logic), peers, logic)
    assert report.of("rejected") == (0,)
    assert "another pass" in next(t for t in report.clients if t.client == 0).reason


@pytest.mark.parametrize(
    ("due", "number"),
    [(1, 2), (2, 1), *product((1, 2), (0, 3, "2", None, 2.0, True))],
)
def test_a_pass_that_a_client_makes_up_is_refused(due, number) -> None:
    logic, peers = a_run(((0, 1),), 2)
    peers.forge = in_pass(due, 0, lambda update: [replace(update, pass_number=number)])
    _, report = run_round(a_state(logic), peers, logic)
    assert report.of("rejected") == (0,)


def test_a_client_that_comes_back_without_its_memory_does_its_pass_anew() -> None:
    logic, peers = a_run(((0, 1),), 2)
    state, _ = run_rounds(1, a_state(logic), peers)
    lost = []

    def forget(update):
        if lost:
            return [update]
        lost.append(update.client)
        del peers.ledgers[update.client]
        return [StateLost(update.round, update.client)]

    peers.forge = in_pass(2, 1, forget)
    begun = len(peers.tasks)
    state, report = run_round(state, peers, logic)
    assert [(t.client, t.pass_number, t.last_accepted_round) for t in peers.tasks[begun:]] == [
        (0, 1, 1),
        (1, 1, 1),
        (0, 2, 2),
        (1, 2, 2),
        (1, 2, 0),
    ]
    assert report.of("accepted") == (0, 1)
    assert peers.memory(1, state).memory["0:Rounded"]["sent"] == 1


@pytest.mark.parametrize("lane", [{"passes": 2}, {"clients": (0, 1)}])
@pytest.mark.parametrize("kind", ["asynchronous", "in turn"])
def test_a_round_of_single_tasks_has_no_lanes_of_several(kind: str, lane: dict) -> None:
    class Several(Selector):
        provides = {Trait.ASYNCHRONOUS} if kind == "asynchronous" else frozenset()
        tasks_per_round = 9

        def run(self, round):
            round.in_turn = kind == "in turn"
            round.train_lane(**{"clients": (0,), **lane})
            yield from round.until_all()

    logic = a_logic(Several())
    with pytest.raises(LogicError, match=r"Several.run trains clients one after the other"):
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)


def test_more_passes_than_a_selector_says_that_clients_answer_are_refused() -> None:
    class Silent(InLanes):
        tasks_per_round = 1

    logic = a_logic(Silent(((0,),), 2))
    with pytest.raises(LogicError, match="tasks_per_round"):
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)


def test_no_passes_and_an_aggregator_of_single_updates_are_refused() -> None:
    with pytest.raises(LogicError, match="0 passes"):
        OpenRound({0: 1}).train_lane([0], passes=0)
    logic = a_logic(InLanes(((0,), (1,)), 2), aggregator=Median())
    with pytest.raises(LogicError, match="passes"):
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
