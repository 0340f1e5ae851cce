"""The carrier of a deployment: clients behind a listener."""

from __future__ import annotations

import contextlib
import math
import time
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from fedmx.assembly.assets import AssetFile
from fedmx.components.text import with_article
from fedmx.deployment.client_sessions import TICK_S, ClientSessions, MessageEvent
from fedmx.deployment.membership import SHOWN, LogTimer, listing
from fedmx.deployment.names import SiteNames
from fedmx.deployment.orders import Orders
from fedmx.errors import FedmxError
from fedmx.experiment.sections import LOG_LINES, MOST_VIOLATIONS
from fedmx.log import Log
from fedmx.monitoring.monitor import ClientsNow
from fedmx.protocol.messages import CODEC, Failed, Setup
from layers.compute.data.targets import Targets
from layers.logic import (
    Answer,
    ClientLost,
    Offer,
    Overhead,
    Question,
    ServerState,
    StateLost,
    Task,
    TimerFired,
    TooFewUpdates,
    Update,
    Verdict,
)
from layers.logic.clock import RealClock
from layers.logic.core.survey import is_answer_to
from layers.logic.round.exchange import (
    Answered,
    Ask,
    Begin,
    Cancel,
    Close,
    Command,
    Costs,
    Event,
    Joined,
    Left,
    ReportCosts,
    SendTask,
    SetTimer,
    TimerName,
)
from layers.logic.round.patience import Patience
from layers.network import Listener
from layers.network.expiry import utc_now

log = Log("fedmx.server")

FIRST_PAUSE_S, MOST_PAUSE_S = 1.0, 60.0  # before a round is run again
LOG_WAIT_S = 30.0  # seconds of waiting after which the log says for which clients
KEPT_BYTES = 64_000_000  # of updates that are kept between two rounds, of all clients

T = TypeVar("T")


class TooFewClients(FedmxError):
    """Too few clients were connected for as long as `network.wait_limit_s`."""

    def __init__(self, ready: int, needed: int) -> None:
        super().__init__(
            f"{ready} of {needed} clients are connected, and network.wait_limit_s has passed; "
            "start clients and resume the run, or raise the limit (null: wait without end)"
        )


