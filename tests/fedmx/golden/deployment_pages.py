"""Pages of what the two ends of a deployment log, send and record, event by event.

Their networks are made up, and the clock of the page that waits moves only when its server waits.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx.client import client as client_module
from fedmx.client import participant as participant_module
from fedmx.deployment import client_log, client_sessions, membership, orders, remote_clients
from fedmx.deployment.orders import Orders
from fedmx.deployment.remote_clients import RemoteClients
from fedmx.errors import FedmxError
from fedmx.protocol.messages import CannotTakePart, Failed, Finished, MissingAssets, Ready, Setup
from fedmx.version import __version__
from layers.logic import (
    Answer,
    ClientReport,
    Offer,
    Question,
    RoundReport,
    ServerState,
    TooFewUpdates,
    Traffic,
    Verdict,
)
from layers.logic.clock import real
from layers.logic.core import survey
from layers.logic.round.exchange import Account, Ask, Begin, Close, SendTask, SetTimer
from layers.network import (
    CertificateExpires,
    CertificatesRefused,
    CertificatesRenewed,
    Connected,
    ConnectionRejected,
    Contested,
    Crowded,
    Disconnected,
    FileFailed,
    FileSent,
    GaveUp,
    Joined,
    Left,
    LimitExceeded,
    NotConnected,
    Received,
    Replaced,
    Retrying,
    RoomAgain,
    Sent,
)
from layers.network.expiry import Expiry
from tests.fedmx.client.test_client_tasks import a_client, a_task
from tests.fedmx.deployment import round_without_network
from tests.fedmx.deployment.test_client_sessions import ASSET, DIGESTS, MESSAGE_BYTES, Sessions
from tests.fedmx.deployment.test_client_sessions import a_task as task_of
from tests.fedmx.deployment.test_client_sessions import an_update as update_of
from tests.logic.quadratic import QuadraticEngine

ADDRESS = "1.2.3.4:5"
FILE = ASSET.announced.file_name(3)
SEVEN = datetime.datetime(2026, 1, 31, 7, tzinfo=datetime.timezone.utc)


@contextlib.contextmanager
def logging_to(lines: list[str], name: str) -> Iterator[None]:
    """Add to `lines` what a logger writes: the level, the event, the text and the fields."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            of_it: Any = record
            trace = " (with its traceback)" if record.exc_info else ""
            lines.append(f"  {record.levelname} {of_it.event}: {record.getMessage()}{trace}")
            values = {name: str(value) for name, value in of_it.fields.items()}
            lines.append(f"    {values}")

    logger, handler = logging.getLogger(name), Lines()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def shown(message: Any) -> str:
    """Return a message as text; of an array its shape, of a traceback its last line."""
    if isinstance(message, np.ndarray):
        return f"{message.dtype} {message.shape}"
    if isinstance(message, float):
        return f"{message:.6g}"
    if isinstance(message, dict):
        return f"{{{', '.join(f'{key}: {shown(value)}' for key, value in message.items())}}}"
    if isinstance(message, Failed):
        message = replace(message, traceback=(message.traceback.splitlines() or [""])[-1])
    if not is_dataclass(message) or isinstance(message, type):
        return repr(message)
    values = [(one.name, getattr(message, one.name), one.default) for one in fields(message)]
    words = [f"{name}={shown(value)}" for name, value, default in values if value is not default]
    return f"{type(message).__name__}({', '.join(words)})"


# --- the server's sessions ---------------------------------------------------------------------


def _ready(client: int, samples: int = 10) -> Received:
    return _from(client, Ready("run", client, samples, (1,), DIGESTS))


def _from(client: int, message: Any) -> Received:
    return Received(f"client-{client}", message, MESSAGE_BYTES)


def _joins(client: int, *features: str) -> Joined:
    return Joined(f"client-{client}", ADDRESS, authenticated=True, named=frozenset(features))


