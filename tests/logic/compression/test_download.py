"""Clients train from exactly the server's model, whatever they missed or lost."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layers.logic import (
    ClientContext,
    ClientLedger,
    Hook,
    LogicError,
    OpenRound,
    Rejected,
    Run,
    Selector,
    ServerSide,
    ServerState,
    Stage,
    Task,
    Training,
    run_round,
)
from layers.logic.compression.codecs import QuantisedCodec
from layers.logic.compression.sides import checksum, receive_model
from layers.logic.core.messages import EMPTY
from layers.logic.core.report import BrokenModel
from layers.logic.hooks.compressors import Quantise, SignSgd, Stc, TopK
from layers.logic.hooks.dgc import Dgc
from tests.logic.given_updates import Witness
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds, same_bits
from tests.logic.quadratic import bowls, layout
from tests.logic.toys import FirstBack

SIZE = 400
CLIENTS = bowls(5, size=SIZE, noise=0.1)
CODED = {
    "stc": Stc(0.05, 0.05),
    "stc flat": Stc(0.05, 0.05, flat=True),
    "stc down only": Stc(None, 0.05),
    "top-k": TopK(0.05, 0.05),
    "dgc": Dgc(0.02, warmup=0),
    "sign-sgd": SignSgd(),
    "8 bit": Quantise(8, down=True),
}


@dataclass(frozen=True)
class Pattern(Selector):
    """Round r has these lanes."""

    rounds: tuple[tuple[tuple[int, ...], ...], ...]

    def run(self, round: OpenRound) -> Run[None]:
        for line in self.rounds[round.number - 1]:
            round.train_lane(line)
        yield from round.until_all()


def a_run(hook: Hook, rounds, hooks=(), **settings):
    witness = Witness()
    logic = a_logic(
        Pattern(tuple(rounds)),
        size=SIZE,
        hooks=[*hooks, witness, hook],
        training=Training(epochs=2),
        min_updates=0,
        **settings,
    )
    return MemoryCarrier(logic, CLIENTS), witness


def check(witness: Witness) -> None:
    assert witness.models
    for sent, received in witness.models:
        assert same_bits(sent, received)


def lane_of_its_own(*clients: int):
    return tuple((client,) for client in clients)


cohorts = st.lists(
    st.sets(st.integers(0, 4), max_size=3).map(lambda clients: lane_of_its_own(*sorted(clients))),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("hook", CODED.values(), ids=CODED)
@given(rounds=cohorts, data=st.data())
@settings(max_examples=25, deadline=None)
def test_after_any_pattern_of_participation_clients_have_the_servers_model(
    hook, rounds, data
) -> None:
    peers, witness = a_run(hook, rounds)
    state = a_state(peers.logic)
    for _ in rounds:
        what = data.draw(st.sampled_from(["well", "well", "lost", "forgets", "again", "saved"]))
        client = data.draw(st.integers(0, 4))
        peers.lost = [client] if what == "lost" else ()
        if what == "forgets":
            peers.ledgers.pop(client, None)
        if what == "again":  # as a server that was killed before it could save the round
            run_round(state, peers, peers.logic)
        if what == "saved":
            state = ServerState.of_tree(state.tree())
            peers.ledgers = {k: ClientLedger.of_tree(v.tree()) for k, v in peers.ledgers.items()}
        state, _ = run_round(state, peers, peers.logic)
    for sent, received in witness.models:
        assert same_bits(sent, received)


def dense_tasks(peers: MemoryCarrier) -> list[tuple[int, int]]:
    return [(task.round, task.client) for task in peers.tasks if task.weights.size]


@pytest.mark.parametrize("hook", CODED.values(), ids=CODED)
def test_a_client_that_missed_one_round_gets_no_model(hook) -> None:
    peers, witness = a_run(hook, [lane_of_its_own(0, 1)] * 4)
    run_rounds(4, a_state(peers.logic), peers)
    assert dense_tasks(peers) == [(1, 0), (1, 1)]
    check(witness)


def test_missed_changes_are_sent_while_they_are_smaller_than_the_model() -> None:
    """An 8-bit payload is slightly more than a quarter of the model: three are smaller."""
    for missed, dense in ((1, False), (2, False), (3, True), (6, True)):
        absent = [lane_of_its_own(1)] * missed
        rounds = [lane_of_its_own(0, 1), *absent, lane_of_its_own(0, 1)]
        peers, witness = a_run(Quantise(8, down=True), rounds)
        run_rounds(len(rounds), a_state(peers.logic), peers)
        assert ((len(rounds), 0) in dense_tasks(peers)) == dense
        check(witness)


def test_the_server_keeps_payloads_smaller_than_the_model() -> None:
    for hook in (Quantise(8, down=True), Stc(0.5, 0.5)):
        peers, _ = a_run(hook, [lane_of_its_own(0)] * 30)
        state, _ = run_rounds(30, a_state(peers.logic), peers)
        (memory,) = (kept for kept in state.memory.values() if "payloads" in kept)
        payloads = memory["payloads"]
        assert 0 < sum(payload.nbytes for payload in payloads.values()) < 4 * SIZE
        assert sorted(payloads) == list(range(31 - len(payloads), 31)), "the last ones"


def test_a_client_that_lost_its_memory_gets_the_model() -> None:
    peers, witness = a_run(Stc(), [lane_of_its_own(0, 1)] * 4)
    state, _ = run_rounds(3, a_state(peers.logic), peers)
    del peers.ledgers[1]
    run_rounds(1, state, peers)
    assert dense_tasks(peers) == [(1, 0), (1, 1), (4, 1)]
    check(witness)


def test_in_a_lane_each_client_gets_the_weights_of_the_previous_one() -> None:
    rounds = [((0, 1), (2,)), ((1, 0), (2,)), lane_of_its_own(0, 1, 2), ((0, 2), (1,))]
    peers, witness = a_run(Stc(0.05, 0.05), rounds)
    run_rounds(4, a_state(peers.logic), peers)
    check(witness)
    first = [(1, 0), (1, 2), (1, 1)]
    # Who had the weights of another client does not keep the server's model.
    assert dense_tasks(peers) == [*first, (2, 1), (2, 0), (3, 0), (4, 2)]


@dataclass(frozen=True)
class Shifted(Hook):
    """Client 0 trains in the first round on its own model."""

    class Server(ServerSide):
        def send(self, task, context):
            if (task.client, task.round) != (0, 1):
                return task
            return replace(task, weights=task.weights + np.float32(0.5))


@pytest.mark.parametrize("until", [2, 3])
def test_a_late_client_that_was_sent_another_model_gets_the_servers_model_next(until) -> None:
    witness = Witness()
    logic = a_logic(
        FirstBack(2), size=SIZE, hooks=[Shifted(), witness, Stc(None, 0.02)], min_updates=0
    )
    peers = MemoryCarrier(logic, bowls(3, size=SIZE))
    state = a_state(logic)
    for round in range(1, until + 3):
        peers.order = (0, 1, 2) if round >= until else (1, 2, 0)
        state, report = run_round(ServerState.of_tree(state.tree()), peers, logic)
        assert (0 in report.of("accepted")) == (round >= until)
    assert dense_tasks(peers) == [(1, 0), (1, 1), (1, 2), (until + 1, 0)]
    check(witness)
    kept = state.memory["2:Stc"]
    assert (kept["unanswered"], kept["strange"]) == ({}, {}), "no mark outlives its task"


def test_a_client_that_answers_at_once_is_marked_until_it_has_the_servers_model() -> None:
    logic = a_logic(alone(0, 1), size=SIZE, hooks=[Shifted(), Stc(None, 0.02)])
    state, peers = a_state(logic), MemoryCarrier(logic, CLIENTS)
    marks = []
    for _ in range(2):
        state, _ = run_round(state, peers, logic)
        kept = state.memory["1:Stc"]
        marks.append((kept["strange"], kept.get("unanswered", {})))
    assert marks == [({0: 1}, {}), ({}, {})]


def received(client: int, weights: np.ndarray) -> np.ndarray:
    """Return the model that a client keeps of a task with these weights."""
    parts = np.array([0, weights.size])
    context = ClientContext(1, client, 0, Training(), layout(weights.size), {})
    task = Task(1, client, 0, Training(), weights, EMPTY)
    after = receive_model(task, context, QuantisedCodec(8), parts)
    assert after.weights is weights
    kept: np.ndarray = context.memory["model"]
    return kept


def test_clients_of_one_process_share_a_model_and_no_model_with_the_same_checksum() -> None:
    one = np.array([7885660, 2988360], np.float32)
    other = np.array([91381, 100432], np.float32)
    assert checksum(one) == checksum(other)
    kept = [received(client, given.copy()) for client, given in enumerate((one, one, one))]
    assert all(model is kept[0] for model in kept)
    kept += [received(3, other), received(4, one)]
    assert [model.tolist() for model in kept] == [one.tolist()] * 3 + [other.tolist(), one.tolist()]
    assert not any(model.flags.writeable for model in kept)


def test_a_round_without_updates_keeps_the_model() -> None:
    peers, witness = a_run(Stc(), [lane_of_its_own(0, 1)] * 4)
    state, _ = run_rounds(2, a_state(peers.logic), peers)
    peers.lost = [0, 1]
    after, _ = run_rounds(1, state, peers)
    assert same_bits(after.weights, state.weights)
    assert same_bits(after.memory["1:Stc"]["residual"], state.memory["1:Stc"]["residual"])
    peers.lost = ()
    run_rounds(1, after, peers)
    assert dense_tasks(peers) == [(1, 0), (1, 1)]
    check(witness)


@dataclass(frozen=True)
class Shrinking(Hook):
    """Changes the model after aggregation."""

    class Server(ServerSide):
        def conclude(self, state, context):
            return replace(state, weights=state.weights * np.float32(0.9))


@dataclass(frozen=True)
class ShrinkingLate(Shrinking):
    """Declares a stage after the codec."""

    stage = Stage.UPDATE


def test_a_model_changed_after_the_encoding_is_sent_dense() -> None:
    witness = Witness()
    logic = a_logic(alone(0, 1), size=SIZE, hooks=[witness, Stc(), ShrinkingLate()])
    peers = MemoryCarrier(logic, CLIENTS)
    run_rounds(3, a_state(logic), peers)
    assert len(dense_tasks(peers)) == 6
    check(witness)


def test_a_client_with_another_memory_is_refused() -> None:
    peers, _ = a_run(Stc(), [lane_of_its_own(0, 1)] * 3)
    state, _ = run_rounds(2, a_state(peers.logic), peers)
    tree = peers.ledgers[0].tree()
    memory = tree["pending"]["memory"]["1:Stc"]
    memory["model"] = memory["model"] + np.float32(1)
    peers.ledgers[0] = ClientLedger.of_tree(tree)
    with pytest.raises(LogicError, match="not the server's model"):
        run_round(state, peers, peers.logic)
    del memory["model"]
    peers.ledgers[0] = ClientLedger.of_tree(tree)
    with pytest.raises(LogicError, match="keeps no model"):
        run_round(state, peers, peers.logic)


@dataclass(frozen=True)
class Turning(Hook):
    """Changes the sign of the model after aggregation, before the encoding."""

    class Server(ServerSide):
        def conclude(self, state, context):
            return replace(state, weights=-context.start)


def test_a_change_that_is_not_finite_is_not_encoded() -> None:
    peers, _ = a_run(Stc(), [lane_of_its_own(0)], hooks=[Turning()], max_update=None)
    state = replace(a_state(peers.logic), weights=np.full(SIZE, 2e38, np.float32))
    with pytest.raises(BrokenModel, match="round 1: the aggregated model is not finite") as broken:
        run_round(state, peers, peers.logic)
    assert not broken.value.at_start
    assert broken.value.report.of("accepted") == (0,)


@pytest.mark.parametrize(
    "lengths", [None, 9, np.array([9]), np.array([3, 4, 1]), np.array([], np.int64)]
)
def test_the_lengths_of_missed_changes_must_add_up_to_their_bytes(lengths: object) -> None:
    model = np.zeros(4, np.float32)
    slot = {"missed": np.zeros(7, np.uint8), "checksum": checksum(model), "lengths": lengths}
    given = {key: value for key, value in slot.items() if value is not None}
    context = ClientContext(3, 0, 0, Training(), layout(4), {"model": model}, slot=given)
    task = Task(3, 0, 1, Training(), EMPTY, EMPTY)
    with pytest.raises(Rejected, match="lengths of the missed updates"):
        receive_model(task, context, QuantisedCodec(8), np.array([0, 4]))
