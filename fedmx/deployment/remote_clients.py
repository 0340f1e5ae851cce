"""Deployed clients behind a listener, as the logic layer sees them."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedmx.assembly.assets import AssetFile
from fedmx.deployment.client_sessions import (
    TICK_S,
    ClientSessions,
)
from fedmx.deployment.clients_view import clients_now
from fedmx.deployment.membership import LogTimer, listing
from fedmx.deployment.patience import LOG_WAIT_S, SILENT, Patience
from fedmx.deployment.round_events import RoundEvents
from fedmx.deployment.survey import ask_all
from fedmx.errors import FedmxError
from fedmx.experiment.sections import LOG_LINES, MOST_VIOLATIONS, PATIENCE
from fedmx.log import Log
from fedmx.monitoring.monitor import ClientsNow
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

log = Log("fedmx.server")


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
        patience: after how many times what answers take (their median, and 10 minutes at least) a
            connected client that does not answer is given up, from round 2 on; None: never.
        patience_s: seconds in place of that, from the first round on.
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
        max_samples: int | Mapping[int, int] | None = None,
        assets: Sequence[AssetFile] = (),
        violations: int = MOST_VIOLATIONS,
        log_lines: int = LOG_LINES,
        patience: float | None = PATIENCE,
        patience_s: float | None = None,
    ) -> None:
        setup = setup or Setup(uuid.uuid4().hex, "", "", 0, (), 0)
        self._sessions = ClientSessions(
            listener, setup, clients, rejoin_s, assets, violations, log_lines, max_samples
        )
        self._wait_for = wait_for
        self._at_least = at_least
        self._entered = 0
        self._assembled = False
        self._outstanding: Mapping[int, Task] = {}  # a view of the round's tasks
        self._clock = RealClock()
        self._tasks = RoundEvents(self._sessions, self._clock)
        self._patience = Patience(patience, patience_s)
        self._timer_s = math.inf  # seconds since the round began
        self._waiting = ("", 0.0)  # for what, and since when (seconds since 1970)

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
        """Address that clients connect to, with the real port once it listens."""
        return self._sessions.listener.address

    # --- for the logic layer: `Peers` --------------------------------------------------------

    def population(self) -> Mapping[int, int]:
        """Return the clients that are ready or may reconnect, with their numbers of samples.

        It waits until there are enough of them.

        Raises:
            FedmxError: the listener was not started, so that no client can connect.
        """
        if self._entered == 0:
            raise FedmxError("the server does not listen; run its rounds inside `with server:`")
        self._tasks.leave()  # a round that ended with an error may have left tasks
        self._outstanding = self._sessions.outstanding = {}
        self._sessions.poll()
        log_timer = LogTimer(0.0)
        self._waiting = ("clients", time.time())
        while True:
            for client in self._sessions.membership.expire():
                log.warning(
                    "client_given_up",
                    "client {client} is not back; going on without it",
                    client=client,
                )
            needed = self._at_least if self._assembled else self._wait_for
            if len(self._sessions.membership.samples) >= needed:
                self._assembled = True
                return dict(self._sessions.membership.samples)
            if log_timer.due():
                self._log_missing_clients(needed)
            self._tasks.keep(self._sessions.next_event(TICK_S))

    def samples_of(self, client: int) -> int:
        """Return the number of samples in the client's last `Ready`; 0: there was none."""
        return self._sessions.membership.samples.get(client, 0)

    def remembers(self, client: int, round: int) -> bool:
        """Return whether the client has announced its hooks' memory after this round."""
        return round in self._sessions.memory_rounds.get(client, ())

    def ask(
        self, question: Question, clients: Sequence[int], deadline_s: float | None
    ) -> Sequence[Answer]:
        """Ask clients at the same time; return the answers that arrived before the deadline."""
        self._waiting = ("answers", time.time())
        return ask_all(self._sessions, self._tasks, self._patience, question, clients, deadline_s)

    def begin(
        self, round: int, plan: Plan, outstanding: Mapping[int, Task], deadline_s: float | None
    ) -> None:
        """Begin a round; its deadline counts from now."""
        self._tasks.begin(round, outstanding)
        self._patience.begin_round(outstanding)
        self._outstanding = self._sessions.outstanding = outstanding
        self._waiting = ("updates", time.time())
        self._clock.begin(deadline_s)
        self._timer_s = math.inf
        for client, task in outstanding.items():  # in flight since an earlier round
            self._sessions.membership.expect(client)
            if client in self._tasks.kept:
                self._patience.pause(client)
            elif client in self._sessions.reconnected:
                self._sessions.send_task(task)
        self._sessions.reconnected.clear()

    def send(self, tasks: Sequence[Task]) -> None:
        """Send tasks; a disconnected client gets its task when it reconnects."""
        new = {task.client for task in tasks}
        # A client that has reconnected by now gets its new task below, and not twice.
        before = {client: task for client, task in self._outstanding.items() if client not in new}
        self._sessions.outstanding = before
        self._sessions.poll()  # nothing may go to a new connection before its `Ready`
        self._sessions.outstanding = self._outstanding
        asked = self._clock.times()
        for task in tasks:
            self._tasks.sent(task)
            if task.client not in asked:
                self._clock.ask(task.client)
            self._sessions.membership.expect(task.client)
            self._patience.ask(task.client)
            self._sessions.send_task(task)

    def answer(self, verdicts: Sequence[Verdict]) -> None:
        """Send verdicts on offers."""
        for verdict in verdicts:
            self._sessions.send(verdict.client, verdict)
            self._clock.note(verdict.client, "decided_s")
            if verdict.granted:
                self._patience.ask(verdict.client)
                self._clock.note(verdict.client, "sending_s")
            else:  # the round has ended its task already
                self._tasks.ended_rounds[verdict.client] = verdict.round
                self._clock.note(verdict.client, "ended_s")

    def set_timer(self, at_s: float | None) -> None:
        """Set the moment at which the timer fires."""
        self._timer_s = math.inf if at_s is None else at_s

    def events(self) -> Generator[Offer | Update | ClientLost | StateLost | TimerFired, None, None]:
        """Yield the round's events, until no task is outstanding or the deadline has passed."""
        try:
            yield from self._events()
        finally:  # also when the round has enough
            self._tasks.end_tasks()
            self._patience.end_round()
            self._clock.end()

    def _events(
        self,
    ) -> Generator[Offer | Update | ClientLost | StateLost | TimerFired, None, None]:
        log_timer = LogTimer(LOG_WAIT_S)
        membership, outstanding = self._sessions.membership, self._outstanding
        # Before any limit is looked at: these came in time.
        while outstanding and (kept := self._tasks.take_kept()) is not None:
            self._tasks.end_task(kept.client)
            yield kept
            kept = None  # so that nothing keeps its arrays
        while outstanding and self._clock.left_s > 0:
            timer_left_s = self._timer_s - self._clock.elapsed_s
            event = self._tasks.of_round(
                self._sessions.next_event(min(self._clock.left_s, timer_left_s))
            )
            if isinstance(event, Update | ClientLost):
                self._tasks.end_task(event.client)
            if isinstance(event, Update):
                self._patience.answered(event.client)
            if isinstance(event, Offer):
                self._patience.pause(event.client)  # until it is granted, it is the server's turn
                self._clock.note(event.client, "trained_s")
                event = replace(event, at_s=self._clock.elapsed_s)
            if event is not None:
                yield event
                event = None  # so that nothing keeps its arrays while the next one is waited for
            if self._clock.elapsed_s >= self._timer_s:
                self._timer_s = math.inf
                yield TimerFired()
            for client in membership.expire():
                task = self._tasks.end_task(client)
                if task is not None:
                    reason = f"disconnected, and not back within {membership.rejoin_s:g} s"
                    yield ClientLost(task.round, client, reason)
            for client in self._patience.spent():
                task, reason = self._tasks.end_task(client), SILENT.format(self._patience.limit_s)
                self._patience.pause(client)
                if task is not None:
                    self._sessions.give_up(client, reason)
                    yield ClientLost(task.round, client, reason)
            if outstanding and log_timer.due():
                who = listing(set(outstanding))
                text = self._patience.text(self._patience.since(outstanding))
                log.info(
                    "waiting_for_updates",
                    "round {round}: waiting for clients {clients} {since}",
                    round=self._tasks.round,
                    clients=who,
                    since=text,
                )

    @property
    def clock(self) -> Clock:
        """The clock by which rounds are timed."""
        return self._clock

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began."""
        return self._clock.elapsed_s

    def times(self) -> Mapping[int, Times]:
        """Return the times of each client of the round, as far as the server can see them."""
        return self._clock.times()

    def traffic(self) -> Mapping[int, Traffic]:
        """Return the bytes of messages since the last call, by client."""
        return self._sessions.byte_counter.take()

    # --- for the server: `Clients` -----------------------------------------------------------

    def overhead(self) -> Overhead:
        """Return the bytes besides messages, and the rejections, since the last call."""
        traffic, counter = self._sessions.listener.traffic(), self._sessions.byte_counter
        files = traffic.file_bytes_sent + traffic.file_bytes_received
        total = traffic.sent_bytes + traffic.received_bytes
        return Overhead(
            control_bytes=counter.control(total - files),
            file_bytes=counter.files(files),
            rejected_connections=self._sessions.rejections.take(),
        )

    def now(self) -> ClientsNow:
        """Return the clients at this moment; any thread may ask."""
        return clients_now(self._sessions, self._waiting, self._outstanding)

    def keep_assets(self, folder: Path) -> None:
        """Keep the files of the assets in `folder`."""
        self._sessions.asset_sender.folder = folder

    def tree(self) -> dict[str, Any]:
        """Return, for a checkpoint, the last round of which each client's task ended.

        With it goes what an answer takes.

        Clients keep the memory of their hooks themselves.
        """
        typical_s = self._patience.typical_s
        known = {} if typical_s is None else {"answer_s": typical_s}
        return {"over": dict(self._tasks.ended_rounds), **known}

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Go on from what `tree` returned, so that late updates are recognised after a restart."""
        self._tasks.ended_rounds = dict(tree["over"])
        self._patience.restore(tree.get("answer_s"))

    def go_back(self, reason: str) -> None:
        """Have the clients reconnect that may still work on a task of an earlier round.

        What they send for it belongs to their old connection, and is not read any more.
        """
        self._sessions.poll()
        self._tasks.go_back(reason)

    def finish(self, reason: str) -> None:
        """Tell every client that the run is over, also those that will reconnect soon."""
        # Not assembled: an earlier process ran the last round, and clients may not know its end.
        self._sessions.finish(reason, everyone=not self._assembled)

    def _log_missing_clients(self, needed: int) -> None:
        ready, number = set(self._sessions.membership.samples), self._sessions.clients
        if number is None:
            log.info(
                "waiting_for_clients",
                "waiting for clients: {ready} of {needed} are ready",
                ready=len(ready),
                needed=needed,
            )
            return
        missing = listing(set(range(number)) - ready)
        log.info(
            "waiting_for_clients",
            "waiting for clients: {ready} of {needed} are ready; missing: {missing}",
            ready=len(ready),
            needed=needed,
            missing=missing,
        )