MINOR, OTHER = f"fedmx-{__version__}.1", "fedmx-99.0.1"
EXPIRY = Expiry("certificate", Path("server.pem"), SEVEN)
OF_SESSIONS: tuple[tuple[str, Sequence[Any]], ...] = (
    ("client 3 joins, is cut off and comes back", (_joins(3), _ready(3))),
    ("", (Left("client-3", "reset"), _joins(3), _ready(3))),
    ("with other samples", (Left("client-3", "reset"), _joins(3), _ready(3, 12))),
    ("it leaves before it is ready", (Left("client-3", "reset"), _joins(3), Left("client-3", "x"))),
    ("who is not a client of the run", (_joins(9), _from(9, update_of(9)), Left("client-9", "x"))),
    ("it is ready as another client", (_joins(4), _from(4, Ready("run", 3, 10, (), DIGESTS)))),
    ("it announces too many samples", (_joins(2), _ready(2, 51), _ready(2, 50))),
    ("another version that fits", (_joins(1, MINOR, "other"), _ready(1))),
    ("another version that does not", (_joins(0, OTHER),)),
    ("the same version, and none", (_joins(0, f"fedmx-{__version__}"), _joins(4), _ready(0))),
    ("an address", (ConnectionRejected(ADDRESS, None, "no certificate"),)),
    ("a name", (ConnectionRejected(ADDRESS, "client-4", "bad frame"), Left("client-4", "reset"))),
    (
        "a told reason is not logged again",
        (
            ConnectionRejected(ADDRESS, "client-1", "no room", told=True),
            Crowded("no room for another client"),
            RoomAgain(),
            Contested("client-1", "two processes say that they are client-1"),
        ),
    ),
    (
        "certificates",
        (
            CertificatesRenewed("certificate"),
            CertificatesRefused("server.pem: no certificate"),
            CertificateExpires(EXPIRY, "the certificate server.pem expires in 1 day"),
        ),
    ),
    ("assets", (_from(4, MissingAssets("run", 4, ("shared",))), _from(4, update_of(4)))),
    ("", (FileSent("client-4", ASSET.announced.file_name(4), 12), _ready(4))),
    ("an asset that it has", (_from(4, MissingAssets("run", 4, ("shared",))),)),
    ("", (FileFailed("client-4", ASSET.announced.file_name(4), "disk full"),)),
    ("it was never ready", (_from(3, Offer(2, 3, 10, 1.0)), _from(3, Answer(3, "labels", {}, 2)))),
    ("", (_from(3, MissingAssets("run", 3, ("shared",))), FileFailed("client-3", FILE, "full"))),
    (
        "what a client says",
        (
            _ready(3),
            _from(3, update_of(3)),
            _from(3, Failed(2, 3, "no data", "a\ntraceback")),
            _from(3, Failed(0, 3, "no labels", "")),
        ),
    ),
    (
        "what it may not say",
        (
            _ready(3),
            _from(3, update_of(4)),
            _from(3, Failed(2, 1, "no data", "")),
            _from(3, Verdict(2, 3, granted=True)),
            _from(3, CannotTakePart(3, "no memory")),
        ),
    ),
    ("bytes", (Sent("client-3", "Task", 7), Replaced("client-3", "Task", 7))),
    ("", (Sent("nobody", "Task", 7), Replaced("nobody", "Task", 7))),
    (
        "its certificate is revoked",
        (
            _from(1, update_of(1)),
            _from(3, update_of(3)),
            ConnectionRejected(ADDRESS, "client-1", "revoked", final=True),
            Left("client-1", "revoked"),
        ),
    ),
)


def sessions_of_servers(parent: Path) -> str:
    """What a server logs, sends, closes and reports of its clients' sessions."""
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch, logging_to(lines, "fedmx.server"):
        for module in (client_log, client_sessions, membership):
            patch.setattr(module, "time", _Clock())
        sessions = Sessions()
        sessions._max_samples = {0: 50, 1: 50, 2: 50, 3: 50, 4: 50}
        sessions.outstanding = {3: task_of(3), 1: task_of(1)}
        for title, events in OF_SESSIONS:
            if title:
                lines.append(title)
            sessions.take(*events)
            lines += _happened(sessions)
        for title, act in _acts(sessions):
            lines.append(title)
            act()
            lines += _happened(sessions)
    return "\n".join(lines).replace(__version__, "VERSION")


