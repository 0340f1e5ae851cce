"""Clients whose every word a test decides, on real sockets with real TLS, and a server for them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from mxnet.gluon import nn

from fedmx import RemoteClients, Server
from fedmx.deployment.names import identity
from fedmx.protocol.messages import CODEC, Finished, Ready, Setup
from layers.compute.data.dataset import Samples
from layers.compute.engines.engine import Compute
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.logic import Logic, OpenRound, Run, Task, Update
from layers.logic.core.selector import Selector
from layers.logic.selectors.uniform import Uniform
from layers.network import ClientTLS, Listener, MessageCodec
from layers.network.events import Arrived, Ended, Opened
from layers.network.handshake import ClientSession
from tests.network.conftest import Certificates

PATIENCE_S = 60.0
T = TypeVar("T")


class Over(Exception):
    """The session is over; says why."""


class Scripted:
    """A client that does what its script says, in a thread of its own.

    `tasks`, `told` (that the run is over) and `over` (why its last session ended) tell what it saw.
    `features` are those that it names, `stopping` says that its test is over.
    """

    features: frozenset[str] = frozenset()

    def __init__(
        self,
        address: str,
        client: int,
        tls: ClientTLS,
        script: Callable[[Scripted], None],
        *,
        name: str | None = None,
        codec: MessageCodec = CODEC,
        samples: int = 10,
    ) -> None:
        host, _, port = address.rpartition(":")
        self.client = client
        self.samples = samples
        self.kept: tuple[int, ...] = ()  # the rounds whose memory it says it has
        self.tasks: list[Task] = []
        self.told: list[str] = []
        self.over = ""
        self.error: Exception | None = None
        self._where = (host, int(port))
        self._tls = tls
        self._name = name or identity(client)
        self._codec = codec
        self._script = script
        self.stopping = False
        self._socket = socket.socket()  # until it is connected
        self._thread = threading.Thread(target=self._run, name=f"scripted-{client}")
        self._thread.start()

    # What a script says

    def connect(self) -> None:
        """Open a session, whatever there was before."""
        bare = socket.create_connection(self._where, PATIENCE_S)
        self._socket = self._tls.context().wrap_socket(bare, server_hostname=self._where[0])
        self._session = ClientSession(
            self._name, self._codec, time.monotonic(), certified=True, features=self.features
        )
        self._inbox: deque[Any] = deque()
        self._opened = False
        while not self._opened:
            self._read()

    def be_ready(self) -> Setup:
        """Take the setup and say that this client is ready."""
        self.setup = setup = self.expect(Setup)
        self.say(Ready(setup.run, self.client, self.samples, self.kept))
        return setup

    def expect(self, kind: type[T]) -> T:
        """Return the next message of a type; others before it are forgotten."""
        while True:
            while self._inbox:
                message = self._inbox.popleft()
                if isinstance(message, kind):
                    return message
            if self.told:
                raise Over("told")
            self._read()

    def task(self) -> Task:
        """Return the next task."""
        task = self.expect(Task)
        self.tasks.append(task)
        if task.has_model:
            self.kept = tuple({one for one in (task.last_accepted_round, task.round) if one})
        return task

    def say(self, message: object) -> None:
        """Send a message."""
        self._session.send_message(self._codec.encode(message))
        self._flush()

    def frames(self, message: object) -> bytes:
        """Return a message as it would go over the wire."""
        self._session.send_message(self._codec.encode(message))
        return b"".join(self._session.data_to_send(1 << 24, time.monotonic()))

    def raw(self, data: bytes) -> None:
        """Send bytes."""
        self._socket.sendall(data)

    def hang_up(self) -> None:
        """Vanish without a word."""
        self._socket.close()

    def until_told(self) -> None:
        """Take what comes until the run, or the session, is over."""
        while not self.told:
            self._read()

    # Its thread

    def _run(self) -> None:
        try:
            self.connect()
            self.be_ready()
            self._script(self)
            self.until_told()
        except Over as over:
            self.over = str(over)
        except OSError as error:
            self.over = self.over or str(error)
        except Exception as error:  # noqa: BLE001, raised again where the test waits for it
            self.error = error
        finally:
            self._socket.close()

    def wait(self) -> None:
        """Wait until it has ended by itself."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        """End it, and raise what went wrong in it."""
        self.stopping = True
        ends = time.monotonic() + PATIENCE_S
        while self._thread.is_alive() and time.monotonic() < ends:
            with contextlib.suppress(OSError):  # the script may have connected again meanwhile
                self._socket.shutdown(socket.SHUT_RDWR)
            self._thread.join(0.05)
        self.wait()
        if self.error is not None:
            raise self.error

    def _read(self) -> None:
        data = self._socket.recv(1 << 16)
        if not data:
            self._take(self._session.receive_eof())
            raise Over("closed")
        self._take(self._session.receive_data(data, time.monotonic()))
        self._flush()

    def _take(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, Opened):
                self._opened = True
            elif isinstance(event, Arrived):
                if isinstance(event.message, Finished):
                    self.told.append(event.message.reason)
                self._inbox.append(event.message)
            elif isinstance(event, Ended):
                raise Over(event.reason)

    def _flush(self) -> None:
        while pieces := self._session.data_to_send(1 << 20, time.monotonic()):
            self._socket.sendall(b"".join(pieces))


@contextlib.contextmanager
def fleet(
    server: Server,
    certificates: Certificates,
    scripts: Mapping[int, Callable[[Scripted], None]],
    **settings: Any,
) -> Iterator[dict[int, Scripted]]:
    """Scripted clients, by their numbers, while the with statement lasts."""
    clients: dict[int, Scripted] = {}
    try:
        for client, script in scripts.items():
            tls = certificates.client(identity(client))
            clients[client] = Scripted(server.address, client, tls, script, **settings)
        yield clients
    finally:
        for one in clients.values():
            one.stop()


def update_of(task: Task, **changed: Any) -> Update:
    """An honest update: as long as the model, and another one for each client."""
    delta = np.full(task.weights.shape, 0.25 * (task.client + 1), np.float32)
    honest = Update(task.round, task.client, 10, 1, delta, task.buffers.copy(), {"loss": 1.0})
    return dataclasses.replace(honest, **changed)


def honest(client: Scripted) -> None:
    """Answer every task."""
    while True:
        client.say(update_of(client.task()))


@dataclass(frozen=True)
class Least(Selector):
    """Grants the `grants` smallest offers, once nobody is waited for."""

    grants: int = 2

    def run(self, round: OpenRound) -> Run[None]:
        for client in round.clients:
            round.train(client, offer=True)
        yield from round.next()
        while round.offers_due:
            yield from round.next()
        best = sorted(round.offers.values(), key=lambda offer: offer.norm)[: self.grants]
        for offer in list(round.offers.values()):
            (round.grant if offer in best else round.decline)(offer)
        yield from round.until_all()


def tiny() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(3))
    return net


@functools.cache
def compute() -> Compute:
    """A real engine with a model of 15 parameters, and some samples."""
    rng = np.random.default_rng(1)
    samples = Samples(rng.random((12, 4), dtype=np.float32), rng.integers(0, 3, 12))
    return Compute(MXNetEngine(tiny, (4,), 3), samples)


def listening(certificates: Certificates, *, last: int = 1, **settings: Any) -> Server:
    """A server built by hand, over mutual TLS at a free port; settings of its parts."""
    of_logic = {
        "selector": Uniform(1.0),
        "hooks": (),
        "min_updates": 1,
        "seed": 7,
        "deadline_s": None,
        "max_update": 1000.0,
        "clients": None,
    }
    logic = {name: settings.pop(name, value) for name, value in of_logic.items()}
    names = ("wait_for", "rejoin_s", "max_samples", "violations", "log_lines", "patience")
    names += ("wait_limit_s", "any_version")
    of_clients = {name: settings.pop(name) for name in names if name in settings}
    of_clients["clients"] = settings.pop("number", None)
    at_least = max(logic["min_updates"], 1)
    listener = Listener("127.0.0.1:0", CODEC, tls=certificates.server, successors=True)
    return Server(
        network=RemoteClients(listener, at_least=at_least, **of_clients),
        logic=Logic(layout=compute().engine.layout, **logic),
        compute=compute(),
        last_round=last,
        **settings,
    )


def after_one_round(start: np.ndarray, clients: tuple[int, ...]) -> np.ndarray:
    """The model after a round in which exactly `clients` counted, each as honest as the others."""
    mean = sum(np.float64(0.25 * (client + 1)) for client in clients) / len(clients)
    return start + np.float32(mean)
