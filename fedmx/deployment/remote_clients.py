"""Deployed clients behind a listener, as the logic layer sees them."""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from fedmx.assembly.asset_file import AssetFile
from fedmx.deployment.client_sessions import TICK_S, ClientEvent, ClientSessions
from fedmx.deployment.membership import Reminder, named
from fedmx.errors import FedmxError
from fedmx.protocol.messages import Setup
from fedmx.server.clients import Overhead
from layers.logic import (
    Answer,
    ClientLost,
    Offer,
    Plan,
    Question,
    StateLost,
    Task,
    TimerFired,
    Times,
    Traffic,
    Update,
    Verdict,
)
from layers.logic.clock import Clock, RealClock
from layers.network import Listener

log = logging.getLogger("fedmx.server")
REMIND_S = 60.0  # after which a round says whom it waits for


class RemoteClients:
    """Clients that connect to `listener`; may be entered again inside of a with statement.

    Args:
        listener: where they connect; started and closed here.
        setup: what each is told first, with its `client` filled in; None: both ends are built in
            Python, and there is no experiment file to tell clients about.
        clients: numbers go from 0 to `clients` - 1; None: any number.
        wait_for: how many must be ready before the first round of this process begins.
        at_least: how many must be there, or may still come back, before any further one.
        rejoin_s: how long a client that is gone may take to come back before it is lost.
        assets: what every client is given before it is ready.
    """

    foreign = True

    def __init__(
        self,
        listener: Listener,
        setup: Setup | None = None,
        *,
        clients: int | None = None,
        wait_for: int = 1,
        at_least: int = 1,
        rejoin_s: float = 60.0,
        assets: Sequence[AssetFile] = (),
    ) -> None:
        setup = setup or Setup(uuid.uuid4().hex, "", "", 0, (), 0)
        self._sessions = ClientSessions(listener, setup, clients, rejoin_s, assets)
        self._wait_for = wait_for
        self._at_least = at_least
        self._entered = 0
        self._assembled = False
        self._over: dict[int, int] = {}  # the last round that each client was done with
        self._round = 0
        self._outstanding: Mapping[int, Task] = {}  # a view of the round's
        self._clock = RealClock()
        self._timer_s = math.inf  # since the round began

    def __enter__(self) -> RemoteClients:
        if self._entered == 0:
            self._sessions.open()
        self._entered += 1
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._entered -= 1
        if self._entered == 0:
            self._sessions.close(0.5 if any(exc_info) else 5.0)

    @property
    def listener(self) -> Listener:
        """The listener that clients connect to."""
        return self._sessions.listener

    @property
    def address(self) -> str:
        """Where clients connect."""
        return self._sessions.listener.address

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
        self._outstanding = self._sessions.outstanding = {}
        self._pump()
        reminder = Reminder(0.0)
        while True:
            for client in self._sessions.there.expire():
                log.warning("client %d is not back; going on without it", client)
            needed = self._at_least if self._assembled else self._wait_for
            if len(self._sessions.there.samples) >= needed:
                self._assembled = True
                return dict(self._sessions.there.samples)
            if reminder.due():
                self._say_who_is_missing(needed)
            self._unasked(self._next(TICK_S))

    def remembers(self, client: int, round: int) -> bool:
        """Return whether the client has what its hooks kept after this round, as it says."""
        return round in self._sessions.kept.get(client, ())

    def ask(
        self, question: Question, clients: Sequence[int], deadline_s: float | None
    ) -> Sequence[Answer]:
        """Ask clients at the same time; return the answers of those that answered in time."""
        answers: list[Answer] = []
        there, rejections = self._sessions.there, self._sessions.rejections
        asked = self._sessions.questions = dict.fromkeys(clients, question)
        ends = math.inf if deadline_s is None else time.monotonic() + deadline_s
        reminder = Reminder(REMIND_S)
        for client in clients:
            there.expect(client)  # it may have gone for good since it was chosen
            self._sessions.send(client, question)
        while asked and (left_s := ends - time.monotonic()) > 0:
            event = self._next(left_s)
            if _replies(event, question) and event.client in asked:
                del asked[event.client]
                if isinstance(event, Answer):
                    answers.append(event)
                else:
                    rejections.add(f"client {event.client}: no answer: {event.reason}")
            else:
                self._unasked(event)
            for client in there.expire():
                asked.pop(client, None)
            if reminder.due():
                log.info("waiting for the answers of clients %s", named(set(asked)))
        for client in asked:
            rejections.add(f"client {client}: no answer within {deadline_s:g} s")
        asked.clear()
        return sorted(answers, key=lambda answer: answer.client)

    def begin(
        self, round: int, plan: Plan, outstanding: Mapping[int, Task], deadline_s: float | None
    ) -> None:
        """Begin a round: its deadline counts from now."""
        self._round = round
        self._outstanding = self._sessions.outstanding = outstanding
        self._clock.begin(deadline_s)
        self._timer_s = math.inf
        for client, task in outstanding.items():  # in flight since an earlier round
            self._sessions.there.expect(client)
            if client in self._sessions.returned:
                self._sessions.give(task)
        self._sessions.returned.clear()

    def send(self, tasks: Sequence[Task]) -> None:
        """Send tasks; a client that is gone gets its task when it is back."""
        new = {task.client for task in tasks}
        # Whoever is back by now gets its new task below, and not twice.
        before = {client: task for client, task in self._outstanding.items() if client not in new}
        self._sessions.outstanding = before
        self._pump()  # so that nothing goes to a connection that has not said that it is ready
        self._sessions.outstanding = self._outstanding
        asked = self._clock.times()
        for task in tasks:
            if self._over.get(task.client) == task.round:
                del self._over[task.client]  # the round is run again
            if task.client not in asked:
                self._clock.ask(task.client)
            self._sessions.there.expect(task.client)
            self._sessions.give(task)

    def answer(self, verdicts: Sequence[Verdict]) -> None:
        """Tell clients what became of their offers."""
        for verdict in verdicts:
            self._sessions.send(verdict.client, verdict)
            self._clock.note(verdict.client, "decided_s")
            if verdict.granted:
                self._clock.note(verdict.client, "sending_s")
            else:  # the round has struck its task out already
                self._over[verdict.client] = verdict.round
                self._clock.note(verdict.client, "ended_s")

    def set_timer(self, at_s: float | None) -> None:
        """Set the moment at which the timer fires."""
        self._timer_s = math.inf if at_s is None else at_s

    def events(self) -> Generator[Offer | Update | ClientLost | StateLost | TimerFired, None, None]:
        """Yield what arrives, until no task is outstanding or the deadline has passed."""
        try:
            yield from self._events()
        finally:  # also when the round has enough
            self._give_up()
            self._clock.end()

    def _events(
        self,
    ) -> Generator[Offer | Update | ClientLost | StateLost | TimerFired, None, None]:
        reminder = Reminder(REMIND_S)
        there, outstanding = self._sessions.there, self._outstanding
        while outstanding and self._clock.left_s > 0:
            timer_left_s = self._timer_s - self._clock.elapsed_s
            event = self._fitting(self._next(min(self._clock.left_s, timer_left_s)))
            if isinstance(event, Update | ClientLost):
                self._done_with(event.client)
            if isinstance(event, Offer):
                self._clock.note(event.client, "trained_s")
                event = replace(event, at_s=self._clock.elapsed_s)
            if event is not None:
                yield event
            if self._clock.elapsed_s >= self._timer_s:
                self._timer_s = math.inf
                yield TimerFired()
            for client in there.expire():
                task = self._done_with(client)
                if task is not None:
                    reason = f"disconnected, and not back within {there.rejoin_s:g} s"
                    yield ClientLost(task.round, client, reason)
            if outstanding and reminder.due():
                who = named(set(outstanding))
                log.info("round %d: waiting for clients %s", self._round, who)

    @property
    def clock(self) -> Clock:
        """The clock by which rounds are timed."""
        return self._clock

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began."""
        return self._clock.elapsed_s

    def times(self) -> Mapping[int, Times]:
        """Return who did what when, as far as it can be seen from here."""
        return self._clock.times()

    def traffic(self) -> Mapping[int, Traffic]:
        """Return the bytes of messages since the last call."""
        return self._sessions.bytes.take()

    # --- what the server asks ----------------------------------------------------------------

    def overhead(self) -> Overhead:
        """Return what was taken besides messages since the last call."""
        traffic, counter = self._sessions.listener.traffic(), self._sessions.bytes
        files = traffic.file_bytes_sent + traffic.file_bytes_received
        total = traffic.sent_bytes + traffic.received_bytes
        return Overhead(
            control_bytes=counter.control(total - files),
            file_bytes=counter.files(files),
            rejected_connections=self._sessions.rejections.take(),
        )

    def keep_assets(self, folder: Path) -> None:
        """Keep the files of the assets, if there are any, in `folder`."""
        self._sessions.asset_sender.folder = folder

    def tree(self) -> dict[str, Any]:
        """Return the last round that each client was done with; clients keep their own memory."""
        return {"over": dict(self._over)}

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Take back what `tree` returned: what is late is known after a restart, too."""
        self._over = dict(tree["over"])

    def finish(self, reason: str) -> None:
        """Tell every client that the run is over, also those that are about to come back."""
        # Unassembled: an earlier process ran the last round and told perhaps nobody.
        self._sessions.farewell(reason, everyone=not self._assembled)

    # --- what of all that arrives is for the logic -------------------------------------------

    def _next(self, wait_s: float) -> ClientEvent | None:
        """Return what arrived, waiting for one event of the network at most."""
        return self._sessions.next(wait_s)

    def _pump(self) -> None:
        """Learn who has come and gone."""
        self._sessions.pump()

    def _fitting(self, event: ClientEvent | None) -> Offer | Update | ClientLost | StateLost | None:
        """Return what the round under way has to see; report the rest."""
        if event is None or isinstance(event, Answer):
            self._unasked(event)
            return None
        client, task = event.client, self._outstanding.get(event.client)
        if task is not None and event.round == task.round and _answers(event, task):
            if isinstance(event, Offer | Update):
                self._sessions.kept[client] = {task.last_accepted_round, task.round}
            return event
        if isinstance(event, StateLost):
            return None  # that task is over
        if event.round == self._over.get(client) and (task or event.round != self._round):
            self._unasked(event)
            return None
        if isinstance(event, Update) and (task or not self._sessions.rejections.offend(client)):
            return event  # the logic refuses it, and its report says why
        self._unasked(event)
        if task is None:
            return None
        reason = f"sent an {_kind(event)} of round {event.round}, not its update"
        return ClientLost(task.round, client, reason, rejected=True)

    def _unasked(self, event: ClientEvent | None) -> None:
        """Report what nobody waits for (any more)."""
        if event is None or isinstance(event, StateLost):
            return
        what = _kind(event)
        if not isinstance(event, Answer) and event.round == self._over.get(event.client):
            # As it comes from a client that is slow, or was asked twice when it came back.
            what = f"its {what} of round {event.round} came too late, or again"
            log.info("client %d: %s", event.client, what)
            self._sessions.rejections.add(f"client {event.client}: {what}")
            if self._sessions.rejections.offend(event.client):
                self._sessions.offence(event.client, "sent too much that it was not asked for")
        else:
            self._sessions.offence(event.client, f"sent an {what} that it was not asked for")

    def _done_with(self, client: int) -> Task | None:
        """Take note that nothing of a client's task is waited for any more; return the task."""
        task = self._outstanding.get(client)
        if task is not None:
            self._over[client] = task.round
            self._clock.note(client, "ended_s")
        return task

    def _give_up(self) -> None:
        """Stop waiting; what still comes for this round is too late."""
        for client in self._outstanding:
            self._done_with(client)

    def _say_who_is_missing(self, needed: int) -> None:
        ready, number = set(self._sessions.there.samples), self._sessions.clients
        text = f"waiting for clients: {len(ready)} of {needed} are ready"
        if number is not None:
            missing = set(range(number)) - ready
            text += f"; not there: {named(missing)}"
        log.info("%s", text)


def _kind(event: ClientEvent) -> str:
    return "update" if isinstance(event, ClientLost) else type(event).__name__.lower()


def _replies(event: ClientEvent | None, question: Question) -> TypeGuard[Answer | ClientLost]:
    """Whether this is about the question, and not about an earlier one or a task."""
    if isinstance(event, Answer):
        return (event.question, event.round) == (question.name, question.round)
    return isinstance(event, ClientLost) and event.round == 0


def _answers(event: ClientEvent, task: Task) -> bool:
    return task.offer or not isinstance(event, Offer)
