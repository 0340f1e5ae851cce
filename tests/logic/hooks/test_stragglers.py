"""Stragglers do a part of the local work or none, and the same ones whatever the algorithm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layers.logic import TooFewUpdates, Training, run_round
from layers.logic.aggregators.fednova import FedNova
from layers.logic.hooks.local_gradients import Clip, FedProx
from layers.logic.hooks.stragglers import Stragglers
from layers.logic.selectors.uniform import Uniform
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds, same_bits
from tests.logic.quadratic import bowls

CLIENTS = bowls(30)
TEN = Uniform(count=10)
E = Training(epochs=20, learning_rate=0.01)


def played(hooks, rounds: int = 3, seed: int = 0, training: Training = E, **settings):
    """Return the epochs of each client of each round, the last state, and the reports."""
    logic = a_logic(TEN, hooks=hooks, training=training, seed=seed, **settings)
    peers = MemoryCarrier(logic, CLIENTS)
    state, reports = run_rounds(rounds, a_state(logic), peers)
    work = [
        {task.client: task.training.epochs for task in peers.tasks if task.round == round}
        for round in range(1, rounds + 1)
    ]
    return work, state, reports


@pytest.mark.parametrize(("share", "number"), [(0.0, 0), (0.05, 1), (0.5, 5), (0.9, 9), (1.0, 10)])
def test_that_share_of_the_cohort_does_from_one_to_all_epochs_and_the_others_all(
    share, number
) -> None:
    """0.05 of ten clients is half a client, and a half counts as one."""
    seen = set()
    for seed in range(20):
        work, _, reports = played([Stragglers(share)], rounds=2, seed=seed)
        for round, report in zip(work, reports, strict=True):
            assert len(round) == 10
            partial = [epochs for epochs in round.values() if epochs != 20]
            assert len(partial) <= number
            assert all(1 <= epochs <= 20 for epochs in round.values())
            assert report.numbers == {"stragglers": number}
            assert set(report.of("accepted")) == set(round)
            seen.update(partial)
    assert seen <= set(range(1, 20))
    if share >= 0.5:
        assert seen == set(range(1, 20)), "uniform from 1 to E"


def test_each_epoch_count_is_drawn_about_as_often_as_any_other() -> None:
    counts = np.zeros(21, int)
    for seed in range(40):
        for round in played([Stragglers(1.0)], seed=seed, training=E)[0]:
            for epochs in round.values():
                counts[epochs] += 1
    assert counts[0] == 0
    assert counts.sum() == 1200
    assert counts[1:].min() > 30
    assert counts[1:].max() < 100


def test_dropped_stragglers_get_no_task_and_the_report_says_why() -> None:
    partial, _, _ = played([Stragglers(0.9)])
    work, _, reports = played([Stragglers(0.9, drop=True)])
    for round, kept, report in zip(partial, work, reports, strict=True):
        assert set(report.of("accepted")) == set(kept)
        assert len(kept) == 1
        assert set(kept.values()) == {20}
        assert set(report.of("lost")) == set(round) - set(kept)
        for client in report.clients:
            if client.status == "lost":
                part = round[client.client]
                assert client.reason == f"a straggler: it has time for {part} of 20 epochs"
                assert client.traffic.down_bytes == 0


def test_the_same_clients_are_stragglers_with_the_same_work_whatever_the_algorithm() -> None:
    alike = [
        [Stragglers(0.5)],
        [FedProx(0.0), Stragglers(0.5)],
        [FedProx(1.0), Clip(), Stragglers(0.5)],
        [Stragglers(0.5), FedProx(1.0)],
    ]
    expected, plain, _ = played(alike[0])
    for hooks in alike[1:]:
        assert played(hooks)[0] == expected
    assert same_bits(played(alike[1])[1].weights, plain.weights), "FedProx with mu = 0 is FedAvg"
    dropped, _, _ = played([FedProx(1.0), Stragglers(0.5, drop=True)])
    for round, kept in zip(expected, dropped, strict=True):
        assert {client: round[client] for client in kept} == dict.fromkeys(kept, 20)
    assert expected != played(alike[0], seed=1)[0]
    assert len({tuple(sorted(round.items())) for round in expected}) == 3, "each round draws anew"


def test_a_larger_share_has_the_same_stragglers_and_more() -> None:
    half, most = played([Stragglers(0.5)])[0], played([Stragglers(0.9)])[0]
    for some, more in zip(half, most, strict=True):
        for client, epochs in some.items():
            if epochs != 20:
                assert more[client] == epochs


def test_nobody_late_is_no_hook_at_all_bit_for_bit() -> None:
    assert same_bits(played([Stragglers(0.0)])[1].weights, played([])[1].weights)


def test_the_partial_work_is_done_and_folded() -> None:
    training = Training(epochs=5, learning_rate=0.1)
    logic = a_logic(alone(0, 1), hooks=[Stragglers(0.5)], training=training)
    peers = MemoryCarrier(logic, CLIENTS)
    state, report = run_round(a_state(logic), peers, logic)
    epochs = {task.client: task.training.epochs for task in peers.tasks}
    alone_with = []
    for client in (0, 1):
        one = a_logic(alone(client), training=replace(training, epochs=epochs[client]))
        after, _ = run_round(a_state(one), MemoryCarrier(one, CLIENTS), one)
        alone_with.append(after.weights)
    sizes = [len(CLIENTS[client]) for client in (0, 1)]
    expected = np.average(alone_with, axis=0, weights=sizes)
    np.testing.assert_allclose(state.weights, expected, rtol=1e-5)
    assert len(report.of("accepted")) == 2


def test_steps_are_drawn_where_the_training_goes_by_steps() -> None:
    training = Training(steps=7, epochs=1)
    logic = a_logic(TEN, hooks=[Stragglers(1.0)], aggregator=FedNova(), training=training)
    peers = MemoryCarrier(logic, CLIENTS)
    run_rounds(10, a_state(logic), peers)
    assert {task.training.steps for task in peers.tasks} == set(range(1, 8))
    assert {task.training.epochs for task in peers.tasks} == {1}


def test_when_all_are_dropped_the_round_says_so() -> None:
    logic = a_logic(alone(3), hooks=[Stragglers(0.5, drop=True)])
    with pytest.raises(TooFewUpdates) as error:
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    assert "a straggler" in error.value.report.clients[0].reason
    assert str(error.value).endswith("each client's reason, or lower logic.min_updates")
    logic = a_logic(alone(3), hooks=[Stragglers(0.5, drop=True)], min_updates=0)
    state, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    assert report.of("lost") == (3,)
    assert not state.weights.any()
