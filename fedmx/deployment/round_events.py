"""Which events of clients are for the round under way, and which come too late or unasked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from fedmx.deployment.client_sessions import ClientEvent, ClientSessions, identity
from fedmx.protocol.messages import CODEC
from layers.logic import Answer, ClientLost, Offer, StateLost, Task, Update
from layers.logic.clock import RealClock

KEPT_BYTES = 64_000_000  # of updates that are kept between two rounds, of all clients


class RoundEvents:
    """Knows whose task is outstanding, and since which round whose task has ended.

    Args:
        sessions: the clients' sessions, which report what is not asked for.
        clock: the clock of the round.

    Attributes:
        round: the round under way.
        outstanding: a view of the round's tasks.
        ended_rounds: by client, the last round of which its task ended.
        kept: by client, what has ended its task in flight since the last round.
    """

    def __init__(self, sessions: ClientSessions, clock: RealClock) -> None:
        self.outstanding: Mapping[int, Task] = {}
        self.ended_rounds: dict[int, int] = {}
        self.kept: dict[int, Update | ClientLost] = {}
        self._sessions = sessions
        self._clock = clock
        self.round = 0
        self._late: set[int] = set()  # clients whose task has ended, and that may still answer it
        self._offered: set[int] = set()  # the clients that have offered in this round
        self._in_flight: dict[int, Task] = {}  # without vectors, since the last round was left
        self._kept_bytes = 0

    def begin(self, round: int, outstanding: Mapping[int, Task]) -> None:
        """Begin a round; what was kept and is not for it has come too late.

        Args:
            round: number of the round.
            outstanding: a view of its tasks, which are at first those in flight that it accepts.
        """
        self.round = round
        self._offered.clear()
        self._in_flight.clear()
        self.outstanding = outstanding
        for client, event in list(self.kept.items()):
            task = outstanding.get(client)
            barred = client in self._sessions.membership.barred
            if barred or task is None or task.round != event.round:
                self._take(client)
                if not barred:
                    self.report(event)

    def leave(self) -> None:
        """Leave the round; what is outstanding may be in flight until the next one begins."""
        self.end_tasks()
        for client, task in self.outstanding.items():
            self._in_flight[client] = task.without_vectors()
        self.outstanding = {}

    def keep(self, event: ClientEvent | None) -> None:
        """Keep what ends a task in flight for the next round, and report any other event.

        This is for events between rounds. A client sends such an update once, and is not asked for
        it again while it stays connected. Of each client one is kept at most. An update for which
        there is no memory is dropped, and its client asked for it again in the next round.
        """
        if event is None or isinstance(event, Answer):
            self.report(event)
            return
        client = event.client
        task = self.outstanding.get(client, self._in_flight.get(client))
        to_be_asked = self._sessions.reconnected
        if task is None or task.round != event.round or client in self.kept.keys() | to_be_asked:
            self.report(event)
        elif isinstance(event, StateLost):  # it was not sent its task, and may have the update
            to_be_asked.add(client)
        elif isinstance(event, Offer):
            self.report(event)
        elif self._kept_bytes + (size := _size_of(event)) > KEPT_BYTES:
            to_be_asked.add(client)
        else:
            self._late.discard(client)
            self.kept[client] = event
            self._kept_bytes += size
            if isinstance(event, Update) and not _says_nothing(event):
                self._sessions.memory_rounds[client] = {task.last_accepted_round, task.round}

    def take_kept(self) -> Update | ClientLost | None:
        """Return a kept event of the round under way, and keep it no longer; None: there is none.

        The client's memory is known since it came, and may have changed since then.
        """
        return self._take(next(iter(self.kept))) if self.kept else None

    def _take(self, client: int) -> Update | ClientLost:
        event = self.kept.pop(client)
        self._kept_bytes -= _size_of(event)
        return event

    def sent(self, task: Task) -> None:
        """Take note that a task is sent; a round may be run again."""
        if self.ended_rounds.get(task.client) == task.round and task.pass_number == 1:
            del self.ended_rounds[task.client]

    def go_back(self, reason: str) -> None:
        """Have the clients reconnect that may still work on a task of an earlier round."""
        for client in sorted(self._late):
            self._sessions.listener.disconnect(identity(client), reason)
        self._late.clear()
        self._in_flight.clear()
        self.kept.clear()
        self._kept_bytes = 0

    def of_round(self, event: ClientEvent | None) -> Offer | Update | ClientLost | StateLost | None:
        """Return the event if it belongs to the round under way; otherwise report it."""
        if event is None or isinstance(event, Answer):
            self.report(event)
            return None
        client, task = event.client, self.outstanding.get(event.client)
        if task is not None and event.round == task.round and _is_asked_for(event, task):
            if isinstance(event, Update) and event.pass_number < task.pass_number:
                self.report(event)  # of a pass before, sent again
                return None
            if isinstance(event, Offer | Update) and not _says_nothing(event):
                rounds = {task.last_accepted_round, task.round}
                if task.pass_number > 1:  # it also keeps the memory before this round
                    rounds |= self._sessions.memory_rounds.get(client, set())
                self._sessions.memory_rounds[client] = rounds
            if isinstance(event, Offer):
                if client in self._offered:  # as a client does that is connected again
                    self._sessions.note_out_of_place(client, "offered again")
                    return replace(event, metrics={})  # nobody reads them again
                self._offered.add(client)
            return event
        if isinstance(event, StateLost):
            return None  # its task has ended
        if self._has_ended(event) and (task or event.round != self.round):
            self.report(event)
            return None
        if isinstance(event, Update) and (
            task or not self._sessions.rejections.count_violation(client)
        ):
            return event  # the logic layer rejects it and reports the reason
        self.report(event)
        if task is None:
            return None
        reason = f"sent an {_kind_of(event)} of round {event.round}, not its update"
        return ClientLost(task.round, client, reason, rejected=True)

    def report(self, event: ClientEvent | None) -> None:
        """Report an event that was not asked for, or comes too late."""
        if event is None or isinstance(event, StateLost):
            return
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
                event.client, f"sent an {what} that it was not asked for"
            )

    def _has_ended(self, event: Offer | Update | ClientLost) -> bool:
        """Return whether the client had a task of the event's round, or a later one, that ended."""
        return 0 < event.round <= self.ended_rounds.get(event.client, 0)

    def end_task(self, client: int) -> Task | None:
        """Record that a client's task has ended; return the task, None if there was none."""
        task = self.outstanding.get(client)
        if task is not None:
            self.ended_rounds[client] = task.round
            self._clock.note(client, "ended_s")
        return task

    def end_tasks(self) -> None:
        """End all outstanding tasks; updates that still come for this round are too late."""
        for client in self.outstanding:
            self.end_task(client)
            self._late.add(client)


def _says_nothing(event: Offer | Update) -> bool:
    """Return whether the client has not trained, so that its memory is as before."""
    return math.isnan(event.norm) if isinstance(event, Offer) else event.cannot_train


def _size_of(event: Update | ClientLost) -> int:
    """Return the bytes of an update as a message; 0 for a loss, whose text is short."""
    return CODEC.encode(event).size if isinstance(event, Update) else 0


def _kind_of(event: ClientEvent) -> str:
    return "update" if isinstance(event, ClientLost) else type(event).__name__.lower()


def _is_asked_for(event: ClientEvent, task: Task) -> bool:
    return task.offer or not isinstance(event, Offer)
