"""A client's memory holds what counted, and nothing of what did not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import (
    ClientLedger,
    ClientSide,
    ClientState,
    Hook,
    Offer,
    Question,
    Selector,
    Task,
    TooFewUpdates,
    Training,
    run_round,
)
from layers.logic.core.state import NO_ROUND, RoundMemory
from tests.logic.memory_carrier import (
    InLanes,
    MemoryCarrier,
    a_logic,
    a_state,
    alone,
    lying,
    run_rounds,
    same_bits,
)
from tests.logic.quadratic import bowls
from tests.logic.rounded import Rounded

CLIENTS = bowls(3, noise=0.2)
NAN = np.full(3, np.nan, np.float32)


def logic_of(selector: Selector, **settings):
    return a_logic(selector, hooks=[Rounded()], training=Training(epochs=2), seed=3, **settings)


def kept(peers: MemoryCarrier, client: int, state) -> dict:
    return dict(peers.memory(client, state).memory.get("0:Rounded", {}))


def test_the_residual_carries_over() -> None:
    logic = logic_of(alone(0))
    deltas = []
    peers = MemoryCarrier(
        logic, CLIENTS, forge=lambda update: [deltas.append(update.delta) or update]
    )
    start = a_state(logic)
    state, _ = run_rounds(20, start, peers)
    residual = kept(peers, 0, state)["residual"]
    assert np.all(np.abs(residual) <= 0.05 + 1e-6)
    np.testing.assert_allclose(state.weights - start.weights, np.sum(deltas, axis=0), atol=1e-5)


class Declining(InLanes):
    def run(self, round):
        for client in round.clients:
            round.train(client, offer=True)
        while round.outstanding:
            match (yield from round.next()):
                case Offer(client=1) as offer:
                    round.decline(offer)
                case Offer() as offer:
                    round.grant(offer)


def missing(how: str) -> tuple:
    """Return a selector and the peers' settings by which client 1's update does not count."""
    lanes = ((0,), (1,), (2,))
    if how == "rejected":
        return InLanes(lanes), {"forge": lying(1, delta=NAN)}
    if how == "lost on the way":
        return InLanes(lanes), {"forge": lambda update: [update] if update.client != 1 else []}
    if how == "late":
        return InLanes(lanes), {"order": (0, 2, 1), "deadline": 2}
    return Declining(lanes), {}


@pytest.mark.parametrize("how", ["rejected", "lost on the way", "late", "declined"])
def test_an_update_that_did_not_count_leaves_no_trace(how) -> None:
    selector, settings = missing(how)
    logic = logic_of(selector)
    peers = MemoryCarrier(logic, CLIENTS, **settings)
    state, reports = run_rounds(2, a_state(logic), peers)
    assert [report.of("accepted") for report in reports] == [(0, 2), (0, 2)]
    if how != "late":
        assert peers.ledgers[1].pending is not None, "it did train"
    assert kept(peers, 1, state) == {}
    assert kept(peers, 0, state)["sent"] == 2


def test_a_client_that_was_refused_once_goes_on_from_before() -> None:
    logic = logic_of(alone(0, 1, 2))
    peers = MemoryCarrier(logic, CLIENTS)
    state, _ = run_rounds(1, a_state(logic), peers)
    before = kept(peers, 1, state)
    peers.forge = lying(1, delta=NAN)
    state, _ = run_rounds(1, state, peers)
    after = kept(peers, 1, state)
    assert same_bits(before["residual"], after["residual"])
    peers.forge = lambda update: [update]
    state, _ = run_rounds(1, state, peers)
    assert kept(peers, 1, state)["sent"] == 2


@given(again=st.integers(1, 5), times=st.integers(1, 3))
def test_a_round_that_is_run_again_gives_the_same_bits(again, times) -> None:
    """As after a server's restart from its checkpoint, while the clients lived on."""
    logic = logic_of(alone(0, 1, 2))
    peers = MemoryCarrier(logic, CLIENTS)
    state = a_state(logic)
    for round in range(1, 6):
        if round == again:
            for _ in range(times):
                run_round(state, peers, logic)
        state, _ = run_round(state, peers, logic)
    straight_peers = MemoryCarrier(logic, CLIENTS)
    straight, _ = run_rounds(5, a_state(logic), straight_peers)
    assert same_bits(state.weights, straight.weights)
    for client in CLIENTS:
        one, other = kept(peers, client, state), kept(straight_peers, client, straight)
        assert same_bits(one["residual"], other["residual"])
        assert one["sent"] == other["sent"] == 5