def _acts(sessions: Sessions) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "a question to a client", lambda: sessions.send(3, Question("labels", round=2))
    yield "one that is not ready", lambda: sessions.send(1, Question("labels", round=2))
    sessions.network.refuses = NotConnected("gone")
    yield "one that has just gone", lambda: sessions.send(3, Question("labels", round=2))
    sessions.network.refuses = LimitExceeded("a message of 9 bytes, and client-3 takes 8")
    yield "one that takes less", lambda: sessions.send(3, Question("labels", round=2))
    yield "a setup that is too large", lambda: sessions.take(_joins(2))
    sessions.network.refuses = None
    yield "a task without its memory", lambda: sessions.send_task(task_of(3, 9, after=7))
    yield "a task with it", lambda: sessions.send_task(task_of(3, 2, after=1))
    yield "a silent client", lambda: sessions.give_up(3, "silent for 5 s")
    sessions.network.peers = {"client-3", "client-4", "stranger"}
    yield "the end", lambda: sessions.finish("3 rounds", everyone=False)
    yield "after the end", lambda: sessions.take(Left("client-4", "reset"), _joins(1))
    sessions.network.events.append(_joins(0))
    yield "the close", lambda: sessions.close(1.0)


def _happened(sessions: Sessions) -> Iterator[str]:
    """Yield what has happened since the last call."""
    network = sessions.network
    for peer, message in network.sent:
        yield f"  sent to {peer}: {shown(message)}"
    for peer, name in network.files:
        yield f"  file to {peer}: {name}"
    for peer, reason, final in network.closed:
        yield f"  closed {peer}{' for good' if final else ''}: {reason}"
    for waiting in (network.sent, network.files, network.closed):
        waiting.clear()
    while (event := sessions.next_event(0.0)) is not None:
        yield f"  event {shown(event)}"
    for reason in sessions.rejections.take():
        yield f"  record {reason}"
    members, back = sessions.membership, sorted(sessions.reconnected)
    yield f"  ready {sorted(members.ready)} of {members.samples}"
    yield f"  away {sorted(members.disconnected)}, barred {sorted(members.barred)}"
    yield f"  back without a task {back}, {sessions.refused_connections} connections refused"
    for version in sessions.other_versions.values():
        yield f"  version {version}"
    for client, traffic in sessions.byte_counter.take().items():
        yield f"  client {client}: {traffic.down_bytes} bytes down, {traffic.up_bytes} up"
    sessions.reconnected.clear()
    sessions.other_versions.clear()


# --- a server's rounds, by a clock that only waiting moves ----------------------------------------

STARTED_S = SEVEN.timestamp()
LATER = Expiry("authority", Path("ca.pem"), SEVEN.replace(year=2126))


