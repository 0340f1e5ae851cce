"""Deployed clients behind a listener, as the logic layer sees them."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from fedmx.attendance import Attendance, Reminder, named
from fedmx.errors import FedmxError
from fedmx.message_bytes import MessageBytes
from fedmx.messages import CannotTakePart, Failed, Finished, Ready, Setup
from fedmx.refusals import Refusals
from layers.logic import (
    Answer,
    Forgot,
    Lost,
    Offer,
    Question,
    Task,
    Traffic,
    Update,
    Verdict,
)
from layers.network import Event as NetworkEvent
from layers.network import (
    Joined,
    Left,
    LimitExceeded,
    Listener,
    NetworkError,
    NotConnected,
    Received,
    Refused,
    Sent,
)

log = logging.getLogger("fedmx.server")
TICK_S = 0.5  # how often a wait looks at its limits
REMIND_S = 60.0  # after which a round says whom it waits for
FAREWELL_S = 12.0  # a little more than a client waits between two attempts to come back
MOST_SAMPLES = 1 << 53
REASON_LENGTH = 500
TRACEBACK_LENGTH = 20_000

Arrival: TypeAlias = "Offer | Update | Lost | Forgot | Answer"


def identity(client: int) -> str:
    """Return the name under which client number `client` connects."""
    return f"client-{client}"


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
    """

    foreign = True

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
    ) -> None:
        self._listener = listener
        self._setup = setup
        self._number = clients
        self._wait_for = wait_for
        self._at_least = at_least
        self._deadline_s = deadline_s
        self._there = Attendance(rejoin_s)
        self._bytes = MessageBytes()
        self._refusals = Refusals()
        self._entered = 0
        self._assembled = False
        self._arrived: deque[Arrival] = deque()
        self._outstanding: dict[int, Task] = {}
        self._over: dict[int, int] = {}  # the last round that each client was done with
        self._kept: dict[int, set[int]] = {}  # after which rounds each client has its memory
        self._asked: dict[int, Question] = {}
        self._blamed: dict[int, str] = {}  # why a client's connection is about to be closed
        self._round = 0
        self._began: float | None = None  # when the round, or the survey, under way did
        self._finished: str | None = None
        self._told: set[int] = set()

    def __enter__(self) -> SocketClients:
        if self._entered == 0:
            self._listener.start()
            log.info("listening on %s", self._listener.address)
        self._entered += 1
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._entered -= 1
        if self._entered == 0:
            over = self._finished is not None
            if over:
                self._pump()  # tells those who have come since
            reason = f"the run is over: {self._finished}" if over else "the server closes"
            calm = not any(exc_info)
            self._listener.close(5.0 if calm else 0.5, reason, final=over)

    @property
    def listener(self) -> Listener:
        """The listener that clients connect to."""
        return self._listener

    @property
    def address(self) -> str:
        """Where clients connect."""
        return self._listener.address

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
            for client in self._there.expire():
                log.warning("client %d is not back; going on without it", client)
            needed = self._at_least if self._assembled else self._wait_for
            if len(self._there.samples) >= needed:
                self._assembled = True
                return dict(self._there.samples)
            if reminder.due():
                self._say_who_is_missing(needed)
            self._unasked(self._next(TICK_S))

    def remembers(self, client: int, round: int) -> bool:
        """Return whether the client has what its hooks kept after this round, as it says."""
        return round in self._kept.get(client, ())

    def ask(self, question: Question, clients: Sequence[int]) -> Sequence[Answer]:
        """Ask clients at the same time; return the answers of those that answered in time."""
        answers: list[Answer] = []
        self._asked = dict.fromkeys(clients, question)
        self._began = time.monotonic()
        reminder = Reminder(REMIND_S)
        for client in clients:
            if client in self._there.ready:
                self._send(client, question)
        while self._asked and self._left_s() > 0:
            arrival = self._next(self._left_s())
            if isinstance(arrival, Answer | Lost) and arrival.client in self._asked:
                del self._asked[arrival.client]
                if isinstance(arrival, Answer):
                    answers.append(arrival)
                else:
                    self._refusals.add(f"client {arrival.client}: no answer: {arrival.reason}")
            else:
                self._unasked(arrival)
            for client in self._there.expire():
                self._asked.pop(client, None)
            if reminder.due():
                log.info("waiting for the answers of clients %s", named(set(self._asked)))
        for client in self._asked:
            self._refusals.add(f"client {client}: no answer within {self._deadline_s:g} s")
        self._asked, self._began = {}, None
        return sorted(answers, key=lambda answer: answer.client)

    def send(self, tasks: Sequence[Task]) -> None:
        """Send tasks; a client that is gone gets its task when it is back."""
        self._pump()  # so that nothing goes to a connection that has not said that it is ready
        for task in tasks:
            if self._began is None:
                self._began, self._round = time.monotonic(), task.round
            if self._over.get(task.client) == task.round:
                del self._over[task.client]  # the round is run again
            self._outstanding[task.client] = task
            if task.client in self._there.ready:
                self._send(task.client, task)

    def answer(self, verdicts: Sequence[Verdict]) -> None:
        """Tell clients what became of their offers."""
        for verdict in verdicts:
            if verdict.client in self._there.ready:
                self._send(verdict.client, verdict)
            if not verdict.granted:
                self._done_with(verdict.client)

    def events(self) -> Iterator[Offer | Update | Lost | Forgot]:
        """Yield what arrives, until nothing is outstanding or the deadline has passed."""
        reminder = Reminder(REMIND_S)
        while self._outstanding and self._left_s() > 0:
            arrival = self._fitting(self._next(self._left_s()))
            if isinstance(arrival, Update | Lost):
                self._done_with(arrival.client)
            if arrival is not None:
                yield arrival
            for client in self._there.expire():
                task = self._done_with(client)
                if task is not None:
                    reason = f"disconnected, and not back within {self._there.rejoin_s:g} s"
                    yield Lost(task.round, client, reason)
            if self._outstanding and reminder.due():
                who = named(set(self._outstanding))
                log.info("round %d: waiting for clients %s", self._round, who)
        self._give_up()

    def traffic(self) -> Mapping[int, Traffic]:
        """Return the bytes of messages since the last call."""
        return self._bytes.take()

    # --- what the server asks ----------------------------------------------------------------

    def control_bytes(self) -> int:
        """Return the bytes since the last call that were no message of a round."""
        traffic = self._listener.traffic()
        return self._bytes.control(traffic.sent_bytes + traffic.received_bytes)

    def refusals(self) -> tuple[str, ...]:
        """Return what was refused since the last call, besides updates that a round reports."""
        return self._refusals.take()

    def tree(self) -> dict[str, Any]:
        """Return nothing: deployed clients keep their own memory."""
        return {}

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Take nothing back."""

    def finish(self, reason: str) -> None:
        """Tell every client that the run is over, also those that are about to come back."""
        self._finished = reason
        self._pump()
        for peer in sorted(self._listener.peers):
            self._dismiss(peer)
        waiting = set(self._there.gone)
        if not self._assembled:  # an earlier process ran the last round and told perhaps nobody
            waiting = set(range(self._number or 0))
        ends = time.monotonic() + min(self._there.rejoin_s, FAREWELL_S)
        while waiting - self._told and time.monotonic() < ends:
            self._next(ends - time.monotonic())

    # --- what the network says ---------------------------------------------------------------

    def _next(self, wait_s: float) -> Arrival | None:
        """Return what arrived, waiting for one event of the network at most."""
        if self._arrived:
            return self._arrived.popleft()
        event = self._listener.next_event(max(min(TICK_S, wait_s), 0.0))
        self._handle(event)
        return self._arrived.popleft() if self._arrived else None

    def _pump(self) -> None:
        """Learn who has come and gone; what is for the logic to see waits until it is asked for."""
        while not self._arrived:
            event = self._listener.next_event(0.0)
            if event is None:
                return
            self._handle(event)

    def _handle(self, event: NetworkEvent | None) -> None:
        if isinstance(event, Joined):
            self._join(event)
        elif isinstance(event, Left):
            self._leave(event)
        elif isinstance(event, Refused):
            self._refuse(event)
        elif isinstance(event, Sent):
            client = self._client_of(event.peer)
            if client is not None:
                self._bytes.sent(client, event.message, event.wire_bytes)
        elif isinstance(event, Received):
            self._receive(event)

    def _join(self, event: Joined) -> None:
        client = self._client_of(event.peer)
        if client is None:
            most = "" if self._number is None else f", N from 0 to {self._number - 1}"
            reason = f"{event.peer!r} is not a client of this run; connect as client-N{most}"
            self._report(event.peer, reason)
            self._listener.disconnect(event.peer, reason, final=True)
        elif self._finished is not None:
            self._dismiss(event.peer)
        else:
            try:
                self._listener.send(event.peer, dataclasses.replace(self._setup, client=client))
            except NotConnected:
                pass  # it left again; the news is on its way
            except LimitExceeded as error:  # it announced that it takes no message of this size
                self._report(event.peer, str(error))
                self._listener.disconnect(event.peer, str(error), final=True)

    def _leave(self, event: Left) -> None:
        client = self._client_of(event.peer)
        if client is None:
            return
        self._bytes.dropped(client)
        blamed = self._blamed.pop(client, None) == event.reason
        if self._there.leave(client) and self._finished is None:
            log.info("client %d left: %s", client, event.reason)
        if blamed:
            # Its connection was closed for what it sent: there is nothing to wait for.
            self._void(client, event.reason)

    def _refuse(self, event: Refused) -> None:
        who = event.address if event.peer is None else f"{event.peer} at {event.address}"
        self._report(who, event.reason)
        client = self._client_of(event.peer or "")
        if client is not None:
            self._blamed[client] = event.reason

    def _receive(self, event: Received) -> None:
        client = self._client_of(event.peer)
        if client is None:
            return  # it was disconnected when it joined
        message = event.message
        if isinstance(message, Answer | Offer | Update | Failed):
            self._bytes.received(client, event.wire_bytes)
        if isinstance(message, CannotTakePart):
            self._report(f"client {client}", f"cannot take part: {message.reason}")
        elif isinstance(message, Ready):
            self._welcome(client, message)
        elif client not in self._there.ready:
            # Meant for an older connection or server; what is wanted of it, it will be asked for.
            log.info("client %d: a %s before it was ready", client, type(message).__name__)
        elif not isinstance(message, Answer | Offer | Update | Failed):
            self._offence(client, f"sent a {type(message).__name__}, which only a server sends")
        elif message.client != client:
            reason = f"sent a message in the name of client {message.client}"
            self._offence(client, reason)
            self._void(client, reason)
        elif isinstance(message, Failed):
            reason = message.reason[:REASON_LENGTH]
            log.warning("client %d, round %d: %s", client, message.round, reason)
            trace = message.traceback[-TRACEBACK_LENGTH:]
            self._arrived.append(Lost(message.round, client, reason, trace))
        else:
            self._arrived.append(message)

    def _welcome(self, client: int, ready: Ready) -> None:
        if client in self._there.ready:
            self._offence(client, "was ready already")
            return
        fits = ready.run == self._setup.run and ready.client == client
        if not fits or not 0 <= ready.samples <= MOST_SAMPLES:
            reason = "it is ready for another run, as another client, or with an impossible number"
            self._report(f"client {client}", reason)
            self._listener.disconnect(identity(client), reason, final=True)
            return
        before = self._there.arrive(client, ready.samples)
        what = "joined" if before is None else "is back"
        log.info("client %d %s with %d samples", client, what, ready.samples)
        if before not in (None, ready.samples):
            log.warning("client %d had %d samples before", client, before)
        self._kept[client] = set(ready.kept)
        if client in self._asked:
            self._send(client, self._asked[client])
        task = self._outstanding.get(client)
        if task is not None and task.counted and task.counted not in ready.kept:
            self._arrived.append(Forgot(task.round, client))
        elif task is not None:
            self._send(client, task)

    # --- what of it is for the logic ---------------------------------------------------------

    def _fitting(self, arrival: Arrival | None) -> Offer | Update | Lost | Forgot | None:
        """Return what the round under way has to see; report the rest."""
        if arrival is None or isinstance(arrival, Answer):
            self._unasked(arrival)
            return None
        client, task = arrival.client, self._outstanding.get(arrival.client)
        if task is not None and arrival.round == task.round and _answers(arrival, task):
            if isinstance(arrival, Offer | Update):
                self._kept[client] = {task.counted, task.round}
            return arrival
        if isinstance(arrival, Forgot):
            return None  # that task is over
        if arrival.round == self._over.get(client) and (task or arrival.round != self._round):
            self._unasked(arrival)
            return None
        if isinstance(arrival, Update) and (task or not self._refusals.offend(client)):
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
            self._refusals.add(f"client {arrival.client}: {what}")
            if self._refusals.offend(arrival.client):
                self._offence(arrival.client, "sent too much that it was not asked for")
        else:
            self._offence(arrival.client, f"sent an {what} that it was not asked for")

    def _offence(self, client: int, what: str) -> None:
        """Report what no honest client does; one that goes on is disconnected."""
        self._report(f"client {client}", what)
        if self._refusals.offend(client):
            reason = f"{what}, and the like more often than the server bears"
            self._listener.disconnect(identity(client), reason, final=True)

    def _report(self, who: str, reason: str) -> None:
        self._refusals.add(f"{who}: {reason}")
        log.warning("%s: %s", who, reason[:REASON_LENGTH])

    def _void(self, client: int, reason: str) -> None:
        """Let the logic know that what was asked of a client will not be had."""
        if client in self._outstanding:
            round = self._outstanding[client].round
            self._arrived.append(Lost(round, client, reason, refused=True))
        elif client in self._asked:
            self._arrived.append(Lost(0, client, reason, refused=True))

    def _done_with(self, client: int) -> Task | None:
        """Wait for nothing more of a client's task; return it."""
        task = self._outstanding.pop(client, None)
        if task is not None:
            self._over[client] = task.round
        return task

    def _give_up(self) -> None:
        """Stop waiting; what still comes for this round is too late."""
        for client in list(self._outstanding):
            self._done_with(client)
        self._began = None

    def _left_s(self) -> float:
        """Return the seconds until the deadline."""
        if self._deadline_s is None or self._began is None:
            return TICK_S
        return self._began + self._deadline_s - time.monotonic()

    def _send(self, client: int, message: Task | Verdict | Question) -> None:
        try:
            size = self._listener.send(identity(client), message)
        except NotConnected:
            return  # the news that it left is on its way; it gets the message when it is back
        except LimitExceeded as error:  # it announced that it takes no message of this size
            self._offence(client, str(error))
            self._void(client, str(error))
            return
        self._bytes.queued(client, type(message).__name__, size)

    def _dismiss(self, peer: str) -> None:
        with contextlib.suppress(NetworkError):  # then there is nobody to tell
            self._listener.send(peer, Finished(self._finished or ""))
            client = self._client_of(peer)
            if client is not None:
                self._told.add(client)

    def _say_who_is_missing(self, needed: int) -> None:
        there = len(self._there.samples)
        text = f"waiting for clients: {there} of {needed} are ready"
        if self._number is not None:
            missing = set(range(self._number)) - set(self._there.samples)
            text += f"; not there: {named(missing)}"
        log.info("%s", text)

    def _client_of(self, peer: str) -> int | None:
        match = re.fullmatch(r"client-(0|[1-9]\d{0,8})", peer)
        if match is None:
            return None
        client = int(match[1])
        return client if self._number is None or client < self._number else None


def _kind(arrival: Arrival) -> str:
    return "update" if isinstance(arrival, Lost) else type(arrival).__name__.lower()


def _answers(arrival: Arrival, task: Task) -> bool:
    return task.offer or not isinstance(arrival, Offer)
