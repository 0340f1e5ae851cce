"""Deployed clients behind a listener, as the logic layer sees them."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedmx.messages import (
    CannotTakePart,
    Failed,
    Finished,
    Ready,
    Setup,
)
from layers.logic import (
    Answer,
    Lost,
    Offer,
    Question,
    Task,
    Traffic,
    Update,
    Verdict,
)
from layers.network import Joined, Left, Listener, NotConnected, Received, Refused

log = logging.getLogger("fedmx.server")
TICK_S = 0.5  # how often a wait looks at its limits


def identity(client: int) -> str:
    """Return the name under which client number `client` connects."""
    return f"client-{client}"


class SocketClients:
    """Clients that connect to `listener`.

    Args:
        listener: where they connect; started and closed here.
        setup: what each is told first; its `client` is filled in.
        clients: numbers go from 0 to `clients` - 1; None: any number.
        wait_for: how many must be ready before a round begins.
        rejoin_s: how long a client that is gone may take to come back before it is lost.
        deadline_s: how long a round may take; None: as long as its slowest client.
    """

    def __init__(
        self,
        listener: Listener,
        setup: Setup,
        *,
        clients: int | None = None,
        wait_for: int = 1,
        rejoin_s: float = 60.0,
        deadline_s: float | None = None,
    ) -> None:
        self._listener = listener
        self._setup = setup
        self._number = clients
        self._wait_for = wait_for
        self._rejoin_s = rejoin_s
        self._deadline_s = deadline_s
        self._samples: dict[int, int] = {}
        self._ready: set[int] = set()
        self._gone: dict[int, float] = {}  # monotonic time since when
        self._outstanding: dict[int, Task] = {}
        self._late: set[tuple[int, int]] = set()  # (client, round) given up but not heard of
        self._asked: dict[int, Question] = {}
        self._blamed: dict[int, str] = {}  # why a client's connection is about to be closed
        self._traffic: dict[int, Traffic] = {}
        self._control = 0
        self._messages = 0
        self._refusals: list[str] = []
        self._began = 0.0

    def __enter__(self) -> SocketClients:
        self._listener.start()
        log.info("listening on %s", self._listener.address)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._listener.close()

    @property
    def address(self) -> str:
        """Where clients connect."""
        return self._listener.address

    # --- what the logic layer asks -----------------------------------------------------------

    def population(self) -> Mapping[int, int]:
        """Return the clients that are ready, or were and may still come back.

        Waits until there are as many as `wait_for` says.
        """
        told = False
        while True:
            self._expire()
            if len(self._samples) >= self._wait_for:
                return dict(self._samples)
            if not told:
                ready = len(self._samples)
                log.info("waiting for clients: %d of %d are ready", ready, self._wait_for)
                told = True
            for event in self._next(None):
                self._unasked(event)

    def ask(self, question: Question, clients: Sequence[int]) -> Sequence[Answer]:
        """Ask clients at the same time; return the answers of those that answered."""
        answers: list[Answer] = []
        self._asked = dict.fromkeys(clients, question)
        for client in clients:
            self._send(client, question)
        while self._asked:
            for event in self._next(None):
                if isinstance(event, Answer):
                    answers.append(event)
                else:
                    self._unasked(event)
            for client in self._expire():
                self._asked.pop(client, None)
        return sorted(answers, key=lambda answer: answer.client)

    def send(self, tasks: Sequence[Task]) -> None:
        """Send tasks; a client that is gone gets its task when it is back."""
        if not self._outstanding:
            self._began = time.monotonic()
        for task in tasks:
            self._outstanding[task.client] = task
            if task.client in self._ready:
                self._send(task.client, task)

    def answer(self, verdicts: Sequence[Verdict]) -> None:
        """Tell clients what became of their offers."""
        for verdict in verdicts:
            if verdict.client in self._ready:
                self._send(verdict.client, verdict)
            if not verdict.granted:
                self._outstanding.pop(verdict.client, None)

    def events(self) -> Iterator[Offer | Update | Lost]:
        """Yield what arrives, until nothing is outstanding or the deadline has passed."""
        while self._outstanding:
            left_s = None
            if self._deadline_s is not None:
                left_s = self._began + self._deadline_s - time.monotonic()
                if left_s <= 0:
                    self._give_up()
                    return
            for event in self._next(left_s):
                if isinstance(event, Answer):
                    self._unasked(event)
                    continue
                if isinstance(event, (Update, Lost)):
                    self._outstanding.pop(event.client, None)
                yield event
            for client in self._expire():
                task = self._outstanding.pop(client, None)
                if task is not None:
                    reason = f"disconnected, and not back within {self._rejoin_s:g} s"
                    yield Lost(task.round, client, reason)

    def traffic(self) -> Mapping[int, Traffic]:
        """Return the bytes of messages since the last call."""
        traffic, self._traffic = self._traffic, {}
        return traffic

    # --- what the server asks ----------------------------------------------------------------

    def control_bytes(self) -> int:
        """Return the bytes since the last call that were no message of a round."""
        traffic = self._listener.traffic()
        control = traffic.sent_bytes + traffic.received_bytes - self._messages
        new, self._control = control - self._control, control
        return new

    def refusals(self) -> tuple[str, ...]:
        """Return why peers were turned away since the last call."""
        refusals, self._refusals = tuple(self._refusals), []
        return refusals

    def tree(self) -> dict[str, Any]:
        """Return nothing: deployed clients keep their own memory."""
        return {}

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Take nothing back."""

    def finish(self, reason: str) -> None:
        """Tell every client that the run is over."""
        for client in sorted(self._ready):
            with contextlib.suppress(NotConnected):  # then there is nobody to tell
                self._listener.send(identity(client), Finished(reason))

    # --- one event ---------------------------------------------------------------------------

    def _next(self, timeout_s: float | None) -> Iterator[Offer | Update | Lost | Answer]:
        """Take one event from the network, if one comes soon; yield what the logic has to see."""
        wait_s = TICK_S if timeout_s is None else min(TICK_S, timeout_s)
        event = self._listener.next_event(wait_s)
        if isinstance(event, Joined):
            self._join(event.peer)
        elif isinstance(event, Left):
            yield from self._leave(event)
        elif isinstance(event, Refused):
            self._refuse(event)
        elif isinstance(event, Received):
            yield from self._receive(event)

    def _join(self, peer: str) -> None:
        client = self._client_of(peer)
        if client is None:
            most = "" if self._number is None else f", N from 0 to {self._number - 1}"
            self._listener.disconnect(
                peer, f"{peer!r} is not a client of this run; connect as client-N{most}", final=True
            )
            return
        with contextlib.suppress(NotConnected):  # it left again; the news is on its way
            self._listener.send(peer, dataclasses.replace(self._setup, client=client))

    def _leave(self, event: Left) -> Iterator[Lost]:
        client = self._client_of(event.peer)
        if client is None or client not in self._ready:
            return
        self._ready.discard(client)
        self._gone[client] = time.monotonic()
        log.info("client %d left: %s", client, event.reason)
        if self._blamed.pop(client, None) == event.reason and client in self._outstanding:
            # Its connection was closed for what it sent: there is no update to wait for.
            yield Lost(self._outstanding[client].round, client, event.reason, refused=True)

    def _refuse(self, event: Refused) -> None:
        who = event.peer or event.address
        self._refusals.append(f"{who}: {event.reason}")
        log.warning("refused %s: %s", who, event.reason)
        client = self._client_of(event.peer or "")
        if client is not None:
            self._blamed[client] = event.reason

    def _receive(self, event: Received) -> Iterator[Offer | Update | Lost | Answer]:
        client = self._client_of(event.peer)
        assert client is not None  # others were disconnected when they joined
        message = event.message
        if isinstance(message, Ready):
            self._welcome(client, message)
        elif isinstance(message, CannotTakePart):
            self._refusals.append(f"client {client}: {message.reason}")
            log.warning("client %d cannot take part: %s", client, message.reason)
        elif isinstance(message, Answer | Offer | Update | Failed):
            self._count(client, Traffic(up_bytes=event.wire_bytes))
            if message.client != client:
                reason = f"sent a message in the name of client {message.client}"
                self._refusals.append(f"client {client}: {reason}")
                log.warning("client %d %s", client, reason)
                if client in self._outstanding:
                    task = self._outstanding[client]
                    yield Lost(task.round, client, reason, refused=True)
            elif isinstance(message, Answer):
                if self._asked.pop(client, None) is not None:
                    yield message
            elif (client, message.round) in self._late:
                self._late.discard((client, message.round))
                log.info("client %d: its round %d came too late", client, message.round)
            elif isinstance(message, Failed):
                log.warning("client %d, round %d: %s", client, message.round, message.reason)
                yield Lost(message.round, client, message.reason, message.traceback)
            else:
                yield message
        else:
            self._refusals.append(f"client {client}: sent a {type(message).__name__}")

    def _welcome(self, client: int, ready: Ready) -> None:
        if ready.run != self._setup.run or ready.client != client or ready.samples < 0:
            reason = "it is ready for another run, as another client, or with fewer than no samples"
            self._listener.disconnect(identity(client), reason, final=True)
            return
        back = client in self._samples
        self._samples[client] = ready.samples
        self._ready.add(client)
        self._gone.pop(client, None)
        what = "is back" if back else "joined"
        log.info("client %d %s with %d samples", client, what, ready.samples)
        if client in self._asked:
            self._send(client, self._asked[client])
        if client in self._outstanding:
            self._send(client, self._outstanding[client])

    def _unasked(self, event: Offer | Update | Lost | Answer) -> None:
        if not isinstance(event, Lost):
            what = f"sent an {type(event).__name__.lower()} that it was not asked for"
            self._refusals.append(f"client {event.client}: {what}")

    def _expire(self) -> list[int]:
        """Forget the clients that are gone for too long, and return them."""
        now = time.monotonic()
        gone = [client for client, since in self._gone.items() if now - since > self._rejoin_s]
        for client in gone:
            del self._gone[client]
            self._samples.pop(client, None)
        return gone

    def _give_up(self) -> None:
        """Stop waiting; what still comes for this round is late."""
        self._late.update((client, task.round) for client, task in self._outstanding.items())
        self._outstanding.clear()

    def _send(self, client: int, message: Task | Verdict | Question) -> None:
        try:
            size = self._listener.send(identity(client), message)
        except NotConnected:
            return  # the news that it left is on its way; it gets the message when it is back
        self._count(client, Traffic(down_bytes=size))

    def _count(self, client: int, traffic: Traffic) -> None:
        self._traffic[client] = self._traffic.get(client, Traffic()) + traffic
        self._messages += traffic.down_bytes + traffic.up_bytes

    def _client_of(self, peer: str) -> int | None:
        match = re.fullmatch(r"client-(0|[1-9]\d{0,8})", peer)
        if match is None:
            return None
        client = int(match[1])
        return client if self._number is None or client < self._number else None
