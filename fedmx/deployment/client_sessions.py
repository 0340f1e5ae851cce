"""The sessions of a deployed run's clients: network events come in, client events go out."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from fedmx.assembly.assets import AssetFile
from fedmx.components.text import with_article
from fedmx.connection_log import log_certificates
from fedmx.deployment.asset_sender import AssetSender
from fedmx.deployment.byte_counter import ByteCounter
from fedmx.deployment.client_log import ClientLog
from fedmx.deployment.membership import Membership
from fedmx.deployment.names import NumberedNames, SiteNames
from fedmx.deployment.rejections import Rejections
from fedmx.deployment.systemd import READY, STOPPING, Watchdog, notify
from fedmx.experiment.sections import LOG_LINES, MOST_VIOLATIONS
from fedmx.log import Log
from fedmx.protocol.messages import (
    CannotTakePart,
    Failed,
    Finished,
    MissingAssets,
    Ready,
    Setup,
)
from fedmx.version import __version__, named_in, serves
from layers.logic import Answer, ClientLost, Offer, Question, StateLost, Task, Update, Verdict
from layers.logic.core.messages import MOST_SAMPLES
from layers.logic.core.state import MOST_KEPT
from layers.logic.record_size import REASON_BYTES, TRACEBACK_BYTES, shortened
from layers.logic.round.exchange import Joined, Left
from layers.network import (
    CertificateExpires,
    CertificatesRefused,
    CertificatesRenewed,
    ConnectionRejected,
    Contested,
    Crowded,
    FileFailed,
    FileSent,
    LimitExceeded,
    Listener,
    NetworkError,
    NotConnected,
    Received,
    Replaced,
    RoomAgain,
    Sent,
)
from layers.network import Event as NetworkEvent
from layers.network import Joined as Connected
from layers.network import Left as Disconnected

log = Log("fedmx.server")
TICK_S = 0.5  # the longest wait before limits are checked again
MOST_EARLY = 4  # messages of a client that takes over, until it has: an update, answers
EVENTS_A_CALL = 16  # of the network, handled before limits are checked again
FINISH_WAIT_S = 12.0  # a little more than a client waits between two attempts to reconnect

MessageEvent: TypeAlias = "Offer | Update | ClientLost | StateLost | Answer"
ClientEvent: TypeAlias = "MessageEvent | Joined | Left"


class ClientSessions:
    """The sessions of all clients; a client that reconnects gets its open requests again.

    Args:
        listener: the listener that clients connect to; started and closed here.
        setup: the first message to each client; its `client` is filled in here.
        clients: number of clients, which are 0 to `clients` - 1; None: any number.
        rejoin_s: seconds that a disconnected client may take to reconnect before it is lost.
        assets: the files that every client receives before it is ready.
        violations: how many protocol violations a client may have in a round before it is
            disconnected.
        log_lines: how many lines a minute the log may have about one client.
        max_samples: the most samples that a client may announce, or those of each client; None: any
            number. The server cannot see a client's samples, and an update may count for as many as
            were announced. A client that announces more is refused. It is not counted for fewer,
            since its user would not know, and hooks and selectors would go by another number than
            the client does.
        any_version: whether clients may have another minor version of fedmx.
        names: the names of the clients; None: client-N.

    Attributes:
        membership: which clients are ready, and which may still reconnect.
        byte_counter: counts the bytes of messages.
        rejections: the reasons of rejections, and each client's protocol violations.
        refused_connections: how many were refused, or closed because of their content.
        other_versions: by client, the version of fedmx with which it has joined since the last
            round, where it is another one.
        memory_rounds: by client, the rounds after which it has its hooks' memory.
        outstanding: a view of the round's tasks that may still get an update, by client.
        reconnected: the clients that have become ready without an outstanding task since the last
            round began, or must be asked again in the next one for another reason.
        questions: the unanswered questions of the current survey, by client.
        asset_sender: sends the assets to the clients that lack them.
        log: where events of clients are logged.
    """

    def __init__(
        self,
        listener: Listener,
        setup: Setup,
        clients: int | None,
        rejoin_s: float,
        assets: Sequence[AssetFile] = (),
        violations: int = MOST_VIOLATIONS,
        log_lines: int = LOG_LINES,
        max_samples: int | Mapping[int, int] | None = None,
        any_version: bool = False,
        names: NumberedNames | SiteNames | None = None,
    ) -> None:
        self.listener = listener
        self.names = names or NumberedNames()
        self.clients = clients
        self.membership = Membership(rejoin_s)
        self.byte_counter = ByteCounter()
        self.rejections = Rejections(violations)
        self.refused_connections = 0
        self.other_versions: dict[int, str] = {}
        self._any_version = any_version
        self.log = ClientLog(log, log_lines)
        self.memory_rounds: dict[int, set[int]] = {}
        self.outstanding: Mapping[int, Task] = {}
        self.reconnected: set[int] = set()
        self.questions: dict[int, Question] = {}
        self.asset_sender = AssetSender(assets, listener)
        self._max_samples = MOST_SAMPLES if max_samples is None else max_samples
        self._setup = dataclasses.replace(setup, assets=self.asset_sender.announced)
        self._events: deque[MessageEvent] = deque()
        self.changes: deque[Joined | Left] = deque()  # of the population, not reported yet
        self._closing: dict[int, ConnectionRejected] = {}  # connections that will be closed
        self._end_reason: str | None = None  # why the run has ended; None: it has not
        self._addresses: dict[str, str] = {}  # by peer, of the connection that is known here
        self._successors: dict[str, int] = {}  # newer connections of live clients, by their peer
        self._taking_over: dict[int, tuple[str, Ready]] = {}  # those that are ready, by address
        self._early: dict[str, list[Received]] = {}  # what they sent since, by peer
        self._notified: set[int] = set()  # the clients that were sent `Finished`
        self._watchdog = Watchdog()

    def open(self) -> None:
        """Start to listen."""
        self.listener.start()
        notify(READY)
        log.info("listening", "listening on {address}", address=self.listener.address)

    def close(self, linger_s: float) -> None:
        """Stop to listen, and close all connections.

        Args:
            linger_s: seconds in which queued messages may still be sent.
        """
        notify(STOPPING)
        ended = self._end_reason is not None
        if ended:
            self.poll()  # so that clients that have connected since get `Finished`
        reason = f"the run is over: {self._end_reason}" if ended else "the server closes"
        self.listener.close(linger_s, reason, final=ended)
        self.log.flush(now=True)
        self.asset_sender.close()

    def next_event(self, wait_s: float) -> ClientEvent | None:
        """Return the next client event; wait once for a network event. None: none came."""
        self._watchdog.alive()
        self.log.flush()
        self.membership.clock.tick()
        waiting: deque[Any] = self.changes or self._events
        if waiting:
            return waiting.popleft()  # type: ignore[no-any-return]
        wait_s = max(min(TICK_S, wait_s), 0.0)
        for _ in range(EVENTS_A_CALL):
            event = self.listener.next_event(wait_s)
            self.membership.clock.tick()
            self._handle(event)
            waiting = self.changes or self._events
            if waiting or event is None:
                break
            wait_s = 0.0
        return waiting.popleft() if waiting else None

    def poll(self) -> None:
        """Handle the network events that wait now, until one of them is for the logic layer.

        That one stays queued for `next_event`. Events that come meanwhile are left for later, so
        that no client can keep this from ending.
        """
        self.membership.clock.tick()
        last = self.listener.last_event()
        while not self._events:
            event = self.listener.next_event(0.0, last)
            if event is None:
                return
            self._handle(event)

    def send(self, client: int, message: Task | Verdict | Question) -> None:
        """Send a message if the client is ready; otherwise it gets its open requests when it is.

        A task or a question takes the place of an older one that still waits: that one is over.
        """
        if client not in self.membership.ready:
            return
        try:
            peer = self.names.of(client)
            replace = isinstance(message, Task | Question)
            size = self.listener.send(peer, message, self._addresses.get(peer), replace)
        except NotConnected:
            return  # its `Left` event follows; it gets the message when it reconnects
        except LimitExceeded as error:  # the client announced a smaller limit
            self.report_violation(client, str(error))
            self._add_lost(client, str(error))
            return
        self.byte_counter.queued(client, type(message).__name__, size)

    def send_task(self, task: Task) -> None:
        """Send a task, or report `StateLost` if the client lacks the memory that it needs."""
        # A task of an earlier round needs none: its update was made, or never will be.
        client, last = task.client, task.last_accepted_round if task.has_model else 0
        has_memory = not last or last in self.memory_rounds.get(client, ())
        if client in self.membership.ready and not has_memory:
            self._events.append(StateLost(task.round, client))
        else:
            self.send(client, task)

    def report_violation(self, client: int, what: str) -> None:
        """Report a protocol violation; disconnect a client that has too many."""
        self._report(f"client {client}", what)
        if self.rejections.count_violation(client):
            self._expel(client, what)

    def give_up(self, client: int, reason: str) -> None:
        """Disconnect a silent client; it takes part again when it is back and ready."""
        self.rejections.add(f"client {client}: {reason}")
        who = f"client {client}"
        self.log.warning(
            who,
            "client_silent",
            "client {client}: {reason}; it is given up",
            client=client,
            reason=reason,
        )
        self.listener.disconnect(self.names.of(client), reason, final=False)

    def finish(self, reason: str, everyone: bool) -> None:
        """Tell clients that the run is over, also those that will reconnect soon.

        Args:
            reason: why the run is over.
            everyone: whether to wait for all possible clients, not only for those seen so far.
        """
        self._end_reason = reason
        self.poll()
        for peer in sorted(self.listener.peers):
            self._send_finished(peer)
        waiting = set(range(self.clients or 0)) if everyone else set(self.membership.disconnected)
        ends = time.monotonic() + min(self.membership.rejoin_s, FINISH_WAIT_S)
        while waiting - self._notified and time.monotonic() < ends:
            self.next_event(ends - time.monotonic())

    # --- network events ----------------------------------------------------------------------

    def _handle(self, event: NetworkEvent | None) -> None:
        if isinstance(event, Connected):
            self._handle_joined(event)
        elif isinstance(event, Disconnected):
            self._handle_left(event)
        elif isinstance(event, ConnectionRejected):
            if event.told:  # `Crowded` or `Contested` has said so, once for all of them
                self.rejections.add(f"{event.peer}: {event.reason}")
            else:
                self._handle_rejected(event)
        elif isinstance(event, Crowded):
            log.warning("note", "{text}", text=event.reason)
        elif isinstance(event, Contested):
            log.warning("identity_contested", "{reason}", reason=event.reason)
        elif isinstance(event, RoomAgain):
            log.info("room_again", "there is room for clients again")
        elif isinstance(event, Sent):
            client = self._client_of(event.peer)
            if client is not None:
                self.byte_counter.sent(client, event.message, event.wire_bytes)
        elif isinstance(event, Replaced):
            client = self._client_of(event.peer)
            if client is not None:
                self.byte_counter.replaced(client, event.message, event.wire_bytes)
        elif isinstance(event, Received):
            self._handle_message(event)
        elif isinstance(event, FileSent | FileFailed):
            self._handle_file(event)
        elif isinstance(event, CertificatesRenewed | CertificatesRefused | CertificateExpires):
            log_certificates(log, event)

    def _handle_joined(self, event: Connected) -> None:
        client = self._client_of(event.successor_of or event.peer)
        ready: Ready | None = None  # what a successor has said before it got its client's name
        if client is not None and event.successor_of is not None:
            self._successors[event.peer] = client
        elif client is not None:
            self.rejections.joined(client)
            address, said = self._taking_over.get(client, ("", None))
            ready = said if address == event.address else None
        if client is None:
            reason = f"{event.peer!r} is not a client of this run{self.names.advice(self.clients)}"
            self._report(event.peer, reason)
            self.listener.disconnect(event.peer, reason, final=True)
        elif self._end_reason is not None:
            self._send_finished(event.peer)
        elif (other := self._other_version(client, event.named)) is not None:
            self._send_away(event.peer, other)
        elif ready is not None:
            del self._taking_over[client]
            early: list[Received] = []
            for peer in [one for one, of in self._successors.items() if of == client]:
                of_this = self._addresses.pop(peer, None) == event.address
                early += self._early.pop(peer, ()) if of_this else ()
                del self._successors[peer]
            self._addresses[event.peer] = event.address
            self._handle_ready(event.peer, client, ready)
            for one in early:
                self._handle_message(dataclasses.replace(one, peer=event.peer))
        else:
            self._addresses[event.peer] = event.address
            setup = dataclasses.replace(self._setup, client=client)
            try:
                self.listener.send(event.peer, setup, event.address)
            except NotConnected:
                pass  # it left again, or has another connection by now; their events follow
            except LimitExceeded as error:  # the client announced a smaller limit
                self._report(event.peer, str(error))
                self.listener.disconnect(event.peer, str(error), final=True)

    def _other_version(self, client: int, named: frozenset[str]) -> str | None:
        """Return why a client's version of fedmx does not fit, if so; note another one that does.

        A client that names none is built in Python, or older than this check.
        """
        version = named_in(named)
        if version in (None, __version__):
            return None
        text = f"has fedmx {version}, and the server has {__version__}"
        if version is not None and not serves(version) and not self._any_version:
            return (
                f"it {text}, whose results may differ; install the same version on both, or give "
                "the server --allow-version"
            )
        who = f"client {client}"
        self.other_versions[client] = f"{who} {text}"
        self.log.warning(who, "other_version", "{who} {reason}", who=who, reason=text)
        return None

    def _handle_left(self, event: Disconnected) -> None:
        if (of := self._successors.pop(event.peer, None)) is not None:
            self._early.pop(event.peer, None)
            address = self._addresses.pop(event.peer, None)
            if of in self._taking_over and self._taking_over[of][0] == address:
                del self._taking_over[of]
            return
        client = self._client_of(event.peer)
        if client is None:
            return
        self.byte_counter.dropped(client)
        closing = self._closing.pop(client, None)
        rejected = closing is not None and closing.reason == event.reason
        if self.membership.leave(client) and self._end_reason is None:
            self.log.info(
                f"client {client}",
                "client_left",
                "client {client} left: {reason}",
                client=client,
                reason=event.reason,
            )
        if rejected:
            # The listener closed the connection because of its content: do not wait for the client.
            if closing is not None and closing.final:  # its certificate was revoked
                self.membership.bar(client)
                self._events = deque(one for one in self._events if one.client != client)
                self.changes.append(Left(client))
            self._add_lost(client, event.reason)

    def _handle_rejected(self, event: ConnectionRejected) -> None:
        who = event.address if event.peer is None else f"{event.peer} at {event.address}"
        self.refused_connections += 1
        # One allowance for a machine, whichever ports it connects from and names it claims.
        self._report(who, event.reason, log_as=event.address.rpartition(":")[0])
        client = self._client_of(event.peer or "")
        if client is not None and event.peer not in self._successors:
            self._closing[client] = event

    def _handle_message(self, event: Received) -> None:
        client = self._client_of(event.peer)
        if client is None:
            return  # not a client of this run: it was disconnected when it joined
        message = event.message
        is_first = isinstance(message, CannotTakePart | Ready | MissingAssets)
        if event.peer in self._successors and not is_first:
            waiting = self._early.setdefault(event.peer, [])
            if client not in self._taking_over or len(waiting) == MOST_EARLY:
                kind = with_article(type(message).__name__)
                self._report(event.peer, f"{kind} before it was ready")
            else:
                waiting.append(event)
            return
        if isinstance(message, Answer | Offer | Update | Failed):
            name = type(message).__name__
            self.byte_counter.received(client, name, message.round, event.wire_bytes)
        if isinstance(message, CannotTakePart) and event.peer in self._successors:
            # Another process with the certificate of a client that goes on.
            self._report(event.peer, f"cannot take part: {message.reason}")
        elif isinstance(message, CannotTakePart):
            self.report_violation(client, f"cannot take part: {message.reason}")
        elif isinstance(message, Ready):
            self._handle_ready(event.peer, client, message)
        elif isinstance(message, MissingAssets):
            self._handle_missing_assets(event.peer, client, message)
        elif client not in self.membership.ready:
            # An answer to an older connection or server; the open requests are sent again.
            self.note_out_of_place(
                client, f"{with_article(type(message).__name__)} before it was ready"
            )
        elif not isinstance(message, Answer | Offer | Update | Failed):
            self.report_violation(
                client, f"sent {with_article(type(message).__name__)}, which only a server sends"
            )
        elif message.client != client:
            reason = f"sent a message in the name of client {message.client}"
            self.report_violation(client, reason)
            self._add_lost(client, reason)
        elif isinstance(message, Failed):
            reason = shortened(message.reason, REASON_BYTES)
            who = f"client {client}"
            if message.round:
                self.log.warning(
                    who,
                    "client_failed",
                    "client {client}, round {round}: {reason}",
                    client=client,
                    round=message.round,
                    reason=reason,
                )
            else:
                self.log.warning(
                    who,
                    "client_failed",
                    "client {client}: no answer: {reason}",
                    client=client,
                    reason=reason,
                )
            trace = shortened(message.traceback, TRACEBACK_BYTES, from_end=True)
            self._events.append(ClientLost(message.round, client, reason, trace))
        else:
            self._events.append(message)

    def _handle_missing_assets(self, peer: str, client: int, missing: MissingAssets) -> None:
        """Send a client the assets that it lacks; it sends `Ready` when it has them."""
        known = {asset.name for asset in self._setup.assets}
        if (
            (client in self.membership.ready and peer not in self._successors)
            or not missing.assets
            or not known.issuperset(missing.assets)
        ):
            self.report_violation(
                client, "lacks assets that it has, or that this run does not have"
            )
            return
        repeated = self.asset_sender.send(peer, client, missing.assets)
        if repeated:
            self.report_violation(
                client, f"lacks the asset {repeated[0]} that it had; it gets it again"
            )
        else:  # a client that is connected again may ask again
            names = dict.fromkeys(missing.assets)  # also a client that says one a million times
            self.note_out_of_place(client, f"is sent assets: {', '.join(names)}")

    def _handle_file(self, event: FileSent | FileFailed) -> None:
        if isinstance(event, FileSent):
            self.asset_sender.sent(event.peer, event.name)
        elif self.asset_sender.failed(event.peer, event.name):
            self._report(event.peer, f"does not get the asset {event.name}: {event.reason}")
        elif (client := self._client_of(event.peer)) is not None:
            self.report_violation(client, "offered a file that it was not asked for")

    def _handle_ready(self, peer: str, client: int, ready: Ready) -> None:
        is_successor = peer in self._successors
        if client in self.membership.ready and not is_successor:
            self.report_violation(client, "was ready already")
            return
        fits = ready.run == self._setup.run and ready.client == client
        fits = fits and ready.assets == tuple(asset.sha256 for asset in self._setup.assets)
        fits = fits and len(ready.kept) <= MOST_KEPT
        if not fits or not 0 <= ready.samples <= MOST_SAMPLES:
            reason = (
                "it is ready for another run, as another client, with other assets, with the "
                "memory of too many rounds, or with an impossible number"
            )
            self._send_away(peer, reason)
            return
        most = self._max_samples
        most = most if isinstance(most, int) else most.get(client, 0)
        if ready.samples > most:
            self._send_away(
                peer,
                f"it announces {ready.samples} samples, and network.max_samples allows {most}; "
                "give it no more, or raise the bound at the server",
            )
            return
        if is_successor:
            self._taking_over[client] = self._addresses.get(peer, ""), ready
            self.listener.take_over(peer)
            return
        before = self.membership.join(client, ready.samples)
        what = "joined" if before is None else "is back"
        who = f"client {client}"
        self.log.info(
            who,
            "client_ready",
            "client {client} {how} with {samples} samples",
            client=client,
            how=what,
            samples=ready.samples,
        )
        if before not in (None, ready.samples):  # a client's data may grow or change
            self.log.warning(
                who,
                "client_samples_changed",
                "client {client} had {samples} samples before",
                client=client,
                samples=before,
            )
        if before != ready.samples:
            self.changes.append(Joined(client, ready.samples))
        self.memory_rounds[client] = set(ready.kept)
        if client in self.questions:
            self.send(client, self.questions[client])
        if client in self.outstanding:
            self.send_task(self.outstanding[client])
        else:
            self.reconnected.add(client)

    def _send_away(self, peer: str, reason: str) -> None:
        """Report why a client cannot take part, and disconnect it for good."""
        client = self._client_of(peer)
        self._report(peer if peer in self._successors else f"client {client}", reason)
        self.listener.disconnect(peer, reason, final=True)

    def _add_lost(self, client: int, reason: str) -> None:
        """Add a `ClientLost` event, if the client has an open task or question."""
        if client in self.outstanding:
            round = self.outstanding[client].round
            self._events.append(ClientLost(round, client, reason, rejected=True))
        elif client in self.questions:
            self._events.append(ClientLost(0, client, reason, rejected=True))

    def _report(self, who: str, reason: str, log_as: str | None = None) -> None:
        """Report a rejection; `log_as`: whose line it is, if not that of `who`."""
        reason = shortened(reason, REASON_BYTES)
        self.rejections.add(f"{who}: {reason}")
        self.log.warning(log_as or who, "rejected", "{who}: {reason}", who=who, reason=reason)

    def note_out_of_place(self, client: int, what: str) -> None:
        """Note a message that an honest client may send, but not often."""
        what = shortened(what, REASON_BYTES)
        self.log.info(
            f"client {client}",
            "client_out_of_place",
            "client {client}: {what}",
            client=client,
            what=what,
        )
        if self.rejections.count_out_of_place(client):
            self._expel(client, what)

    def _expel(self, client: int, what: str) -> None:
        reason = f"{what}, and this client has violated the protocol too often"
        self.listener.disconnect(self.names.of(client), shortened(reason, REASON_BYTES), final=True)

    def _send_finished(self, peer: str) -> None:
        with contextlib.suppress(NetworkError):  # the client has left
            self.listener.send(peer, Finished(self._end_reason or ""))
            client = self._client_of(peer)
            if client is not None:
                self._notified.add(client)

    def _client_of(self, peer: str) -> int | None:
        client = self._successors.get(peer, self.names.number(peer))
        if client is None or (self.clients is not None and client >= self.clients):
            return None
        return client
