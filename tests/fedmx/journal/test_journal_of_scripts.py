"""Whatever clients on real sockets do in a round, its journal gives the same round again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from fedmx import Round, Server
from fedmx.experiment.sections import MOST_VIOLATIONS
from fedmx.history.carrier import JournalClients
from fedmx.history.recorded import follow
from fedmx.journal.journal import Journal, JournalError, UpdateArrived, journals_of
from fedmx.simulation.executors.executor import AnswerResult, TrainResult
from layers.logic import ClientLedger, Offer, Question, StateLost, Task, Verdict
from layers.logic.core.declaration import Trait
from layers.logic.core.round import OpenRound, Run
from layers.logic.core.selector import Selector
from layers.logic.selectors.uniform import Uniform
from tests.fedmx.scripted import Least, Scripted, compute, fleet, honest, listening, update_of
from tests.fedmx.timeless import timeless
from tests.network.conftest import Certificates


@dataclass
class Honest:
    """Makes what a scripted client that is honest makes of a task."""

    task: Task
    ledger: ClientLedger
    down_bytes: int = 0

    def result(self) -> TrainResult:
        return TrainResult(update_of(self.task), 0, self.ledger)

    def cancel(self) -> None: ...


class HonestExecutor:
    """An executor of honest clients."""

    def __enter__(self) -> HonestExecutor:
        return self

    def __exit__(self, *exc_info: object) -> None: ...

    def submit(self, task: Task, ledger: ClientLedger) -> Honest:
        return Honest(task, ledger)

    def ask(
        self, question: Question, clients: Sequence[int], ledgers: Mapping[int, ClientLedger]
    ) -> Sequence[AnswerResult]:
        raise AssertionError("nobody is asked")


def journals(rounds: Sequence[Round]) -> dict[int, Journal]:
    """The journals of rounds, as their records have them."""
    records, before = [], None
    for one in rounds:
        records.append(json.loads(json.dumps(one.journal.record(before))))
        before = one.journal.population
    return journals_of(records, "journal.jsonl")


def clients_of(found: dict[int, Journal]) -> JournalClients:
    return JournalClients(
        HonestExecutor(),  # type: ignore[arg-type]
        found,
        untrusted=True,
        virtual=False,
        population=lambda one: one.population,
        strict=True,
    )


def again(server: Server, rounds: Sequence[Round]) -> list[Round]:
    """The rounds of a server that has run, once more from their journals."""
    found = journals(rounds)
    replayed = Server(clients_of(found), server.logic, compute(), last_round=server.last_round)
    return list(follow(replayed, found, len(rounds)))


def assert_same(server: Server, rounds: Sequence[Round]) -> None:
    """The journals of these rounds lead to the same ones."""
    found = again(server, rounds)
    assert [one.model_sha256 for one in found] == [one.model_sha256 for one in rounds]
    for now, then in zip(found, rounds, strict=True):
        assert now.report.took_s == then.report.took_s
        assert [x.times for x in now.report.clients] == [x.times for x in then.report.clients]
        assert timeless([now.record()]) == timeless([then.record()])
        told = [(one["status"], one["reason"]) for one in now.client_records()]
        assert told == [(one["status"], one["reason"]) for one in then.client_records()]


@dataclass(frozen=True)
class FirstOne(Selector):
    """Everybody; one update is enough in round 1, of the round or of the group of all."""

    grouped: bool = False

    def run(self, round: OpenRound) -> Run[None]:
        for client in round.clients:
            round.train(client, group="all")
        needed = 1 if round.number == 1 else 2
        yield from round.until({"all": needed} if self.grouped else needed)


@dataclass(frozen=True)
class Patient(Selector):
    """One update is enough in round 1; round 2 waits for client 0 and for those in flight."""

    provides = frozenset({Trait.ASYNCHRONOUS})
    tasks_per_round = 2

    def run(self, round: OpenRound) -> Run[None]:
        for client in round.clients if round.number == 1 else (0,):
            round.train(client)
        while round.outstanding and not (round.number == 1 and round.accepted):
            yield from round.next()


def late(client: Scripted, task: Task, first_is_over: threading.Event) -> None:
    assert first_is_over.wait(60)
    client.say(update_of(task))


def test_a_late_update_and_one_that_never_comes(certificates: Certificates) -> None:
    first_is_over = threading.Event()

    def leaves(client: Scripted) -> None:
        client.task()
        assert first_is_over.wait(60)
        client.hang_up()

    scripts: dict[int, Callable[[Scripted], None]] = {
        0: honest,
        1: lambda client: late(client, client.task(), first_is_over),
        2: leaves,
    }
    server = listening(certificates, last=2, wait_for=3, selector=Patient(), rejoin_s=0.1)
    with server, fleet(server, certificates, scripts):
        rounds, states = [], []
        for one in server.rounds():
            rounds.append(one)
            states.append(server.state)
            first_is_over.set()
    assert rounds[0].participants == (0,)
    assert (sorted(rounds[1].participants), rounds[1].report.of("lost")) == ([0, 1], (2,))
    assert_same(server, rounds)
    found = journals(rounds)
    after_first = Server(clients_of(found), server.logic, compute(), last_round=2)
    after_first.state = states[0]
    with pytest.raises(JournalError) as caught:
        list(follow(after_first, found, 2))
    assert "round 2, client 1: its task is of round 1" in str(caught.value)
    assert (caught.value.round, caught.value.client) == (2, 1)


@pytest.mark.parametrize("grouped", [False, True])
def test_over_selection_and_unasked_updates(certificates: Certificates, grouped: bool) -> None:
    def slow(client: Scripted) -> None:
        task = client.task()
        assert not client.expect(Verdict).granted
        client.task()
        client.say(update_of(task))
        client.say(update_of(task, round=2))
        client.say(update_of(task, round=2))
        client.until_told()

    server = listening(certificates, last=2, wait_for=2, selector=FirstOne(grouped))
    with server, fleet(server, certificates, {0: honest, 1: slow}):
        rounds = list(server.rounds())
    assert rounds[0].report.of("declined") == (1,)
    assert_same(server, rounds)


def test_offers(certificates: Certificates) -> None:
    def offering(norm: float) -> Callable[[Scripted], None]:
        def script(client: Scripted) -> None:
            while True:
                task = client.task()
                client.say(Offer(task.round, task.client, 10, norm, 0.125, {"loss": 1.0}))
                if client.expect(Verdict).granted:
                    client.say(update_of(task))

        return script

    scripts = {client: offering(float(4 - client)) for client in range(3)}
    scripts[3] = offering(float("nan"))  # it cannot train
    server = listening(certificates, last=2, wait_for=4, selector=Least())
    with server, fleet(server, certificates, scripts):
        rounds = list(server.rounds())
    assert rounds[0].participants == (1, 2)
    assert (rounds[0].report.of("declined"), rounds[0].report.of("rejected")) == ((0,), (3,))
    for one in rounds[0].report.clients:
        times = one.times
        sent = [] if one.client in (0, 3) else [times.sending_s]
        assert times.sending_s in (None, *sent)
        steps = [times.asked_s, times.trained_s, times.decided_s, *sent, times.ended_s]
        known = [at for at in steps if at is not None]
        assert (len(known), known) == (len(steps), sorted(known))
    assert_same(server, rounds)


@dataclass(frozen=True)
class Changed:
    """How a client changes the updates of round 1."""

    delta: np.ndarray

    def __call__(self, client: Scripted) -> None:
        client.say(update_of(client.task(), delta=self.delta))
        honest(client)


@pytest.mark.parametrize(
    "delta", [np.zeros(3, np.float32), np.full(15, np.nan, np.float32)], ids=["length", "nan"]
)
def test_a_rejected_update_need_not_be_known(delta: np.ndarray, certificates: Certificates) -> None:
    server = listening(certificates, last=2, wait_for=2)
    with server, fleet(server, certificates, {0: honest, 1: Changed(delta)}):
        rounds = list(server.rounds())
    assert rounds[0].report.of("rejected") == (1,)
    assert_same(server, rounds)


def test_an_update_that_counted_and_is_no_clients_work_is_named(certificates: Certificates) -> None:
    server = listening(certificates, last=2, wait_for=2)
    planted = Changed(np.full(15, 0.75, np.float32))
    with server, fleet(server, certificates, {0: honest, 1: planted}):
        rounds = list(server.rounds())
    assert rounds[0].participants == (0, 1)
    with pytest.raises(JournalError, match=r"^round 1, client 1: its update"):
        again(server, rounds)


def test_an_update_that_counted_stays_so_if_it_is_sent_again(certificates: Certificates) -> None:
    sent_away = threading.Event()

    def patient(client: Scripted) -> None:
        task = client.task()
        assert sent_away.wait(60)
        client.say(update_of(task))
        honest(client)

    def insists(client: Scripted) -> None:
        update = update_of(client.task(), delta=np.full(15, 0.75, np.float32))
        try:
            for _ in range(MOST_VIOLATIONS + 2):
                client.say(update)
            client.until_told()
        finally:
            sent_away.set()

    server = listening(certificates, wait_for=2, rejoin_s=0.1)
    with server, fleet(server, certificates, {0: patient, 1: insists}):
        rounds = list(server.rounds())
    assert rounds[0].participants == (0, 1)
    assert any("another update" in one.reason for one in rounds[0].report.clients)
    events = [one.event for one in journals(rounds)[1].entries]
    updates = [one for one in events if isinstance(one, UpdateArrived) and one.client == 1]
    assert [one.rejected for one in updates[:2]] == [None, None]
    with pytest.raises(JournalError, match=r"^round 1, client 1: its update"):
        again(server, rounds)


def test_a_client_that_lost_its_memory_gets_a_second_task(certificates: Certificates) -> None:
    def forgetful(client: Scripted) -> None:
        client.say(update_of(client.task()))
        client.task()
        client.hang_up()
        client.kept = ()
        client.connect()
        client.be_ready()
        honest(client)

    server = listening(certificates, last=2, wait_for=2, selector=Uniform(1.0))
    with server, fleet(server, certificates, {0: honest, 1: forgetful}):
        rounds = list(server.rounds())
    second = journals(rounds)[2].entries
    commands = [one for entry in second for one in entry.commands]
    tasks = [task for name, *tasks in commands if name == "tasks" for task in tasks]
    assert [1, 1] in tasks
    assert [1, 0] in tasks
    assert StateLost(2, 1) in [one.event for one in second]
    assert_same(server, rounds)


def test_the_journal_says_who_came_and_left(certificates: Certificates) -> None:
    noticed = threading.Event()

    def leaves(client: Scripted) -> None:
        client.say(update_of(client.task()))
        assert noticed.wait(60)
        client.hang_up()

    server = listening(certificates, last=3, wait_for=2, rejoin_s=0.1)
    with server, fleet(server, certificates, {0: honest, 1: leaves}):
        rounds = []
        for one in server.rounds():
            rounds.append(one)
            noticed.set()
    assert rounds[-1].participants == (0,)
    found = [one.journal for one in rounds]
    assert (found[0].population, found[-1].population) == ({0: 10, 1: 10}, {0: 10})
    records = [now.record(before.population) for before, now in pairwise(found)]
    assert {"left": [1]} in [one.get("population") for one in records]
    assert_same(server, rounds)


def test_a_journal_must_have_its_rounds(certificates: Certificates) -> None:
    server = listening(certificates, last=2, wait_for=1)
    with server, fleet(server, certificates, {0: honest}):
        rounds = list(server.rounds())
    with pytest.raises(JournalError, match="round 1"):
        journals_of([], "journal.jsonl")
    found = journals(rounds[:1])
    replayed = Server(clients_of(found), server.logic, compute(), 2)
    with pytest.raises(JournalError, match="round 2"):
        list(follow(replayed, found, 2))