def test_a_round_of_too_few_updates_leaves_no_trace() -> None:
    logic = logic_of(alone(0, 1, 2), min_updates=3)
    peers = MemoryCarrier(logic, CLIENTS)
    state, _ = run_rounds(1, a_state(logic), peers)
    peers.lost = [2]
    with pytest.raises(TooFewUpdates):
        run_round(state, peers, logic)
    assert kept(peers, 0, state)["sent"] == 1
    peers.lost = ()
    state, _ = run_rounds(1, state, peers)
    straight, _ = run_rounds(2, a_state(logic), MemoryCarrier(logic, CLIENTS))
    assert same_bits(state.weights, straight.weights)


def test_a_memory_of_another_round_is_not_taken_for_the_right_one() -> None:
    ledger = ClientLedger(ClientState(3, {"a": {"x": 3}}), ClientState(5, {"a": {"x": 5}}))
    assert ledger.settle(5).settled.memory == {"a": {"x": 5}}
    assert ledger.settle(3).settled.memory == {"a": {"x": 3}}
    assert ledger.settle(4).settled.memory == {}
    assert ledger.settle(4).settled.round == 4
    assert ledger.settle(5).pending is None


def test_a_hook_cannot_change_the_memory_that_a_round_is_run_again_from() -> None:

    class Summing(Hook):
        class Client(ClientSide):
            def send(self, update, context):
                if "sum" in context.memory:
                    context.memory["sum"][:] += update.delta
                else:
                    context.keep(sum=update.delta.copy())
                return update

    logic = a_logic(alone(0), hooks=[Summing()])
    peers = MemoryCarrier(logic, CLIENTS)
    state, _ = run_rounds(1, a_state(logic), peers)
    with pytest.raises(ValueError, match="read-only"):
        run_round(state, peers, logic)


def test_ledgers_go_into_a_tree_and_come_back() -> None:
    logic = logic_of(alone(0, 1, 2))
    peers = MemoryCarrier(logic, CLIENTS)
    state, _ = run_rounds(2, a_state(logic), peers)
    straight, _ = run_rounds(2, state, peers)
    other = MemoryCarrier(logic, CLIENTS)
    early, _ = run_rounds(2, a_state(logic), other)
    other.ledgers = {
        client: ClientLedger.of_tree(ledger.tree()) for client, ledger in other.ledgers.items()
    }
    resumed, _ = run_rounds(2, early, other)
    assert same_bits(resumed.weights, straight.weights)
    assert ClientLedger.of_tree(ClientLedger().tree()).pending is None


def test_the_steps_of_a_round_are_in_the_order_in_which_they_happen() -> None:
    def asked(phase: str) -> list[tuple[int, int]]:
        return [Question(f"hooks {phase}", number=one).step for one in (1, 2, 3)]

    task = Task(1, 0, 3, Training(), NAN, NAN)
    passes = [replace(task, pass_number=one).step for one in (1, 2, 3)]
    steps = [(0, 0), *asked("cohort"), *passes, *asked("returned")]
    assert steps == sorted(set(steps))


def test_a_step_that_is_repeated_starts_from_the_same_memory_within_the_round() -> None:
    answered, trained, told = (0, 1), (1, 1), (2, 1)
    kept = NO_ROUND.passed(3, answered, {"key": 5, "share": np.zeros(2)})
    array = np.ones(2)
    kept = kept.passed(3, trained, {"key": 5, "share": array})
    array += 1
    for same in (kept, RoundMemory.of_tree(kept.tree())):
        assert same.at(3, trained)["share"].tolist() == [0, 0], "the task again"
        assert same.at(3, told)["share"].tolist() == [1, 1], "what it was when the step ended"
        assert not same.at(3, told)["share"].flags.writeable
        assert same.at(3, answered) == {}, "the server repeats the round"
        assert same.at(4, told) == {}, "another round"
    assert kept.passed(4, answered, {}) is NO_ROUND
    ledger = ClientLedger(ClientState(2)).trained(ClientState(3), kept)
    assert ledger.settle(3).within is ledger.settle(2).within is ledger.settle(1).within is kept