class RemoteClients:
    """Clients that connect to `listener`; `with` statements on it may be nested.

    Args:
        listener: the listener that clients connect to; started and closed here.
        setup: the first message to each client, in which `client` is filled in; None: both ends are
            built in Python, and there is no experiment file to send.
        clients: number of clients, which are 0 to `clients` - 1; None: any number.
        wait_for: how many must be ready before the first round of this process.
        at_least: how many must be ready, or may still reconnect, before each further round.
        rejoin_s: seconds that a disconnected client may take to reconnect before it is lost.
        max_samples: the most samples that a client may announce, or those of each client; None: any
            number (see `ClientSessions`).
        assets: the files that every client receives before it is ready.
        violations: how many protocol violations a client may have in a round before it is
            disconnected.
        log_lines: how many lines a minute the log may have about one client.
        patience: how long a client may take to answer; None: any time.
        wait_limit_s: how long a run that has begun waits for enough clients or updates before it
            ends with an error; None: any time.
        start_limit_s: how long the first round of this process waits for enough clients.
        any_version: whether clients may have another minor version of fedmx.
        names: the names of the clients; None: client-N.
    """

    untrusted = True
    virtual = False
    opened_s = None

    def __init__(
        self,
        listener: Listener,
        setup: Setup | None = None,
        *,
        clients: int | None = None,
        wait_for: int = 1,
        at_least: int = 1,
        rejoin_s: float = 60.0,
        max_samples: int | Mapping[int, int] | None = None,
        assets: Sequence[AssetFile] = (),
        violations: int = MOST_VIOLATIONS,
        log_lines: int = LOG_LINES,
        patience: Patience | None = None,
        wait_limit_s: float | None = None,
        start_limit_s: float = math.inf,
        any_version: bool = False,
        names: SiteNames | None = None,
    ) -> None:
        self.patience = patience
        self._wait_limit_s = math.inf if wait_limit_s is None else wait_limit_s
        self._start_limit_s = start_limit_s
        self._attempted = 0  # the round that was opened last
        self._failed = 0  # attempts at it that brought too few updates
        self._lacking_s: float | None = None  # since when there are too few clients or updates
        setup = setup or Setup(uuid.uuid4().hex, "", "", 0, (), Targets("classes", 0))
        self._sessions = ClientSessions(
            listener,
            setup,
            clients,
            rejoin_s,
            assets,
            violations,
            log_lines,
            max_samples,
            any_version,
            names,
        )
        self._wait_for = wait_for
        self._at_least = at_least
        self.orders = Orders(self)
        self._entered = 0
        self._assembled = False
        self._clock = RealClock()
        self._server_clock = self._sessions.membership.clock
        self._zero = 0.0  # since when the times of events count
        self._timers: dict[TimerName, float] = {}
        self._tasks: dict[int, Task] = {}  # by client, the task whose update may still come
        self._collecting = False  # whether a round collects: from `Begin` to `Close`
        self._keeps = False  # whether tasks stay in flight when the round ends
        self._asked: dict[int, int] = {}  # by client, the number of its last task
        self._round = 0
        self._offered: set[int] = set()  # the clients that have offered in this round
        self._late: set[int] = set()  # clients whose task has ended, and that may still answer it
        self._ended_rounds: dict[int, int] = {}  # by client, the last round whose task ended
        self._kept: dict[int, Update | ClientLost] = {}  # between rounds, of tasks in flight
        self._kept_bytes = 0
        self._events: deque[Event] = deque()  # to return before the next network event
        self._waiting = ("", 0.0)  # for what, and since when (seconds since 1970)
        self._log_timer = LogTimer(LOG_WAIT_S)

    def __enter__(self) -> RemoteClients:
        if self._entered == 0:
            self._sessions.open()
        self._entered += 1
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._entered -= 1
        if self._entered == 0:
            self._sessions.close(0.5 if any(exc_info) else 5.0)

    # --- `Clients` of an operator ------------------------------------------------------------

    def is_known(self, client: int) -> bool:
        """Return whether the run has a client of this number."""
        number = self._sessions.clients
        return client >= 0 and (number is None or client < number)

    def kick(self, client: int, reason: str) -> bool:
        """End a client's session, its task and its question; return whether it was connected."""
        if client not in self._sessions.membership.ready:
            return False
        self._lose(client, reason, ordered=True)
        self._sessions.listener.disconnect(self._sessions.names.of(client), reason)
        return True

    def leave_out(self, client: int, reason: str) -> None:
        """End a client's task and question, and do not ask it again in this round."""
        self._events.append(Left(client))
        self._lose(client, reason, ordered=True)

    def would_suffice(self, without: int) -> bool:
        """Return whether rounds can go on without this number of clients."""
        number = self._sessions.clients
        return number is None or number - without >= self._at_least

    @property
    def listener(self) -> Listener:
        """The listener that clients connect to."""
        return self._sessions.listener

    @property
    def address(self) -> str:
        """Address that clients connect to, with the real port once it listens."""
        return self._sessions.listener.address

    # --- `Carrier` ---------------------------------------------------------------------------

    def open_round(self, state: ServerState) -> tuple[ServerState, Mapping[int, int]]:
        """Return the state, and the clients that are ready or may reconnect, once there are enough.

        Raises:
            FedmxError: the listener was not started, so that no client can connect.
            TooFewClients: there were too few for as long as `wait_limit_s`.
        """
        if self._entered == 0:
            raise FedmxError("the server does not listen; run its rounds inside `with server:`")
        self._end_collecting()  # a round that ended with an error may have left tasks
        self._tasks = {client: task.without_vectors() for client, task in self._tasks.items()}
        self._sessions.outstanding = {}
        self._sessions.poll()
        if self._attempted != state.round + 1:
            self._attempted, self._failed, self._lacking_s = state.round + 1, 0, None
        log_timer = LogTimer(0.0)
        self._wait("clients")
        while True:
            for client in self._sessions.membership.expire():
                log.warning(
                    "client_given_up",
                    "client {client} is not back; going on without it",
                    client=client,
                )
            begins_with = self.orders.opening(state)
            excluded = self.orders.excluded
            needed = self._needed(len(excluded))
            enough = len(self._sessions.membership.samples.keys() - excluded.keys()) >= needed
            if enough and not self.orders.paused:
                self._assembled = True
                if not self._failed:
                    self._lacking_s = None
                self._events.clear()
                self._sessions.changes.clear()
                self._timers.clear()
                self._zero = self._server_clock.now_s
                self.orders.opened()
                return begins_with, dict(self._sessions.membership.samples)
            if not enough and log_timer.due():
                self._log_missing_clients(needed)
            if self.orders.paused:
                self._lacking_s = None
            elif not self._assembled and self._lacks() >= self._start_limit_s:
                raise FedmxError(self._not_begun())
            elif self._assembled and self._lacks() >= self._wait_limit_s:
                raise TooFewClients(len(self._connected), needed)
            event = self._sessions.next_event(TICK_S)
            self.orders.poll()
            if not isinstance(event, Joined | Left):  # the population has the connected clients
                self._keep(event)

    def _needed(self, excluded: int) -> int:
        """Return how many clients must be ready besides the excluded ones."""
        number = self._sessions.clients
        if number is not None:
            needed = self._at_least if self._assembled else self._wait_for
            return min(needed, number - excluded)
        return self._at_least if self._assembled else max(self._wait_for - excluded, self._at_least)

    @property
    def _connected(self) -> set[int]:
        """The clients that are ready and may be asked."""
        return self._sessions.membership.ready - self.orders.excluded.keys()

    def again(self, error: TooFewUpdates) -> bool:
        """Wait before a round that brought too few updates is run again; return whether it is.

        The pause becomes longer with each attempt, and ends when a client joins.
        """
        waited_s = self._lacks()
        if waited_s >= self._wait_limit_s:
            return False
        pause_s = min(FIRST_PAUSE_S * 2.0**self._failed, MOST_PAUSE_S)
        self._failed += 1
        log.warning(
            "too_few_updates",
            "{reason}; the round is run again in {pause_s:.0f} s, or when a client joins",
            reason=error,
            pause_s=pause_s,
        )
        self.forget(f"the round has too few updates and is run again in {pause_s:.0f} s")
        self._wait("clients")
        ends_s = self._server_clock.now_s + min(pause_s, self._wait_limit_s - waited_s)
        while (left_s := ends_s - self._server_clock.now_s) > 0:
            event = self._sessions.next_event(left_s)
            self.orders.poll()
            if isinstance(event, Joined):
                break
            if not isinstance(event, Left):
                self._report(event)
        return True

    def _lacks(self) -> float:
        """Return for how many seconds there have been too few clients or updates."""
        now_s = self._server_clock.now_s
        if self._lacking_s is None:
            self._lacking_s = now_s
        return now_s - self._lacking_s

    def exchange(self, commands: Sequence[Command]) -> tuple[Event, float]:
        """Carry out the commands; return the next event of a client, or of a timer."""
        new = {one.task.client for one in commands if isinstance(one, SendTask)}
        polled = False
        for command in commands:
            if isinstance(command, SendTask) and not polled:
                # A client that reconnects now gets its new task below, and not the one before too.
                for client in new & self._tasks.keys():
                    del self._tasks[client]
                self._sessions.poll()  # nothing may go to a new connection before its `Ready`
                polled = True
            self._carry(command)
        while True:
            event = self._next()
            if event is not None:
                return event, self._now_s

    # --- `RunCarrier` ------------------------------------------------------------------------

    def now(self) -> ClientsNow:
        """Return the clients at this moment; any thread may ask."""
        sessions, (what, since) = self._sessions, self._waiting
        membership, waited_for = sessions.membership, set[int]()
        if what == "clients":
            waited_for = set(range(sessions.clients or 0)) - set(_copy(membership.samples))
            waited_for -= set(_copy(self.orders.excluded))
        elif what == "answers":
            waited_for = set(_copy(sessions.questions))
        elif what == "updates":
            waited_for = set(_copy(self._tasks))
        # The server's clock has no date; an operator's clock has.
        ahead_s = time.time() - self._server_clock.now_s
        left = dict(_copy(membership.disconnected.items()))
        traffic = sessions.listener.traffic()
        return ClientsNow(
            address=sessions.listener.address,
            number=sessions.clients,
            ready=tuple(sorted(_copy(membership.ready))),
            away={
                client: max(since_s + ahead_s, 0.0)
                for client, since_s in sorted(left.items())
                if client not in membership.barred
            },
            waiting_for=what if waited_for else "",
            waited_for=tuple(sorted(waited_for)),
            since=since,
            received_bytes=traffic.received_bytes,
            sent_bytes=traffic.sent_bytes,
            refused_connections=sessions.refused_connections,
            reconnections=membership.rejoined,
            paused=self.orders.paused,
            excluded=tuple(sorted(_copy(self.orders.excluded))),
            certificates=tuple(
                {
                    "what": end.what,
                    "path": str(end.path),
                    "expires": end.at.isoformat(),
                    "warning": end.warning(utc_now()),
                }
                for end in sessions.listener.ends
            ),
        )

    def keep_assets(self, folder: Path) -> None:
        """Keep the files of the assets in `folder`."""
        self._sessions.asset_sender.folder = folder

    def tree(self) -> dict[str, Any]:
        """Return, for a checkpoint, the last round in which a task of each client ended.

        Clients keep the memory of their hooks themselves.
        """
        return {"over": dict(self._ended_rounds)}

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Continue from the result of `tree`, which tells late updates after a restart."""
        self._ended_rounds = dict(tree["over"])

    def forget(self, reason: str) -> None:
        """Have the clients reconnect that may still work on a task of an earlier round.

        What they send for it belongs to their old connection, and is not read any more.
        """
        self._sessions.poll()
        self.orders.forget()
        self._end_collecting()
        for client in sorted(self._late):
            self._sessions.listener.disconnect(self._sessions.names.of(client), reason)
        self._late.clear()
        self._tasks.clear()
        self._kept.clear()
        self._kept_bytes = 0

    def finish(self, reason: str) -> None:
        """Tell every client that the run is over, also those that will reconnect soon."""
        # Not assembled: an earlier process ran the last round, and clients may not know its end.
        self._sessions.finish(reason, everyone=not self._assembled)

    # --- commands ----------------------------------------------------------------------------

    def _carry(self, command: Command) -> None:
        match command:
            case SendTask(task):
                self._send(task)
            case Verdict():
                self._answer(command)
            case SetTimer(name, at_s):
                self._timers.pop(name, None)
                if at_s is not None:
                    self._timers[name] = at_s
            case Cancel():
                self._cancel(command)
            case Ask(question, clients):
                self._ask(question, clients)
            case Begin():
                self._begin(command)
            case Close():
                self._end_collecting()
            case ReportCosts():
                self._events.append(self._accounts())

    def _begin(self, begin: Begin) -> None:
        """Begin to collect; events of other tasks have come too late."""
        self._round = begin.round
        self._offered.clear()
        self._events.clear()
        self._timers.clear()
        self._tasks = {task.client: task for task in begin.late}
        self._sessions.outstanding = self._tasks
        for client, event in list(self._kept.items()):
            task = self._tasks.get(client)
            barred = client in self._sessions.membership.barred
            if barred or task is None or task.round != event.round:
                self._take_kept(client)
                if not barred:
                    self._report(event)
        self._wait("updates")
        self._zero = self._server_clock.now_s
        self._clock.begin(self._tasks)
        self._collecting, self._keeps = True, begin.asynchronous
        for client, task in self._tasks.items():
            self._sessions.membership.expect(client)
            if client not in self._kept and client in self._sessions.reconnected:
                self._sessions.send_task(task)
        self._sessions.reconnected.clear()

    def _send(self, task: Task) -> None:
        """Send a task; a disconnected client gets it when it reconnects."""
        client = task.client
        if self._ended_rounds.get(client) == task.round and task.pass_number == 1:
            self._ended_rounds[client] = task.round - 1  # the round is run again
        self._clock.ask(client, again=self._asked.get(client) != task.round)
        self._asked[client] = task.round
        self._sessions.membership.begin_task(client)
        self._tasks[client] = task
        self._sessions.send_task(task)

    def _answer(self, verdict: Verdict) -> None:
        client = verdict.client
        self._sessions.send(client, verdict)
        self._clock.note(client, "decided_s")
        if verdict.granted:
            self._clock.note(client, "sending_s")
        else:
            if self._tasks.pop(client, None) is not None and client not in self._offered:
                self._late.add(client)
            self._ended_rounds[client] = verdict.round
            self._clock.note(client, "ended_s")

    def _cancel(self, cancel: Cancel) -> None:
        client = cancel.client
        asked = self._sessions.questions.pop(client, None)
        if asked is not None and not cancel.give_up:
            what = f"no answer before the deadline of {cancel.within_s:g} s"
            self._sessions.rejections.add(f"client {client}: {what}")
        if asked is None and self._end_task(client) is not None:
            self._late.add(client)
        if cancel.give_up:
            self._sessions.give_up(client, cancel.give_up)

    def _ask(self, question: Question, clients: Sequence[int]) -> None:
        """Send a question to clients, all at the same time."""
        self._wait("answers")
        self._sessions.questions = dict.fromkeys(clients, question)
        for client in clients:
            self._sessions.membership.begin_task(client)  # it may have left since it was chosen
            self._sessions.send(client, question)

    def _end_collecting(self) -> None:
        """End the clock of the round; updates that still come for it are too late."""
        if self._collecting:
            self._collecting = False
            for client, task in () if self._keeps else self._tasks.items():
                self._ended_rounds[client] = task.round
                self._clock.note(client, "ended_s")
                self._late.add(client)
            self._clock.end()
        self._sessions.questions.clear()

    def _accounts(self) -> Costs:
        """Return the cost of the round: bytes, times, and what connections were refused for."""
        sessions = self._sessions
        traffic, counter = sessions.listener.traffic(), sessions.byte_counter
        files = traffic.file_bytes_sent + traffic.file_bytes_received
        total = traffic.sent_bytes + traffic.received_bytes
        return Costs(
            took_s=self._clock.elapsed_s,
            traffic=counter.take(),
            times=self._clock.times(),
            overhead=Overhead(
                control_bytes=counter.control(total - files),
                file_bytes=counter.files(files),
                rejected_connections=sessions.rejections.take(),
                operator=self.orders.take(),
                other_versions=_taken(sessions.other_versions),
            ),
        )

    # --- events ------------------------------------------------------------------------------

    @property
    def _now_s(self) -> float:
        return self._server_clock.now_s - self._zero

    def _next(self) -> Event | None:
        """Return the next event of the round, after at most `TICK_S` seconds; None: none came."""
        self.orders.poll()
        if self._events:
            return self._events.popleft()
        while self._collecting and self._kept:  # before any limit: these came in time
            kept = self._take_kept(next(iter(self._kept)))
            if self._end_task(kept.client) is not None:
                return kept
            self._report(kept)
        now_s = self._now_s
        due = [name for name, at_s in self._timers.items() if at_s <= now_s]
        if due:
            first = min(due, key=lambda name: (name == "deadline", self._timers[name]))
            del self._timers[first]
            return TimerFired(first)
        next_s = min(self._timers.values(), default=math.inf)
        event = self._sessions.next_event(next_s - now_s)
        self._expire()
        self._log_waiting()
        if isinstance(event, Joined | Left):
            return self._membership_event(event)
        if not self._collecting:
            return self._reply(event)
        return self._of_round(event)

    def _membership_event(self, event: Joined | Left) -> Event | None:
        """Return the event, unless the client has joined or left again since."""
        samples = self._sessions.membership.samples.get(event.client)
        return event if samples == getattr(event, "samples", None) else None

    def _expire(self) -> None:
        """Note the clients that were disconnected for too long."""
        membership = self._sessions.membership
        for client in membership.expire():
            reason = f"disconnected, and not back within {membership.rejoin_s:g} s"
            self._events.append(Left(client))
            self._lose(client, reason)

    def _lose(self, client: int, reason: str, *, ordered: bool = False) -> None:
        """End a client's question, and its task in a round, if it has one."""
        asked = self._sessions.questions.pop(client, None)
        task = self._end_task(client) if self._collecting else None
        if asked is not None or task is not None:
            round = asked.round if asked is not None else self._round
            round = task.round if task is not None else round
            self._events.append(ClientLost(round, client, reason, ordered=ordered))

    def _reply(self, event: MessageEvent | None) -> Event | None:
        """Return the answer to a question, or that there is none; keep any other event."""
        questions = self._sessions.questions
        question = None if event is None else questions.get(event.client)
        if event is None or question is None:
            self._keep(event)
            return None
        client = event.client
        if isinstance(event, Answer):
            asked = question.name, question.round, question.number
            if (event.question, event.round, event.number) != asked:
                self._report(event)
                return None
            del questions[client]
            if is_answer_to(question, event):
                return Answered(event)
            what = f"sent something else than the answer to the question {question.name!r}"
            self._sessions.report_violation(client, what)
            return ClientLost(question.round, client, what, rejected=True)
        if isinstance(event, ClientLost) and _is_no_answer(event):
            del questions[client]
            self._sessions.rejections.add(f"client {client}: no answer: {event.reason}")
            return replace(event, round=question.round)
        self._keep(event)
        return None

    def _keep(self, event: MessageEvent | None) -> None:
        """Keep what ends a task in flight for the next round, and report any other event.

        This is for events between rounds. A client sends such an update once, and is not asked for
        it again while it stays connected. Of each client one is kept at most. An update for which
        there is no memory is dropped, and its client asked for it again in the next round.
        """
        if event is None or isinstance(event, Answer):
            self._report(event)
            return
        client = event.client
        task = self._tasks.get(client)
        to_be_asked = self._sessions.reconnected
        if task is None or task.round != event.round or client in self._kept.keys() | to_be_asked:
            self._report(event)
        elif isinstance(event, StateLost):  # it was not sent its task, and may have the update
            to_be_asked.add(client)
        elif isinstance(event, Offer):
            self._report(event)
        elif self._kept_bytes + (size := _size_of(event)) > KEPT_BYTES:
            to_be_asked.add(client)
        else:
            self._late.discard(client)
            self._kept[client] = event
            self._kept_bytes += size
            if isinstance(event, Update) and not _says_nothing(event):
                self._sessions.memory_rounds[client] = {task.last_accepted_round, task.round}

    def _take_kept(self, client: int) -> Update | ClientLost:
        event = self._kept.pop(client)
        self._kept_bytes -= _size_of(event)
        return event

    def _of_round(self, event: MessageEvent | None) -> Event | None:
        """Return the event if it belongs to the round under way; otherwise report it."""
        if event is None or isinstance(event, Answer) or _is_no_answer(event):
            self._report(event)
            return None
        client, task = event.client, self._tasks.get(event.client)
        if task is not None and event.round == task.round and _is_asked_for(event, task):
            return self._of_task(event, task)
        if isinstance(event, StateLost):
            return None  # its task has ended
        of_now = event.round == self._round and client not in self._late
        if self._has_ended(event) and (task or not of_now):
            self._report(event)
            return None
        if isinstance(event, Update) and (
            task or not self._sessions.rejections.count_violation(client)
        ):
            self._end_task(client)
            return event  # the round rejects it and reports the reason
        self._report(event)
        if task is None:
            return None
        self._end_task(client)
        reason = f"sent {with_article(_kind_of(event))} of round {event.round}, not its update"
        return ClientLost(task.round, client, reason, rejected=True)

    def _of_task(self, event: Offer | Update | ClientLost | StateLost, task: Task) -> Event | None:
        """Return an event that concerns a task; None: a pass before has sent it already."""
        client = event.client
        if isinstance(event, Update) and event.pass_number < task.pass_number:
            self._report(event)  # of a pass before, sent again
            return None
        if isinstance(event, Offer | Update) and not _says_nothing(event):
            rounds = {task.last_accepted_round, task.round}
            if task.pass_number > 1:  # it also keeps the memory before this round
                rounds |= self._sessions.memory_rounds.get(client, set())
            self._sessions.memory_rounds[client] = rounds
        if isinstance(event, Update | ClientLost):
            self._end_task(client)
        if not isinstance(event, Offer):
            return event
        self._clock.note(client, "trained_s")
        event = replace(event, at_s=self._now_s)
        if client in self._offered:  # a client offers again when it has reconnected
            self._sessions.note_out_of_place(client, "offered again")
            return replace(event, metrics={})  # they are not read again
        self._offered.add(client)
        return event

    def _report(self, event: MessageEvent | None) -> None:
        """Report an event that was not asked for, or comes too late."""
        if event is None or isinstance(event, StateLost):
            return
        counter = self._sessions.byte_counter
        counter.unasked(event.client, _message_of(event).__name__, event.round)
        what = _kind_of(event)
        if not isinstance(event, Answer) and self._has_ended(event):
            # Slow clients send these, and clients that were asked again when they reconnected.
            self._late.discard(event.client)
            what = f"its {what} of round {event.round} came too late, or again"
            who = f"client {event.client}"
            self._sessions.log.info(
                who,
                "client_out_of_place",
                "client {client}: {what}",
                client=event.client,
                what=what,
            )
            self._sessions.rejections.add(f"{who}: {what}")
            if self._sessions.rejections.count_violation(event.client):
                self._sessions.report_violation(
                    event.client, "sent too much that it was not asked for"
                )
        else:
            self._sessions.report_violation(
                event.client, f"sent {with_article(what)} that it was not asked for"
            )

    def _has_ended(self, event: Offer | Update | ClientLost) -> bool:
        """Return whether the client had a task of the event's round, or a later one, that ended."""
        return 0 < event.round <= self._ended_rounds.get(event.client, 0)

    def _end_task(self, client: int) -> Task | None:
        """Record that a client's task has ended; return the task, None if there was none."""
        task = self._tasks.pop(client, None)
        if task is not None:
            self._ended_rounds[client] = task.round
            self._clock.note(client, "ended_s")
        return task

    def _not_begun(self) -> str:
        """Return why the first round does not begin, with the clients that did not come."""
        missing = set(range(self._sessions.clients or 0)) - self._connected
        names = ", ".join(self._sessions.names.of(one) for one in sorted(missing)[:SHOWN])
        return f"{len(missing)} clients were not ready within {self._start_limit_s:g} s: {names}"

    # --- the log -----------------------------------------------------------------------------

    def _wait(self, what: str) -> None:
        """Note what the server waits for from now on."""
        self._waiting, self._log_timer = (what, time.time()), LogTimer(LOG_WAIT_S)

    def _log_missing_clients(self, needed: int) -> None:
        ready, number = self._connected, self._sessions.clients
        if number is None:
            log.info(
                "waiting_for_clients",
                "waiting for clients: {ready} of {needed} are ready",
                ready=len(ready),
                needed=needed,
            )
            return
        missing = listing(set(range(number)) - ready - self.orders.excluded.keys())
        log.info(
            "waiting_for_clients",
            "waiting for clients: {ready} of {needed} are ready; missing: {missing}",
            ready=len(ready),
            needed=needed,
            missing=missing,
        )

    def _log_waiting(self) -> None:
        """Log, from time to time, which clients are waited for, until when, and what to type."""
        asked = self._tasks if self._collecting else self._sessions.questions
        if not (asked or self._collecting) or not self._log_timer.due():
            return
        if not asked:  # the round sends tasks as clients join
            self._log_missing_clients(max(self._at_least, 1))
            return
        since = self._waiting[1]
        began = time.strftime("%H:%M:%S", time.localtime(since))
        limit_s = self._timers.get("patience")
        until = "there is no limit"
        if limit_s is not None:
            until = f"the first is given up in {max(limit_s - self._now_s, 0.0):.0f} s"
        what = "updates" if self._collecting else "answers"
        log.info(
            "waiting_for_replies",
            "round {round}: waiting for the {what} of clients {clients} since {began} "
            "({waited_s:.0f} s); {until}. To wait for SECONDS at most, set network.patience_s: "
            "Ctrl-C, then fedmx resume RUN --patience SECONDS",
            round=self._round if self._collecting else max(one.round for one in asked.values()),
            what=what,
            clients=listing(set(asked)),
            began=began,
            waited_s=time.time() - since,
            until=until,
        )


