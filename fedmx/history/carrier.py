"""The carrier of a recorded run: it gives a round the events of its journal.

Vectors are not in a journal. An executor computes the updates and answers that arrived once more.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmx.journal.chain import message_hash
from fedmx.journal.journal import (
    MEASURED,
    AnswerArrived,
    Entry,
    Journal,
    JournalError,
    Kept,
    UpdateArrived,
    answer_of,
    grouped,
)
from fedmx.simulation.executors.colluding import ColludingExecutor
from fedmx.simulation.executors.executor import Executor, SerialExecutor, Work
from fedmx.simulation.simulated_clients import tasks_of_tree
from layers.logic import (
    Answer,
    ClientFailed,
    ClientLedger,
    ClientLost,
    ClientState,
    ServerState,
    StateLost,
    Task,
    TooFewUpdates,
    Update,
)
from layers.logic.core.messages import EMPTY
from layers.logic.round.exchange import (
    Answered,
    Ask,
    Cancel,
    Command,
    Costs,
    Event,
    SendTask,
)
from layers.logic.round.patience import Patience
from layers.logic.round.pipeline import Trace

ADVICE = "the data, the settings, fedmx or the machine are not those of the run"


class JournalClients:
    """The clients of a recorded run: what happened then happens again, in the same order.

    Args:
        executor: computes updates and answers; entered and left together with this object.
        journals: the journals of the run, by round.
        untrusted: whether the run was deployed (see `Carrier.untrusted`).
        virtual: whether its time is virtual.
        population: returns the clients that could be asked when a round was opened.
        strict: whether an update that differs from the recorded one is an error.
    """

    address = ""  # no client connects

    def __init__(
        self,
        executor: Executor,
        journals: Mapping[int, Journal],
        *,
        untrusted: bool,
        virtual: bool,
        population: Callable[[Journal], Mapping[int, int]],
        strict: bool = False,
    ) -> None:
        self.untrusted = untrusted
        self.virtual = virtual
        self._executor = executor
        self._journals = journals
        self._population = population
        self._strict = strict
        self._only: Collection[int] | None = None  # the clients that work; None: all
        self._journal = Journal(0)
        self.patience: Patience | None = None
        self._entries: Iterator[Entry] = iter(())
        self._outcomes: dict[int, deque[Kept]] = {}  # by client, the events that end its tasks
        self._arriving = _updates(journals)
        self._samples: Mapping[int, int] = {}
        self._ledgers: dict[int, ClientLedger] = {}
        self._work: dict[int, tuple[Task, Work]] = {}  # by client, of tasks whose update will come
        self._answers: dict[int, Answer] = {}
        self._run_s = 0.0

    def __enter__(self) -> JournalClients:
        self._executor.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.finish("")
        self._executor.__exit__(*exc_info)

    # --- `Carrier` ---------------------------------------------------------------------------

    def open_round(self, state: ServerState) -> tuple[ServerState, Mapping[int, int]]:
        """Return the state that the recorded round after `state` began with, and its population.

        Raises:
            JournalError: there is no journal of this round.
        """
        round = state.round + 1
        journal = self._journals.get(round)
        if journal is None:
            last = max(self._journals, default=0)
            raise JournalError(
                f"the journal ends with round {last}; there is none of round {round}", round
            )
        self._journal, self._only = journal, None
        self.patience = journal.patience if self.untrusted else None
        self._entries = iter(journal.entries)
        self._outcomes = _outcomes(journal)
        self._samples = self._population(journal)
        return state.excluding(journal.excluded), self._samples

    def exchange(self, commands: Sequence[Command]) -> tuple[Event, float]:
        """Compare the commands with the recorded ones; return the recorded event.

        Raises:
            JournalError: the commands differ, or an update does in a `strict` replay.
            ClientFailed: a client's own code failed here.
        """
        entry = next(self._entries, None)
        if entry is None:
            raise self._differs("the recorded round ended here")
        self._compare(tuple(grouped(commands)), entry)
        for command in commands:
            self._carry(command)
        while self._only is not None and not self._is_wanted(entry.event):
            entry = next(self._entries)
        return self._event_of(entry.event), entry.at_s

    def only(self, clients: Collection[int]) -> None:
        """Let only these clients work in the round under way; skip the events of the others."""
        for client in self._work.keys() - set(clients):
            self._cancel(client)
        self._only = clients

    def trace(self, trace: Trace) -> None:
        """Let `trace` take each step of the clients' tasks and updates; the executor is serial."""
        works = self._executor
        serial = works.executor if isinstance(works, ColludingExecutor) else works
        assert isinstance(serial, SerialExecutor)
        serial.trace = trace

    # --- `RunCarrier` ------------------------------------------------------------------------

    @property
    def opened_s(self) -> float | None:
        """Virtual seconds of the run at which the last round was opened; None: real time."""
        return self._journal.opened_s

    def memory_of(self, client: int, state: ServerState) -> ClientState:
        """Return a client's memory after its last accepted update."""
        return self._ledgers.get(client, ClientLedger()).accepted(client, state)

    def tree(self) -> dict[str, Any]:
        """Return the clients' ledgers and the time of the run, as a simulation has them."""
        ledgers = {client: kept.tree() for client, kept in self._ledgers.items()}
        return {"ledgers": ledgers, "run_s": self._run_s}

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Continue from the result of `tree`, or from the clients' part of a deployed checkpoint.

        Deployed clients keep the memory of their hooks themselves: after such a checkpoint they
        begin without one.
        """
        ledgers = tree.get("ledgers", {})
        self._ledgers = {client: ClientLedger.of_tree(kept) for client, kept in ledgers.items()}
        self._outcomes = {}
        for task in tasks_of_tree(tree.get("tasks", {})):
            self._send(task)
        self._run_s = tree.get("run_s", 0.0)

    def keep_assets(self, folder: Path) -> None:
        """Do nothing: clients have the assets in memory."""

    def forget(self, reason: str) -> None:
        """Refuse to step back, since the recorded run did not do so here.

        Raises:
            JournalError: always.
        """
        raise self._differs(reason)

    def again(self, error: TooFewUpdates) -> bool:
        """Return no: the same clients would bring the same updates."""
        return False

    def finish(self, reason: str) -> None:
        """Cancel all work."""
        for client in list(self._work):
            self._cancel(client)

    # --- inside ------------------------------------------------------------------------------

    def _compare(self, now: tuple[list[Any], ...], entry: Entry) -> None:
        """Compare the commands of an exchange with the recorded ones.

        Raises:
            JournalError: they differ.
        """
        if self._only is not None or now == entry.commands:
            return
        for mine, recorded in itertools.zip_longest(now, entry.commands, fillvalue=["nothing"]):
            if mine == recorded:
                continue
            for one, other in itertools.zip_longest(mine[1:], recorded[1:]):
                if one != other and mine[0] == recorded[0] in ("tasks", "verdicts", "cancel"):
                    client = (one or other)[0]
                    here, there = one or "nothing", other or "nothing"
                    raise self._differs(f"{mine[0]}: {here} here, {there} in the journal", client)
            raise self._differs(f"{mine} here, {recorded} in the journal")

    def _carry(self, command: Command) -> None:
        match command:
            case SendTask(task):
                self._send(task)
            case Ask(question, _) if question.name not in MEASURED:
                answering = [
                    entry.event.client
                    for entry in self._journal.entries
                    if isinstance(entry.event, AnswerArrived) and not entry.event.measured
                ]
                asked = [one for one in dict.fromkeys(answering) if one in command.clients]
                self._answers = {}
                for result in self._executor.ask(question, asked, self._ledgers):
                    result.keep(self._ledgers)
                    self._answers[result.answer.client] = result.answer
            case Cancel(client):
                self._cancel(client)
            case _:
                pass

    def _send(self, task: Task) -> None:
        """Begin the work on a task whose update will arrive."""
        client = task.client
        self._cancel(client)
        outcomes = self._outcomes.get(client)
        first = outcomes[0] if outcomes else None
        arrives = isinstance(first, UpdateArrived) or (
            first is None and (client, task.round) in self._arriving
        )
        arrives = arrives and (self._only is None or client in self._only)
        seen_by_malicious = isinstance(self._executor, ColludingExecutor)
        if arrives or (seen_by_malicious and not isinstance(first, StateLost)):
            ledger = self._ledgers.get(client, ClientLedger())
            work = self._executor.submit(task, ledger)
            if arrives:
                self._work[client] = task, work

    def _is_wanted(self, event: Kept) -> bool:
        """Return whether a round in which only some clients work handles this event."""
        client = getattr(event, "client", None)
        return client is None or (self._only is not None and client in self._only)

    def _event_of(self, kept: Kept) -> Event:
        if isinstance(kept, Costs) and self.virtual:
            self._run_s = (self._journal.opened_s or 0.0) + kept.took_s
        if isinstance(kept, AnswerArrived):
            return Answered(self._answer_of(kept))
        outcomes = self._outcomes.get(getattr(kept, "client", -1))
        if outcomes and kept is outcomes[0]:
            outcomes.popleft()
        return self._update_of(kept) if isinstance(kept, UpdateArrived) else kept

    def _answer_of(self, kept: AnswerArrived) -> Answer:
        if kept.measured:
            return answer_of(kept)
        answer = self._answers[kept.client]
        if self._strict and message_hash(answer) != kept.blake3:
            raise self._differs("its answer differs from the recorded one", kept.client)
        return answer

    def _update_of(self, kept: UpdateArrived) -> Update | ClientLost:
        if not kept.blake3:  # no task had asked for it, and nothing of it was used
            return Update(kept.round, kept.client, 0, 0, EMPTY, EMPTY)
        rejected = ClientLost(kept.round, kept.client, kept.rejected or "", rejected=True)
        _, work = self._work.pop(kept.client, (None, None))
        if work is None:
            if kept.rejected is not None:
                return rejected
            raise JournalError(
                f"round {self._journal.round}, client {kept.client}: its task is of round "
                f"{kept.round}, before the round that the replay began with; begin earlier",
                self._journal.round,
                kept.client,
            )
        try:
            result = work.result()
            if message_hash(result.update) != kept.blake3:
                self._check_update(result.update, kept)
        except (ClientFailed, JournalError):
            if kept.rejected is None:
                raise
            return rejected  # a client that breaks the rules sent it: its values are not known
        self._ledgers[kept.client] = result.ledger
        return result.update

    def _check_update(self, update: Update, kept: UpdateArrived) -> None:
        """Refuse an update that differs from the recorded one.

        Raises:
            JournalError: the replay is strict, or the update was rejected.
        """
        if not self._strict and kept.rejected is None:
            return
        announced, why = self._samples.get(kept.client, 0), ADVICE
        if update.samples < announced:
            why = f"it had {announced} samples, and has {update.samples} here"
        hashes = f"BLAKE3 {message_hash(update)[:12]}…, recorded {kept.blake3[:12]}…"
        raise self._differs(f"its update differs ({hashes})", kept.client, why)

    def _differs(self, what: str, client: int | None = None, why: str = ADVICE) -> JournalError:
        number = self._journal.round
        who = f"round {number}" if client is None else f"round {number}, client {client}"
        return JournalError(f"{who}: {what}; {why}", number, client)

    def _cancel(self, client: int) -> None:
        _, work = self._work.pop(client, (None, None))
        if work is not None:
            work.cancel()


def _outcomes(journal: Journal) -> dict[int, deque[Kept]]:
    """Return, by client, the events of a round that end its tasks, in their order."""
    found: dict[int, deque[Kept]] = {}
    for entry in journal.entries:
        event = entry.event
        if isinstance(event, UpdateArrived) and not event.blake3:
            continue  # no task had asked for it
        if isinstance(event, UpdateArrived | ClientLost | StateLost):
            found.setdefault(event.client, deque()).append(event)
    return found


def _updates(journals: Mapping[int, Journal]) -> frozenset[tuple[int, int]]:
    """Return the tasks whose updates arrived, in whatever round, as (client, number)."""
    return frozenset(
        (entry.event.client, entry.event.round)
        for journal in journals.values()
        for entry in journal.entries
        if isinstance(entry.event, UpdateArrived) and entry.event.blake3
    )
