"""Deployed clients behind a listener, as the logic layer sees them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from fedmx.assembly.asset_file import SharedSamples
from fedmx.deployment.client_sessions import TICK_S, Arrival, Reception
from fedmx.deployment.membership import Reminder, named
from fedmx.errors import FedmxError
from fedmx.protocol.messages import Setup
from layers.logic import (
    Answer,
    Forgot,
    Lost,
    Offer,
    Plan,
    Question,
    Task,
    Times,
    Traffic,
    Update,
    Verdict,
)
from layers.logic.clock import RealClock
from layers.network import Listener

log = logging.getLogger("fedmx.server")
REMIND_S = 60.0  # after which a round says whom it waits for


class SocketClients:
    """Clients that connect to `listener`; may be entered again inside of a with statement.

    Args:
        listener: where they connect; started and closed here.
        setup: what each is told first; its `client` is filled in.
        clients: numbers go from 0 to `clients` - 1; None: any number.
        wait_for: how many must be ready before the first round of this process begins.
        at_least: how many must be there, or may still come back, before any further one.
        rejoin_s: how long a client that is gone may take to come back before it is lost.
        deadline_s: how long a round may take; None: as long as its slowest client.
        shared: samples that every client is given before it is ready.
    """

    foreign = True
    virtual = False
    waited_s = 0.0  # a real run does not count the time in which it waits for clients

    def __init__(
        self,
        listener: Listener,
        setup: Setup,
        *,
        clients: int | None = None,
        wait_for: int = 1,
        at_least: int = 1,
        rejoin_s: float = 60.0,
        deadline_s: float | None = None,
        shared: SharedSamples | None = None,
    ) -> None:
        self._reception = Reception(listener, setup, clients, rejoin_s, shared)
        self._wait_for = wait_for
        self._at_least = at_least
        self._deadline_s = deadline_s
        self._entered = 0
        self._assembled = False
        self._over: dict[int, int] = {}  # the last round that each client was done with
        self._round = 0
        self._survey_began: float | None = None  # if one is under way
        self._clock = RealClock()

    def __enter__(self) -> SocketClients:
        if self._entered == 0:
            self._reception.open()
        self._entered += 1
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._entered -= 1
        if self._entered == 0:
            self._reception.close(0.5 if any(exc_info) else 5.0)

    @property
    def listener(self) -> Listener:
        """The listener that clients connect to."""
        return self._reception.listener

    @property
    def address(self) -> str:
        """Where clients connect."""
        return self._reception.listener.address

    # --- what the logic layer asks -----------------------------------------------------------

    def population(self) -> Mapping[int, int]:
        """Return the clients that are ready, or were and may still come back.

        Waits until there are enough of them.

        Raises:
            FedmxError: nobody could come, since this is not listening.
        """
        if self._entered == 0:
            raise FedmxError("the server does not listen; run its rounds inside `with server:`")
        self._give_up()  # a round that an error ended may have left something behind
        self._pump()
        reminder = Reminder(0.0)
        while True:
            for client in self._reception.there.expire():
                log.warning("client %d is not back; going on without it", client)
            needed = self._at_least if self._assembled else self._wait_for
            if len(self._reception.there.samples) >= needed:
                self._assembled = True
                return dict(self._reception.there.samples)
            if reminder.due():
                self._say_who_is_missing(needed)
            self._unasked(self._next(TICK_S))

    def remembers(self, client: int, round: int) -> bool:
        """Return whether the client has what its hooks kept after this round, as it says."""
        return round in self._reception.kept.get(client, ())

    def ask(self, question: Question, clients: Sequence[int]) -> Sequence[Answer]:
        """Ask clients at the same time; return the answers of those that answered in time."""
        answers: list[Answer] = []
        there, refusals = self._reception.there, self._reception.refusals
        asked = self._reception.questions = dict.fromkeys(clients, question)
        self._survey_began = time.monotonic()
        reminder = Reminder(REMIND_S)
        for client in clients:
            self._reception.send(client, question)
        while asked and self._left_s() > 0:
            arrival = self._next(self._left_s())
            if _replies(arrival, question) and arrival.client in asked:
                del asked[arrival.client]
                if isinstance(arrival, Answer):
                    answers.append(arrival)
                else:
                    refusals.add(f"client {arrival.client}: no answer: {arrival.reason}")
            else:
                self._unasked(arrival)
            for client in there.expire():
                asked.pop(client, None)
            if reminder.due():
                log.info("waiting for the answers of clients %s", named(set(asked)))
        for client in asked:
            refusals.add(f"client {client}: no answer within {self._deadline_s:g} s")
        asked.clear()
        self._survey_began = None
        return sorted(answers, key=lambda answer: answer.client)

    def begin(self, round: int, plan: Plan) -> None:
        """Begin a round: its deadline counts from now."""
        self._round = round
        self._clock.begin()

    def send(self, tasks: Sequence[Task]) -> None:
        """Send tasks; a client that is gone gets its task when it is back."""
        self._pump()  # so that nothing goes to a connection that has not said that it is ready
        for task in tasks:
            if self._over.get(task.client) == task.round:
                del self._over[task.client]  # the round is run again
            if task.client not in self._reception.tasks:
                self._clock.ask(task.client)
            self._reception.tasks[task.client] = task
            self._reception.send(task.client, task)

    def answer(self, verdicts: Sequence[Verdict]) -> None:
        """Tell clients what became of their offers."""
        for verdict in verdicts:
            self._reception.send(verdict.client, verdict)
            self._clock.note(verdict.client, "decided_s")
            if verdict.granted:
                self._clock.note(verdict.client, "sending_s")
            else:
                self._done_with(verdict.client)

    def events(self) -> Iterator[Offer | Update | Lost | Forgot]:
        """Yield what arrives, until nothing is outstanding or the deadline has passed."""
        reminder = Reminder(REMIND_S)
        there, tasks = self._reception.there, self._reception.tasks
        while tasks and self._left_s() > 0:
            arrival = self._fitting(self._next(self._left_s()))
            if isinstance(arrival, Update | Lost):
                self._done_with(arrival.client)
            if isinstance(arrival, Offer):
                self._clock.note(arrival.client, "trained_s")
                arrival = replace(arrival, at_s=self._clock.elapsed_s)
            if arrival is not None:
                yield arrival
            for client in there.expire():
                task = self._done_with(client)
                if task is not None:
                    reason = f"disconnected, and not back within {there.rejoin_s:g} s"
                    yield Lost(task.round, client, reason)
            if tasks and reminder.due():
                who = named(set(tasks))
                log.info("round %d: waiting for clients %s", self._round, who)
        self._give_up()
        self._clock.end()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began."""
        return self._clock.elapsed_s

    def times(self) -> Mapping[int, Times]:
        """Return who did what when, as far as it can be seen from here."""
        return self._clock.times()

    def traffic(self) -> Mapping[int, Traffic]:
        """Return the bytes of messages since the last call."""
        return self._reception.bytes.take()

    # --- what the server asks ----------------------------------------------------------------

    def control_bytes(self) -> int:
        """Return the bytes since the last call that were no message of a round, and no file."""
        traffic = self._reception.listener.traffic()
        files = traffic.file_bytes_sent + traffic.file_bytes_received
        total = traffic.sent_bytes + traffic.received_bytes
        return self._reception.bytes.control(total - files)

    def file_bytes(self) -> int:
        """Return the bytes of files since the last call, in both directions together."""
        traffic = self._reception.listener.traffic()
        return self._reception.bytes.files(traffic.file_bytes_sent + traffic.file_bytes_received)

    def share_from(self, path: Path) -> None:
        """Keep the file of the samples that clients are given, if there are any, at `path`."""
        if self._reception.handout is not None:
            self._reception.handout.path = path

    def refusals(self) -> tuple[str, ...]:
        """Return what was refused since the last call, besides updates that a round reports."""
        return self._reception.refusals.take()

    def tree(self) -> dict[str, Any]:
        """Return nothing: deployed clients keep their own memory."""
        return {}

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Take nothing back."""

    def finish(self, reason: str) -> None:
        """Tell every client that the run is over, also those that are about to come back."""
        # Unassembled: an earlier process ran the last round and told perhaps nobody.
        self._reception.farewell(reason, everyone=not self._assembled)

    # --- what of all that arrives is for the logic -------------------------------------------

    def _next(self, wait_s: float) -> Arrival | None:
        """Return what arrived, waiting for one event of the network at most."""
        return self._reception.next(wait_s)

    def _pump(self) -> None:
        """Learn who has come and gone."""
        self._reception.pump()

    def _fitting(self, arrival: Arrival | None) -> Offer | Update | Lost | Forgot | None:
        """Return what the round under way has to see; report the rest."""
        if arrival is None or isinstance(arrival, Answer):
            self._unasked(arrival)
            return None
        client, task = arrival.client, self._reception.tasks.get(arrival.client)
        if task is not None and arrival.round == task.round and _answers(arrival, task):
            if isinstance(arrival, Offer | Update):
                self._reception.kept[client] = {task.counted, task.round}
            return arrival
        if isinstance(arrival, Forgot):
            return None  # that task is over
        if arrival.round == self._over.get(client) and (task or arrival.round != self._round):
            self._unasked(arrival)
            return None
        if isinstance(arrival, Update) and (task or not self._reception.refusals.offend(client)):
            return arrival  # the logic refuses it, and its report says why
        self._unasked(arrival)
        if task is None:
            return None
        reason = f"sent an {_kind(arrival)} of round {arrival.round}, not its update"
        return Lost(task.round, client, reason, refused=True)

    def _unasked(self, arrival: Arrival | None) -> None:
        """Report what nobody waits for (any more)."""
        if arrival is None or isinstance(arrival, Forgot):
            return
        what = _kind(arrival)
        if not isinstance(arrival, Answer) and arrival.round == self._over.get(arrival.client):
            # As it comes from a client that is slow, or was asked twice when it came back.
            what = f"its {what} of round {arrival.round} came too late, or again"
            log.info("client %d: %s", arrival.client, what)
            self._reception.refusals.add(f"client {arrival.client}: {what}")
            if self._reception.refusals.offend(arrival.client):
                self._reception.offence(arrival.client, "sent too much that it was not asked for")
        else:
            self._reception.offence(arrival.client, f"sent an {what} that it was not asked for")

    def _done_with(self, client: int) -> Task | None:
        """Wait for nothing more of a client's task; return it."""
        task = self._reception.tasks.pop(client, None)
        if task is not None:
            self._over[client] = task.round
            self._clock.note(client, "ended_s")
        return task

    def _give_up(self) -> None:
        """Stop waiting; what still comes for this round is too late."""
        for client in list(self._reception.tasks):
            self._done_with(client)

    def _left_s(self) -> float:
        """Return the seconds until the deadline."""
        if self._deadline_s is None:
            return TICK_S
        if self._survey_began is not None:
            return self._survey_began + self._deadline_s - time.monotonic()
        return self._deadline_s - self._clock.elapsed_s if self._clock.running else TICK_S

    def _say_who_is_missing(self, needed: int) -> None:
        ready, number = set(self._reception.there.samples), self._reception.clients
        text = f"waiting for clients: {len(ready)} of {needed} are ready"
        if number is not None:
            missing = set(range(number)) - ready
            text += f"; not there: {named(missing)}"
        log.info("%s", text)


def _kind(arrival: Arrival) -> str:
    return "update" if isinstance(arrival, Lost) else type(arrival).__name__.lower()


def _replies(arrival: Arrival | None, question: Question) -> TypeGuard[Answer | Lost]:
    """Whether this is about the question, and not about an earlier one or a task."""
    if isinstance(arrival, Answer):
        return (arrival.question, arrival.round) == (question.name, question.round)
    return isinstance(arrival, Lost) and arrival.round == 0


def _answers(arrival: Arrival, task: Task) -> bool:
    return task.offer or not isinstance(arrival, Offer)
