"""The reception of a deployed run: turns what the network says of clients into arrivals."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from fedmx.assembly.asset_file import AssetFile
from fedmx.deployment.asset_sender import AssetSender
from fedmx.deployment.byte_counter import ByteCounter
from fedmx.deployment.membership import Membership
from fedmx.deployment.rejections import Rejections
from fedmx.protocol.messages import CannotTakePart, Failed, Finished, Lacking, Ready, Setup
from layers.logic import Answer, ClientLost, Offer, Question, StateLost, Task, Update, Verdict
from layers.network import (
    ConnectionRejected,
    FileFailed,
    FileSent,
    Joined,
    Left,
    LimitExceeded,
    Listener,
    NetworkError,
    NotConnected,
    Received,
    Sent,
)
from layers.network import Event as NetworkEvent

log = logging.getLogger("fedmx.server")
TICK_S = 0.5  # how often a wait looks at its limits
FAREWELL_S = 12.0  # a little more than a client waits between two attempts to come back
MOST_SAMPLES = 1 << 53
REASON_LENGTH = 500
TRACEBACK_LENGTH = 20_000

ClientEvent: TypeAlias = "Offer | Update | ClientLost | StateLost | Answer"


def identity(client: int) -> str:
    """Return the name under which client number `client` connects."""
    return f"client-{client}"


class ClientSessions:
    """Where clients come in and go out, and get what is wanted of them, again when they are back.

    Args:
        listener: where they connect; started and closed here.
        setup: what each is told first; its `client` is filled in.
        clients: numbers go from 0 to `clients` - 1; None: any number.
        rejoin_s: how long a client that is gone may take to come back before it is lost.
        assets: what every client is given before it is ready.

    Attributes:
        there: who is ready, and who may still come back.
        bytes: of the messages that came and went.
        rejections: what was refused, and who offended.
        kept: after which rounds each client has its memory.
        outstanding: a view of the round's tasks of which an update may still come, by client.
        returned: who has become ready since the last round began, while no task was outstanding.
        questions: what is outstanding in the survey under way, by client.
        asset_sender: sends the assets to the clients that lack them.
    """

    def __init__(
        self,
        listener: Listener,
        setup: Setup,
        clients: int | None,
        rejoin_s: float,
        assets: Sequence[AssetFile] = (),
    ) -> None:
        self.listener = listener
        self.clients = clients
        self.there = Membership(rejoin_s)
        self.bytes = ByteCounter()
        self.rejections = Rejections()
        self.kept: dict[int, set[int]] = {}
        self.outstanding: Mapping[int, Task] = {}
        self.returned: set[int] = set()
        self.questions: dict[int, Question] = {}
        self.asset_sender = AssetSender(assets, listener)
        self._setup = dataclasses.replace(setup, assets=self.asset_sender.announced)
        self._arrived: deque[ClientEvent] = deque()
        self._blamed: dict[int, str] = {}  # why a client's connection is about to be closed
        self._finished: str | None = None  # why the run is over, once it is
        self._told: set[int] = set()  # the clients that know it

    def open(self) -> None:
        """Let clients come."""
        self.listener.start()
        log.info("listening on %s", self.listener.address)

    def close(self, linger_s: float) -> None:
        """Let nobody come any more; what is on its way to clients has `linger_s` to leave."""
        over = self._finished is not None
        if over:
            self.pump()  # tells those who have come since
        reason = f"the run is over: {self._finished}" if over else "the server closes"
        self.listener.close(linger_s, reason, final=over)
        self.asset_sender.close()

    def next(self, wait_s: float) -> ClientEvent | None:
        """Return what arrived, waiting for one event of the network at most."""
        if self._arrived:
            return self._arrived.popleft()
        event = self.listener.next_event(max(min(TICK_S, wait_s), 0.0))
        self._handle(event)
        return self._arrived.popleft() if self._arrived else None

    def pump(self) -> None:
        """Learn who has come and gone; what is for the logic to see waits until it is asked for."""
        while not self._arrived:
            event = self.listener.next_event(0.0)
            if event is None:
                return
            self._handle(event)

    def send(self, client: int, message: Task | Verdict | Question) -> None:
        """Send a message if the client is ready; else it gets what is wanted of it when it is."""
        if client not in self.there.ready:
            return
        try:
            size = self.listener.send(identity(client), message)
        except NotConnected:
            return  # the news that it left is on its way; it gets the message when it is back
        except LimitExceeded as error:  # it announced that it takes no message of this size
            self.offence(client, str(error))
            self._void(client, str(error))
            return
        self.bytes.queued(client, type(message).__name__, size)

    def give(self, task: Task) -> None:
        """Send a task, unless its client has come back without the memory that it counts on."""
        # The update of a task of an earlier round has been made, or never will be.
        client, last = task.client, task.last_accepted_round if task.has_model else 0
        if last and client in self.there.ready and last not in self.kept.get(client, ()):
            self._arrived.append(StateLost(task.round, client))
        else:
            self.send(client, task)

    def offence(self, client: int, what: str) -> None:
        """Report what no honest client does; one that goes on is disconnected."""
        self._report(f"client {client}", what)
        if self.rejections.offend(client):
            reason = f"{what}, and the like more often than the server bears"
            self.listener.disconnect(identity(client), reason, final=True)

    def farewell(self, reason: str, everyone: bool) -> None:
        """Tell clients that the run is over, also those that are about to come back.

        Args:
            everyone: whether to wait for all there can be, not only for those who were here.
        """
        self._finished = reason
        self.pump()
        for peer in sorted(self.listener.peers):
            self._dismiss(peer)
        waiting = set(range(self.clients or 0)) if everyone else set(self.there.gone)
        ends = time.monotonic() + min(self.there.rejoin_s, FAREWELL_S)
        while waiting - self._told and time.monotonic() < ends:
            self.next(ends - time.monotonic())

    # --- what the network says ---------------------------------------------------------------

    def _handle(self, event: NetworkEvent | None) -> None:
        if isinstance(event, Joined):
            self._join(event)
        elif isinstance(event, Left):
            self._leave(event)
        elif isinstance(event, ConnectionRejected):
            self._refuse(event)
        elif isinstance(event, Sent):
            client = self._client_of(event.peer)
            if client is not None:
                self.bytes.sent(client, event.message, event.wire_bytes)
        elif isinstance(event, Received):
            self._receive(event)
        elif isinstance(event, FileSent | FileFailed):
            self._note(event)

    def _join(self, event: Joined) -> None:
        client = self._client_of(event.peer)
        if client is None:
            most = "" if self.clients is None else f", N from 0 to {self.clients - 1}"
            reason = f"{event.peer!r} is not a client of this run; connect as client-N{most}"
            self._report(event.peer, reason)
            self.listener.disconnect(event.peer, reason, final=True)
        elif self._finished is not None:
            self._dismiss(event.peer)
        else:
            try:
                self.listener.send(event.peer, dataclasses.replace(self._setup, client=client))
            except NotConnected:
                pass  # it left again; the news is on its way
            except LimitExceeded as error:  # it announced that it takes no message of this size
                self._report(event.peer, str(error))
                self.listener.disconnect(event.peer, str(error), final=True)

    def _leave(self, event: Left) -> None:
        client = self._client_of(event.peer)
        if client is None:
            return
        self.bytes.dropped(client)
        blamed = self._blamed.pop(client, None) == event.reason
        if self.there.leave(client) and self._finished is None:
            log.info("client %d left: %s", client, event.reason)
        if blamed:
            # Its connection was closed for what it sent: there is nothing to wait for.
            self._void(client, event.reason)

    def _refuse(self, event: ConnectionRejected) -> None:
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
            self.bytes.received(client, event.wire_bytes)
        if isinstance(message, CannotTakePart):
            self._report(f"client {client}", f"cannot take part: {message.reason}")
        elif isinstance(message, Ready):
            self._welcome(client, message)
        elif isinstance(message, Lacking):
            self._send_assets(event.peer, client, message)
        elif client not in self.there.ready:
            # Meant for an older connection or server; what is wanted of it, it will be asked for.
            log.info("client %d: a %s before it was ready", client, type(message).__name__)
        elif not isinstance(message, Answer | Offer | Update | Failed):
            self.offence(client, f"sent a {type(message).__name__}, which only a server sends")
        elif message.client != client:
            reason = f"sent a message in the name of client {message.client}"
            self.offence(client, reason)
            self._void(client, reason)
        elif isinstance(message, Failed):
            reason = message.reason[:REASON_LENGTH]
            log.warning("client %d, round %d: %s", client, message.round, reason)
            trace = message.traceback[-TRACEBACK_LENGTH:]
            self._arrived.append(ClientLost(message.round, client, reason, trace))
        else:
            self._arrived.append(message)

    def _send_assets(self, peer: str, client: int, lacking: Lacking) -> None:
        """Send a client the assets that it lacks; when it has them it says that it is ready."""
        known = {asset.name for asset in self._setup.assets}
        if client in self.there.ready or not lacking.assets or not known.issuperset(lacking.assets):
            self.offence(client, "lacks assets that it has, or that this run does not have")
            return
        again = self.asset_sender.send(peer, client, lacking.assets)
        if again:
            self.offence(client, f"lacks the asset {again[0]} that it had; it gets it again")
        else:
            log.info("client %d is sent assets: %s", client, ", ".join(lacking.assets))

    def _note(self, event: FileSent | FileFailed) -> None:
        if isinstance(event, FileSent):
            self.asset_sender.arrived(event.peer, event.name)
        elif self.asset_sender.failed(event.peer, event.name):
            self._report(event.peer, f"does not get the asset {event.name}: {event.reason}")

    def _welcome(self, client: int, ready: Ready) -> None:
        if client in self.there.ready:
            self.offence(client, "was ready already")
            return
        fits = ready.run == self._setup.run and ready.client == client
        fits = fits and ready.assets == tuple(asset.sha256 for asset in self._setup.assets)
        if not fits or not 0 <= ready.samples <= MOST_SAMPLES:
            reason = (
                "it is ready for another run, as another client, with other assets, or "
                "with an impossible number"
            )
            self._report(f"client {client}", reason)
            self.listener.disconnect(identity(client), reason, final=True)
            return
        before = self.there.arrive(client, ready.samples)
        what = "joined" if before is None else "is back"
        log.info("client %d %s with %d samples", client, what, ready.samples)
        if before not in (None, ready.samples):
            log.warning("client %d had %d samples before", client, before)
        self.kept[client] = set(ready.kept)
        if client in self.questions:
            self.send(client, self.questions[client])
        if client in self.outstanding:
            self.give(self.outstanding[client])
        else:
            self.returned.add(client)

    def _void(self, client: int, reason: str) -> None:
        """Let the logic know that what was asked of a client will not be had."""
        if client in self.outstanding:
            round = self.outstanding[client].round
            self._arrived.append(ClientLost(round, client, reason, rejected=True))
        elif client in self.questions:
            self._arrived.append(ClientLost(0, client, reason, rejected=True))

    def _report(self, who: str, reason: str) -> None:
        self.rejections.add(f"{who}: {reason}")
        log.warning("%s: %s", who, reason[:REASON_LENGTH])

    def _dismiss(self, peer: str) -> None:
        with contextlib.suppress(NetworkError):  # then there is nobody to tell
            self.listener.send(peer, Finished(self._finished or ""))
            client = self._client_of(peer)
            if client is not None:
                self._told.add(client)

    def _client_of(self, peer: str) -> int | None:
        match = re.fullmatch(r"client-(0|[1-9]\d{0,8})", peer)
        if match is None:
            return None
        client = int(match[1])
        return client if self.clients is None or client < self.clients else None
