"""A client that lost its memory is told to begin anew, whenever it comes back without."""

from __future__ import annotations

from layers.logic import ClientLost, StateLost, Training, run_round
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds, same_bits
from tests.logic.quadratic import bowls
from tests.logic.round.test_client_memory import Rounded

CLIENTS = bowls(3, noise=0.2)


def a_run():
    logic = a_logic(alone(0, 1, 2), hooks=[Rounded()], training=Training(epochs=2))
    return logic, MemoryCarrier(logic, CLIENTS)


def test_a_task_counts_on_no_memory_that_the_client_lost() -> None:
    logic, peers = a_run()
    state, _ = run_rounds(2, a_state(logic), peers)
    del peers.ledgers[1]
    peers.tasks.clear()
    state, _ = run_rounds(1, state, peers)
    assert {task.client: task.last_accepted_round for task in peers.tasks} == {0: 2, 1: 0, 2: 2}
    sent = [peers.memory(one, state).memory["0:Rounded"]["sent"] for one in range(3)]
    assert sent == [3, 1, 3], "it begins with an empty one"


def test_a_client_that_comes_back_in_mid_round_without_memory_gets_a_task_to_begin_anew() -> None:
    logic, peers = a_run()
    state, _ = run_rounds(2, a_state(logic), peers)
    peers.tasks.clear()

    def killed(update):
        if update.client != 1 or peers.tasks[-1].last_accepted_round == 0:
            return [update]
        del peers.ledgers[1]
        return [StateLost(update.round, 1)]

    peers.forge = killed
    state, report = run_round(state, peers, logic)
    assert report.of("accepted") == (0, 1, 2)
    assert [(task.client, task.last_accepted_round) for task in peers.tasks] == [
        (0, 2),
        (1, 2),
        (2, 2),
        (1, 0),
    ]

    other_logic, other = a_run()
    straight, _ = run_rounds(2, a_state(other_logic), other)
    del other.ledgers[1]
    straight, _ = run_rounds(1, straight, other)
    assert same_bits(state.weights, straight.weights), "as if it had come back before the round"


def test_forgetting_what_nobody_counts_on_changes_nothing() -> None:
    logic, peers = a_run()
    plain, _ = run_rounds(2, a_state(logic), peers)
    logic, peers = a_run()
    peers.forge = lambda update: [
        StateLost(update.round + 1, update.client),
        StateLost(update.round, 9),
        *([StateLost(1, update.client)] if update.round == 1 else []),
        update,
        StateLost(update.round, update.client),
    ]
    state, reports = run_rounds(2, a_state(logic), peers)
    assert [report.of("accepted") for report in reports] == [(0, 1, 2)] * 2
    assert same_bits(state.weights, plain.weights)
    assert len(peers.tasks) == 6


def test_a_client_that_forgets_and_is_lost_is_lost() -> None:
    logic, peers = a_run()
    state, _ = run_rounds(1, a_state(logic), peers)
    peers.forge = lambda update: (
        [StateLost(2, 1), ClientLost(2, 1, "gone again")] if update.client == 1 else [update]
    )
    _, report = run_round(state, peers, logic)
    assert report.of("lost") == (1,)
