"""Simulated clients one call after the other, with an executor that a test writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedmx.protocol.messages import CODEC
from fedmx.simulation.executors.executor import AnswerResult, TrainResult
from fedmx.simulation.simulated_clients import SimulatedClients
from layers.logic import (
    Answer,
    ClientLedger,
    ClientLost,
    ClientState,
    Offer,
    Question,
    ServerState,
    StateLost,
    Task,
    TimerFired,
    Traffic,
    Training,
    Update,
    Verdict,
)
from layers.logic.core.report import Overhead
from layers.logic.core.state import NO_ROUND
from layers.logic.round.exchange import Ask, Begin, Close, Costs, ReportCosts, SendTask
from layers.network import wire_size

DOWN_BYTES, UP_BYTES = 1000, 30


@dataclass
class Work:
    task: Task
    ledger: ClientLedger
    cancelled: bool = False

    @property
    def down_bytes(self) -> int:
        return DOWN_BYTES + self.task.client

    def result(self) -> TrainResult:
        client, delta = self.task.client, np.ones(3, np.float32)
        update = Update(
            self.task.round, client, 5, 1, delta, np.zeros(0, np.float32), {"norm": 1.0}
        )
        ledger = ClientLedger(ClientState(self.task.round, {}))
        return TrainResult(update, UP_BYTES + client, ledger)

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Executor:
    """Does nothing, and counts as many bytes as it was told to."""

    work: list[Work] = field(default_factory=list)

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *exc_info: object) -> None: ...

    def submit(self, task: Task, ledger: ClientLedger) -> Work:
        self.work.append(Work(task, ledger))
        return self.work[-1]

    def ask(
        self, question: Question, clients: Sequence[int], ledgers: Mapping[int, ClientLedger]
    ) -> list[AnswerResult]:
        answers = [Answer(client, question.name, {}, question.round) for client in clients]
        return [AnswerResult(one, Traffic(7, 11 + one.client), NO_ROUND) for one in answers]


def tasks(clients: Sequence[int], offer: bool = False) -> dict[int, Task]:
    model = np.zeros(3, np.float32), np.zeros(0, np.float32)
    return {one: Task(1, one, 0, Training(), *model, offer=offer) for one in clients}


STATE = ServerState(0, np.zeros(3, np.float32), np.zeros(0, np.float32))


def begun(asked: Mapping[int, Task]) -> tuple[SimulatedClients, Executor]:
    executor = Executor()
    clients = SimulatedClients(executor, dict.fromkeys(range(4), 5))  # type: ignore[arg-type]
    for command in (Begin(1), *map(SendTask, asked.values())):
        clients._carry(command)
    return clients, executor


def accounts(clients: SimulatedClients) -> Costs:
    found, _ = clients.exchange([ReportCosts()])
    assert isinstance(found, Costs)
    return found


def bytes_of(message: Any) -> int:
    return wire_size(CODEC.encode(message).size)


def test_a_task_counts_when_it_is_sent_and_an_update_when_it_arrives() -> None:
    clients, _ = begun(tasks([2, 0]))
    assert accounts(clients).traffic == {2: Traffic(1002, 0), 0: Traffic(1000, 0)}
    assert accounts(clients).traffic == {}
    assert [clients.exchange([])[0].client for _ in range(2)] == [2, 0]  # type: ignore[union-attr]
    assert accounts(clients).traffic == {2: Traffic(0, 32), 0: Traffic(0, 30)}
    assert clients._ledgers[2].rounds == (1,)
    assert 1 not in clients._ledgers


def test_a_task_in_flight_that_the_next_round_does_not_accept_brings_nothing() -> None:
    executor = Executor()
    clients = SimulatedClients(executor, dict.fromkeys(range(4), 5))  # type: ignore[arg-type]
    sent = tasks([2, 1, 0])
    for command in (Begin(1, asynchronous=True), *map(SendTask, sent.values())):
        clients._carry(command)
    assert clients.exchange([])[0].client == 2  # type: ignore[union-attr]
    late = Begin(2, late=(sent[0].without_vectors(),), asynchronous=True)
    assert clients.exchange([Close(), late])[0].client == 0  # type: ignore[union-attr]
    assert isinstance(clients.exchange([])[0], TimerFired)
    assert executor.work[1].cancelled


def test_a_task_whose_memory_is_lost_is_not_sent() -> None:
    clients, executor = begun({})
    (task,) = tasks([2]).values()
    event, _ = clients.exchange([SendTask(replace(task, last_accepted_round=7))])
    assert event == StateLost(1, 2)
    assert executor.work == []
    assert accounts(clients).traffic == {}


def test_an_offer_its_verdict_and_the_granted_update_all_count() -> None:
    clients, _ = begun(tasks([2, 0], offer=True))
    accounts(clients)
    for granted in (False, True):
        event, _ = clients.exchange([])
        assert isinstance(event, Offer)
        verdict = Verdict(1, event.client, granted)
        clients._carry(verdict)
        down = bytes_of(verdict)
        assert accounts(clients).traffic == {event.client: Traffic(down, bytes_of(event))}
    event, _ = clients.exchange([])
    assert isinstance(event, Update)
    assert accounts(clients).traffic == {0: Traffic(0, 30)}
    assert clients._tasks == {}


def test_what_the_executor_counts_for_a_question_is_reported() -> None:
    clients = SimulatedClients(Executor(), {0: 5, 1: 5})  # type: ignore[arg-type]
    first, _ = clients.exchange([Ask(Question("labels", round=3), (1, 0))])
    second, _ = clients.exchange([])
    assert [event.answer.client for event in (first, second)] == [1, 0]  # type: ignore[union-attr]
    assert accounts(clients).traffic == {1: Traffic(7, 12), 0: Traffic(7, 11)}


def test_work_without_a_result_is_cancelled_when_the_round_is_left() -> None:
    for leave in (
        lambda clients: clients.open_round(STATE),
        lambda clients: clients.finish("over"),
        lambda clients: clients.__exit__(None, None, None),
    ):
        clients, executor = begun(tasks([2, 0]))
        leave(clients)
        assert [work.cancelled for work in executor.work] == [True, True]


def test_only_clients_that_are_available_now_are_the_population() -> None:
    there = [np.array([0, 2]), np.arange(4)]
    clock: Any = SimpleNamespace(settle=lambda: None, everybody_there=False)
    clock.available_of = lambda ids: there[0]
    clients = SimulatedClients(Executor(), {client: 5 + client for client in range(4)}, clock)
    few = clients.open_round(STATE)[1]
    assert dict(few) == {0: 5, 2: 7}
    assert clients.open_round(STATE)[1] is few  # what selectors derived from it is kept
    del there[0]
    assert dict(clients.open_round(STATE)[1]) == {0: 5, 1: 6, 2: 7, 3: 8}


def test_files_are_reported_once_and_not_again_by_a_resumed_run() -> None:
    clients = SimulatedClients(Executor(), {0: 5}, file_bytes=99)  # type: ignore[arg-type]
    kept = clients.tree()
    assert accounts(clients).overhead == Overhead(file_bytes=99)
    assert accounts(clients).overhead == Overhead()
    resumed = SimulatedClients(Executor(), {0: 5}, file_bytes=99)  # type: ignore[arg-type]
    resumed.restore(kept)
    assert accounts(resumed).overhead == Overhead()


def test_a_late_task_that_is_not_known_here_is_lost() -> None:
    clients = SimulatedClients(Executor(), {0: 5, 3: 5})  # type: ignore[arg-type]
    event, _ = clients.exchange([Begin(1, late=tuple(tasks([3]).values()))])
    assert isinstance(event, ClientLost)
    assert event.client == 3