class _Clock:
    """The module `time` of a server whose clock moves when it waits, and not when it works."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.strftime, self.localtime = time.strftime, time.gmtime

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return STARTED_S + self.now_s


class _Scheduled(round_without_network.Opened):
    """A listener to which events come at the times that a page says."""

    ends = (Expiry("certificate", Path("server.pem"), SEVEN), LATER)

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock
        self._script: deque[tuple[float, Any]] = deque()
        self.peers: set[str] = set()
        self.bytes |= {"sent_bytes": 5000, "received_bytes": 700, "file_bytes_sent": 9}

    def later(self, *script: tuple[float, Any]) -> None:
        """Add events, or functions to call, each after so many more seconds than those before."""
        at_s = self._clock.now_s
        for after_s, event in script:
            at_s += after_s
            self._script.append((at_s, event))

    def disconnect(self, peer: str, reason: str, final: bool = False) -> None:
        self.sent.append((peer, f"closed{' for good' if final else ''}: {reason}"))

    def next_event(self, timeout_s: float, last: int | None = None) -> Any:
        now_s, script = self._clock.now_s, self._script
        if script and script[0][0] <= now_s:
            event = script.popleft()[1]
            return event() if callable(event) else event
        if timeout_s:
            assert now_s < 3600, "waits without end"
            next_s = script[0][0] if script else now_s + timeout_s
            self._clock.now_s = min(now_s + timeout_s, next_s)
        return None


class _Server:
    """A deployed server's clients, and the lines of what happens."""

    def __init__(self, lines: list[str], patch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.lines = lines
        self._ends: list[str] = []  # of certificates, that were shown last
        self.clock = clock = _Clock()
        for module in (membership, remote_clients, client_sessions, client_log, orders, real):
            patch.setattr(module, "time", clock)
        self.network: Any = _Scheduled(clock)
        setup = Setup("run", "", "", 0, (3,), 2)
        self.clients = RemoteClients(self.network, setup, **settings)

    def now(self) -> None:
        """Show the clients as `fedmx status` gets them."""
        values = asdict(self.clients.now())
        certificates = [f"  {one}" for one in values.pop("certificates")]
        self.lines += [f"  now {values}", *(certificates if certificates != self._ends else ())]
        self._ends = certificates

    def opens(self, round: int) -> None:
        """Open a round."""
        state = replace(START, round=round - 1)
        try:
            _, samples = self.clients.open_round(state)
            self.lines.append(f"  round {round} opens with {samples} at {self.clock.now_s:g} s")
        except FedmxError as error:
            self.lines.append(f"  error at {self.clock.now_s:g} s: {error}")
        self.sent()

    def exchanges(self, *commands: Any, events: int = 1) -> None:
        """Carry out commands, and show the next events."""
        given: Sequence[Any] = commands
        for _ in range(events):
            event, at_s = self.clients.exchange(given)
            self.lines.append(f"  event at {at_s:g} s: {shown(event)}")
            given = ()
        self.sent()

    def again(self) -> None:
        """Wait before a round is run again."""
        error = TooFewUpdates(
            0, 2, RoundReport(2, 0.1, 2, (ClientReport(1, "lost", "reset"),), Traffic())
        )
        goes_on = self.clients.again(error)
        self.lines.append(f"  again {goes_on} at {self.clock.now_s:g} s")
        self.sent()

    def sent(self) -> None:
        """Show what was sent since the last call."""
        for peer, message in self.network.sent:
            self.lines.append(f"  sent to {peer}: {shown(message)}")
        self.network.sent.clear()


ONES = np.ones(2, np.int64)
START = ServerState(0, round_without_network.EMPTY, round_without_network.EMPTY)


def _round_task(client: int, round: int = 1) -> Any:
    return round_without_network.a_task(client, round)


def _enters(client: int) -> tuple[tuple[float, Any], ...]:
    ready = _from(client, Ready("run", client, 10 + client, ()))
    return (0.0, _joins(client)), (0.0, ready)


def waits_of_servers(parent: Path) -> str:
    """What a server does, logs and shows while it waits for clients, updates and answers."""
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch, logging_to(lines, "fedmx.server"):
        server = _Server(
            lines, patch, clients=5, wait_for=3, at_least=2, rejoin_s=60.0, wait_limit_s=100.0
        )
        with server.clients:
            for title, act in _waits(server):
                lines.append(title)
                act()
            server.sent()
        lines.append("any number of clients")
        server = _Server(lines, patch, wait_for=2, at_least=2)
        with server.clients:
            server.network.later((45.0, None), *_enters(7), *_enters(2), (0.0, server.now))
            server.opens(1)
            server.now()
            server.clients.orders._answer({"command": "exclude", "client": 7})
            server.network.later((5.0, None), *_enters(0))
            server.opens(2)
            server.now()
        lines.append("one of three is excluded before the first round")
        server = _Server(lines, patch, wait_for=3)
        with server.clients:
            server.clients.orders._answer({"command": "exclude", "client": 9})
            server.network.later(*_enters(7), (5.0, None), *_enters(2), (5.0, None), *_enters(1))
            server.opens(1)
    return "\n".join(lines)


def _waits(server: _Server) -> Iterator[tuple[str, Callable[[], None]]]:
    later, exchanges, opens = server.network.later, server.exchanges, server.opens
    later((40.0, None), *_enters(0), *_enters(1), (1.0, server.now), (9.0, None), *_enters(3))
    yield "the first round waits for three of five clients", lambda: opens(1)
    tasks = [SendTask(_round_task(client)) for client in (0, 1, 3)]
    later((45.0, _from(1, round_without_network.an_update(1, 1))), (0.0, server.now))
    yield "an update", lambda: exchanges(Begin(1), *tasks, SetTimer("patience", 100.0))
    later((5.0, Left("client-3", "reset")), (15.0, _from(0, round_without_network.an_update(0, 1))))
    yield "a client leaves, and one answers", exchanges
    yield "now", server.now
    yield "the limit", exchanges
    yield "the client is not back", lambda: exchanges(events=2)
    yield "the accounts", lambda: exchanges(Close(), Account())
    ask = Ask(Question("labels", classes=2, round=2), (0, 1))
    later((35.0, server.now), (0.0, _from(0, Answer(0, "labels", {"histogram": ONES}, 2))))
    yield "a survey", lambda: exchanges(ask)
    later((0.0, _from(1, Failed(0, 1, "no labels", ""))))
    yield "an answer that fails", exchanges
    yield "its accounts", lambda: exchanges(Account())
    yield "the second round", lambda: opens(2)
    later((35.0, server.now), *_enters(4))
    yield "a round without tasks", lambda: exchanges(Begin(2))
    two = [SendTask(_round_task(client, 2)) for client in (0, 1)]
    later((1.0, _from(0, Failed(0, 0, "no labels", ""))))
    later((1.0, _from(0, round_without_network.an_update(0, 2))))
    yield "tasks of it, and a survey that fails too late", lambda: exchanges(*two)
    lost = SendTask(round_without_network.a_task(4, 2, after=1))
    yield "a client has lost its memory", lambda: exchanges(lost)
    later((0.0, Left("client-4", "reset")), *_enters(4))
    later((1.0, _from(4, round_without_network.an_update(4, 2))))
    yield "it comes back and gets a new task", lambda: exchanges(SendTask(_round_task(4, 2)))
    yield "the round ends", lambda: exchanges(Close(), Account())
    later(*[(0.0, _from(1, Failed(2, 1, "no memory", "")))] * 2)
    later((0.0, _from(1, round_without_network.an_update(1, 0))))
    yield "what comes too late", lambda: exchanges(SetTimer("deadline", 50.0))
    yield "its accounts", lambda: exchanges(Account())
    yield "too few updates", server.again
    opens_again = Begin(2), SendTask(_round_task(0, 2)), SetTimer("deadline", 0.5)
    yield "it is run again", lambda: exchanges(*opens_again)
    later((0.25, _from(0, round_without_network.an_update(0, 2))))
    later((0.5, ConnectionRejected(ADDRESS, "client-4", "revoked", final=True)))
    later((0.5, Left("client-4", "revoked")))
    yield "too few updates again, and a client is revoked", server.again
    later((0.5, None), *_enters(2))
    yield "too few updates, and a client joins", server.again
    later(*((0.0, Left(f"client-{client}", "reset")) for client in (0, 2)))
    later((30.0, Left("client-1", "reset")))
    ends = Begin(2), SetTimer("deadline", 61.0)
    yield "all leave", lambda: exchanges(*ends, events=3)
    yield "too few clients", lambda: opens(2)
    yield "no other attempt", server.again
    server.network.peers = {"client-1", "client-2"}
    yield "the end", lambda: server.clients.finish("3 rounds")
    yield "the clock", lambda: server.lines.append(f"  {server.clock.now_s:g} s")


# --- what an operator says -----------------------------------------------------------------------


def orders_of_operators(parent: Path) -> str:
    """What a server answers an operator, what it keeps of that, and what it logs and records."""
    lines: list[str] = []
    path, kept = parent / "operator.json", ""
    with pytest.MonkeyPatch.context() as patch, logging_to(lines, "fedmx.server"):
        server = _Server(lines, patch, clients=4, at_least=2)
        given = server.clients.orders
        for client in (0, 1, 3):
            server.clients._sessions.membership.join(client, 10)
        with given.listening(parent):
            for title, act in _orders(server, parent):
                lines.append(title)
                act()
                server.sent()
                lines += [f"  record {one}" for one in given.take()]
                lines += [f"  event {shown(one)}" for one in server.clients._events]
                server.clients._events.clear()
                lines.append(f"  paused {given.paused}, excluded {given.excluded}")
                if path.is_file() and path.read_text() != kept:
                    kept = path.read_text()
                    document = json.loads(kept)
                    lines.append(f"  kept: paused {document['paused']}")
                    lines += [f"  kept: {list(one.values())}" for one in document["changes"]]
            with pytest.raises(KeyboardInterrupt, match="by fedmx ctl"):
                given.poll()
    return "\n".join(lines)


def _orders(server: _Server, folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    given, lines = server.clients.orders, server.lines

    def says(command: object, client: object = None) -> None:
        answer = given._answer({"command": command, "client": client})
        lines.append(f"  answer {dict(answer)}")

    def opening(orders: Orders, round: int) -> None:
        memory = orders.opening(replace(START, round=round - 1)).memory
        lines.append(f"  round {round} begins with {memory}")

    def also_known() -> None:
        other = Orders(server.clients)
        with other.listening(folder):
            lines.append(f"  paused {other.paused}")
            opening(other, 2)

    def unwritable() -> None:
        (folder / "operator.json").unlink()
        (folder / "operator.json").mkdir()
        says("resume")

    yield "round 1 may begin", lambda: opening(given, 1)
    for words in (
        *(("kick", 0), ("kick", 2), ("kick", 4), ("kick", -1), ("kick", None), ("kick", "0")),
        *(("pause", None), ("pause", 1), ("resume", None), ("other", None), ("other", 1)),
        *((None, None), ("exclude", 3), ("exclude", 3), ("include", 0), ("exclude", 2)),
        *(("exclude", 1), ("include", 2), ("include", 2)),
    ):
        yield f"{words[0]} {words[1]!r}", partial(says, *words)
    yield "round 1 begins", given.opened
    server.clients._carry(Begin(1))
    server.clients._carry(SendTask(_round_task(1)))
    yield "exclude 1", lambda: says("exclude", 1)
    yield "include 3", lambda: says("include", 3)
    yield "round 2 may begin", lambda: opening(given, 2)
    yield "round 2 begins", given.opened
    yield "include 1", lambda: says("include", 1)
    yield "exclude 0", lambda: says("exclude", 0)
    yield "the run steps back", given.forget
    yield "round 2 may begin again", lambda: opening(given, 2)
    yield "round 2 begins again", given.opened
    yield "pause", lambda: says("pause")
    yield "a resumed server", also_known
    yield "what cannot be kept", unwritable
    yield "stop", lambda: says("stop")


# --- a client ------------------------------------------------------------------------------------


class _Steps:
    """The module `time` of a client in which each look at the clock is a second after the last."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        self.now_s += 1.0
        return self.now_s

    perf_counter = monotonic


class _Connector:
    """A connector from which a client takes what a page says."""

    address = "fl.example.org:1"

    def __init__(self, lines: list[str], script: Sequence[Any]) -> None:
        self._lines = lines
        self._script = deque(script)
        self._refuses = False

    def start(self) -> None:
        self._lines.append("  started")

    def __exit__(self, *exc_info: object) -> None:
        self._lines.append("  closed")

    def next_event(self, timeout_s: float | None = None) -> Any:
        """Return the next event; without waiting only one that has come meanwhile."""
        while self._script:
            event = self._script[0]
            if isinstance(event, _Meanwhile):
                self._script.popleft()
                return event.event
            if timeout_s is not None:
                assert timeout_s == 0.0, "waits while it works"
                return None
            self._script.popleft()
            if isinstance(event, str):
                self._lines.append(event)
            elif callable(event):
                event()
            else:
                return event
        return None

    def send(self, message: Any) -> None:
        if self._refuses:
            raise NotConnected("server")
        self._lines.append(f"  sent {shown(message)}")

    def refuse(self) -> None:
        self._refuses = not self._refuses


@dataclass
class _Meanwhile:
    """An event that has come before the client looks, while it works."""

    event: Any


class _Broken(QuadraticEngine):
    def load(self, weights: np.ndarray, buffers: np.ndarray) -> None:
        raise ValueError("no memory")


def _says(message: Any, number: int = 0) -> Received:
    return Received("server", message, MESSAGE_BYTES, number)


def clients_of_deployments(parent: Path) -> str:
    """What a client logs, sends and makes of what comes from its server."""
    lines: list[str] = []
    setup = Setup("run", "", "", 4, (3,), 2)
    questions = {name: Question(name, classes=2, round=2) for name in ("labels", "times")}
    granted = Verdict(3, 4, granted=True)

    def breaks() -> None:
        client.compute.engine = _Broken(3)

    script: list[Any] = [
        *("connecting", Retrying("refused", 1.25), Connected("server", True)),
        *("before the setup", _says(a_task()), _says(setup)),
        *("a question", _says(questions["times"]), "one that fails", _says(questions["labels"])),
        *("a task", _says(a_task(round=2), 1), Sent("server", "Ready", 1)),
        *("it is sent", Sent("server", "Update", 1), "a question", _says(questions["times"])),
        *("a task with an offer", _says(a_task(round=3, offer=True), 2), _says(granted)),
        *("one before it that was sent later", _says(a_task(round=2), 1)),
        *("a later one has come", _says(a_task(round=4), 3), _Meanwhile(_says(a_task(round=5), 4))),
        *("it is declined", _says(a_task(round=6), 5)),
        _Meanwhile(_says(Verdict(6, 4, granted=False))),
        *("it disconnects", _says(a_task(round=7), 6), _Meanwhile(Disconnected("reset"))),
        *(Connected("server", True), _says(setup), _says(a_task(round=7), 1)),
    ]
    client: Any = None
    with pytest.MonkeyPatch.context() as patch, logging_to(lines, "fedmx.client"):
        for module in (client_module, participant_module, survey):
            patch.setattr(module, "time", _Steps())
        client, _ = a_client()
        client.compute.samples = replace(client.compute.samples, labels=(0, 2))
        client._participant = None
        connector = _Connector(lines, script)
        script = [
            *("the server has just gone", connector.refuse, _says(a_task(round=8), 2)),
            connector.refuse,
            *("a task of a round that is over", _says(a_task(round=8, model=False), 3)),
            _says(a_task(round=6, model=False), 4),
            *("a task that is sent again meanwhile", _says(a_task(round=8), 5)),
            _Meanwhile(_says(a_task(round=8), 6)),
            *("training that fails", breaks, _says(a_task(round=9), 7)),
            "certificates",
            CertificatesRenewed("certificate"),
            CertificatesRefused("ca.pem: no certificate"),
            CertificateExpires(EXPIRY, "the certificate client-4.pem expires in 1 day"),
            *("the end", _says(Finished("3 rounds"))),
        ]
        connector._script.extend(script)
        client.network = connector
        with client:
            lines.append(f"  {client.run()}")
        for title, script in (
            ("a connection that is closed", []),
            ("a server that refuses it", [GaveUp("not a client of this run", True)]),
            ("a run of another name", [_says(replace(setup, run="../run"))]),
            ("a task of another client", [_says(setup), _says(a_task(client=5))]),
            ("an asset that it waits for", [_says(replace(setup, assets=(ASSET.announced,)))]),
        ):
            lines.append(title)
            client, _ = a_client()
            client._participant = None
            client.network = _Connector(lines, script)
            try:
                client.run()
            except FedmxError as error:
                lines.append(f"  {type(error).__name__}: {error}")
    return "\n".join(lines)


DEPLOYMENTS: tuple[Callable[[Path], str], ...] = (
    sessions_of_servers,
    waits_of_servers,
    orders_of_operators,
    clients_of_deployments,
)
