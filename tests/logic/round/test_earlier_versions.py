"""An update of an earlier version of the model, and how its client was told to train."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from layers.logic import (
    Hook,
    LogicError,
    Selector,
    ServerSide,
    ServerState,
    TimerFired,
    Traffic,
    Training,
    Trait,
    run_round,
)
from layers.logic.aggregators.fednova import FedNova
from layers.logic.aggregators.mean import Mean
from layers.logic.hooks.local_gradients import FedProx, GradientReply
from layers.logic.round.exchange import Event
from tests.logic.memory_carrier import (
    MemoryCarrier,
    a_logic,
    a_state,
    alone,
    run_rounds,
    same_bits,
)
from tests.logic.quadratic import THREE_BOWLS
from tests.logic.toys import FirstBack


@dataclass(frozen=True)
class Seen(Mean):
    """The mean; keeps of each contribution its client, how stale it was, and its rate."""

    seen: list[tuple[int, int, float]] = field(default_factory=list, compare=False)

    def add(self, total, contribution):
        (update,) = contribution.updates
        rate = contribution.training.learning_rate
        self.seen.append((update.client, contribution.staleness, rate))
        return super().add(total, contribution)


def test_an_update_of_an_earlier_version_is_folded_when_it_comes() -> None:
    aggregator = Seen("uniform")
    logic = a_logic(FirstBack(), aggregator=aggregator, training=Training(steps=1, learning_rate=1))
    peers = MemoryCarrier(logic, THREE_BOWLS, order=(2, 0, 1))
    first, report = run_round(a_state(logic), peers, logic)
    assert report.of("accepted") == (2,)
    assert (report.selected, report.in_flight, first.base) == (3, 2, {})
    assert sorted(first.in_flight) == [0, 1]
    assert {task.model_version for task in first.in_flight.values()} == {0}
    np.testing.assert_array_equal(first.weights, [3, 3, 3])

    restored = ServerState.of_tree(first.tree())  # a checkpoint keeps who is in flight
    headers = [{k: t.header() for k, t in one.in_flight.items()} for one in (restored, first)]
    assert headers[0] == headers[1]
    peers.order = (0, 1, 2)
    second, report = run_round(restored, peers, logic)
    assert report.of("accepted") == (0,)
    stale = [one[:2] for one in aggregator.seen]
    assert stale == [(2, 0), (0, 1)], "it had started from the model before the last"
    np.testing.assert_array_equal(second.weights, [4, 4, 4])  # its delta of 1, from 0
    assert sorted(second.in_flight) == [1, 2]
    assert second.last_accepted == {2: 1, 0: 1}, "the task of client 0 was of round 1"
    assert second.base == {}, "each task was of the round after the version that it started from"


@dataclass(frozen=True)
class Refilling(Selector):
    """Two clients train at the same time, those with the lowest numbers; three updates end a round.

    Attributes:
        instead: the clients that it chooses while another one trains, whoever they are.
    """

    instead: tuple[int, ...] | None = None

    tasks_per_round = 5

    provides = frozenset({Trait.ASYNCHRONOUS})

    def run(self, round):
        while (yield from round.until_changed(accepted=3)):
            idle = [client for client in round.clients if client not in round.in_flight]
            chosen = idle[: 2 - len(round.in_flight)]
            if self.instead is not None and round.in_flight:
                chosen = self.instead
            for client in chosen:
                round.train(client)


class RefillingCarrier(MemoryCarrier):
    def _next(self) -> Event:
        if not self._arrived and self.timers.pop("refill", None) is not None:
            return TimerFired("refill")
        return super()._next()


def test_a_round_that_refills_counts_each_task_and_knows_where_it_started_from() -> None:
    logic = a_logic(Refilling())
    peers = RefillingCarrier(logic, THREE_BOWLS)
    state, seen = a_state(logic), []
    for order in ((0, 1, 2), (1, 0, 2), (0, 1, 2)):
        peers.order = order
        state, report = run_round(ServerState.of_tree(state.tree()), peers, logic)
        tasks = [(one.client, one.task_round, one.version) for one in report.clients]
        seen.append((tasks, dict(state.last_accepted), dict(state.base), sorted(state.in_flight)))
        sent = [one.tasks for one in report.clients]
        assert [one.traffic for one in report.clients] == [Traffic(100 * n, 10 * n) for n in sent]
        assert report.traffic == Traffic(100 * sum(sent), 10 * sum(sent))
        assert (report.selected, report.in_flight) == (sum(sent), 1)
        assert sent == ([1, 1, 1, 1] if report.round == 1 else [0, 1, 1, 1])
    # By client: its task and the version of the model; the last one is in flight.
    assert seen == [
        ([(0, 1, 0), (0, 2, 0), (0, 3, 0), (1, 1, 0)], {0: 3}, {0: 0}, [1]),
        ([(1, 1, 0), (1, 5, 1), (1, 6, 1), (0, 4, 1)], {0: 3, 1: 6}, {0: 0, 1: 1}, [0]),
        ([(0, 4, 1), (0, 8, 2), (0, 9, 2), (1, 7, 2)], {0: 9, 1: 6}, {0: 2, 1: 1}, [1]),
    ]


@pytest.mark.parametrize("chosen", [(1,), (9,), (2, 1), (2, 2), (0, 2, 0)])
def test_a_refill_with_clients_that_cannot_be_asked_is_refused(chosen: tuple[int, ...]) -> None:
    for instead, refused in ((chosen, True), ((2,), False)):
        logic = a_logic(Refilling(instead))
        peers = RefillingCarrier(logic, THREE_BOWLS, silent=(1,))
        if refused:
            with pytest.raises(LogicError, match=r"Refilling\.run trains clients"):
                run_round(a_state(logic), peers, logic)
        else:
            _, report = run_round(a_state(logic), peers, logic)
            assert sorted(report.of("accepted")) == [0, 2, 2]


def test_a_round_of_the_current_version_forgets_an_earlier_one() -> None:
    logic = a_logic(alone(0))
    state = replace(a_state(logic), base={0: 7, 1: 7})
    state, _ = run_round(state, MemoryCarrier(logic, THREE_BOWLS), logic)
    assert (state.last_accepted, state.base) == ({0: 1}, {1: 7})


def decaying(round: int) -> float:
    return 1.0 if round == 1 else 0.1


@pytest.mark.parametrize(
    "settings",
    [
        {"hooks": [GradientReply()]},
        {"hooks": [FedProx(0.5)], "aggregator": FedNova(mu=0.5)},
    ],
)
def test_a_late_update_is_read_with_the_training_settings_of_its_task(settings) -> None:
    training = Training(steps=2, learning_rate=1.0)
    ends = []
    for schedule in (decaying, lambda round: 1.0):
        logic = a_logic(FirstBack(), training=training, learning_rate=schedule, **settings)
        peers = MemoryCarrier(logic, THREE_BOWLS, order=(2, 0, 1))
        state, _ = run_round(a_state(logic), peers, logic)
        peers.order = (0, 1, 2)
        state, report = run_round(ServerState.of_tree(state.tree()), peers, logic)
        assert report.of("accepted") == (0,), report.clients
        ends.append(state.weights)
    assert same_bits(*ends), "client 0 has trained in round 1, whatever the rate in round 2"


@dataclass(frozen=True)
class Slower(Hook):
    """Client 1 trains at half the rate; writes down the rate that the halves see."""

    seen: list[tuple[str, int, float]] = field(default_factory=list, compare=False)

    class Server(ServerSide):
        def send(self, task, context):
            assert context.training.learning_rate == decaying(context.round), "not an earlier one"
            if task.client != 1:
                return task
            return replace(task, training=replace(task.training, learning_rate=0.5))

        def receive(self, update, context):
            self.hook.seen.append(("receive", update.client, context.training.learning_rate))
            return update

        def on_accepted(self, update, context):
            self.hook.seen.append(("accepted", update.client, context.training.learning_rate))


def test_halves_and_aggregator_see_how_each_client_was_told_to_train() -> None:
    hook, aggregator = Slower(), Seen("uniform")
    logic = a_logic(
        alone(0, 1),
        hooks=[hook],
        aggregator=aggregator,
        training=Training(steps=1),
        learning_rate=decaying,
    )
    run_rounds(2, a_state(logic), MemoryCarrier(logic, THREE_BOWLS))
    assert [rate for _, _, rate in aggregator.seen] == [1.0, 0.5, 0.1, 0.5]
    for what in ("receive", "accepted"):
        rates = [rate for moment, _, rate in hook.seen if moment == what]
        assert rates == [1.0, 0.5, 0.1, 0.5]