def _says_nothing(event: Offer | Update) -> bool:
    """Return whether the client has not trained, so that its memory is as before."""
    return math.isnan(event.norm) if isinstance(event, Offer) else event.cannot_train


def _size_of(event: Update | ClientLost) -> int:
    """Return the bytes of an update as a message; 0 for a loss, whose text is short."""
    return CODEC.encode(event).size if isinstance(event, Update) else 0


def _taken(texts: dict[int, str]) -> tuple[str, ...]:
    found = tuple(texts[client] for client in sorted(texts))
    texts.clear()
    return found


def _is_no_answer(event: MessageEvent) -> bool:
    """Return whether a client says that it cannot answer a question."""
    return isinstance(event, ClientLost) and event.round == 0


def _kind_of(event: MessageEvent) -> str:
    if isinstance(event, ClientLost):
        return "answer" if _is_no_answer(event) else "update"
    return type(event).__name__.lower()


def _message_of(event: MessageEvent) -> type:
    """Return the type of the message that has led to an event."""
    return Failed if isinstance(event, ClientLost) else type(event)


def _is_asked_for(event: MessageEvent, task: Task) -> bool:
    return task.offer or not isinstance(event, Offer)


def _copy(values: Iterable[T]) -> tuple[T, ...]:
    """Return the values of a collection that the server's thread may change meanwhile."""
    while True:
        with contextlib.suppress(RuntimeError):  # it has changed: once more
            return tuple(values)
