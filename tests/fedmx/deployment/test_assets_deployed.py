"""Assets in a deployment: every client fetches them once, and is ready when it has them all."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import (
    Assembly,
    Experiment,
    OwnPart,
    RemoteClients,
    Round,
    RunFolder,
    Server,
    join,
    recorded,
    serve,
    simulate,
)
from fedmx.assembly.asset_file import AssetFile
from fedmx.client.asset_receiver import AssetReceiver
from fedmx.deployment.client_sessions import identity
from fedmx.protocol.messages import (
    CODEC,
    AnnouncedAsset,
    CannotTakePart,
    MissingAssets,
    Ready,
    Setup,
)
from layers.network import (
    Connector,
    ExpectedFile,
    FileReceived,
    GaveUp,
    Joined,
    Left,
    Listener,
    NotConnected,
    Received,
)
from tests.fedmx.client_process import ClientProcess
from tests.fedmx.deployment.test_deployment_by_hand import Running
from tests.fedmx.processes import until
from tests.fedmx.scripted import Scripted, fleet
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

CLIENTS = 20
LOADING = threading.Lock()  # MXNet makes one model at a time


TWO = """
import numpy as np

from layers.logic import Asset, ClientHalf, Hook, ServerHalf
from layers.logic.core.engine import ArrayData


class Anchored(Hook):
    assets = {"anchors": Asset(0.1), "probes": Asset(0.05)}

    def client(self):
        return Anchoring()

    def server(self):
        return Counting()


class Counting(ServerHalf):
    def most_samples(self, samples, context):
        return samples + context.asset_sizes["anchors"]


class Anchoring(ClientHalf):
    def samples(self, data, context):
        anchors = context.assets["anchors"]
        return ArrayData(np.concatenate([data.x, anchors.x]), np.concatenate([data.y, anchors.y]))

    def send(self, update, context):
        update.metrics["probed"] = float(context.assets["probes"].x.sum())
        return update
"""


def experiment(
    certificates: Certificates,
    clients: int,
    rounds: int = 3,
    logic: dict[str, Any] | None = None,
    folder: Path | None = None,
) -> Experiment:
    tls = certificates.server
    files = {"ca": tls.ca, "certificate": tls.certificate, "key": tls.key}
    tree: dict[str, Any] = {
        "seed": 4,
        "rounds": rounds,
        "clients": clients,
        "compute": {
            "model": "2nn",
            "data": "digits",
            "normalise": {"scale": 16},
            "evaluate": {"every": rounds},
            "train": {"steps": 2, "batch_size": 10, "learning_rate": 0.05},
        },
        "logic": logic or {"preset": {"name": "fedshare", "fraction": 0.5, "shared": 0.2}},
        "network": {
            "address": "127.0.0.1:0",
            "heartbeat_s": 30,
            "tls": {kind: str(file) for kind, file in files.items()},
        },
    }
    return Experiment.parse(json.dumps(tree), "assets.yaml", folder=folder, modules=None)


class Learning(OwnPart):
    """Clients of one process make their models one after the other."""

    def learn(self, setup: Setup) -> Any:
        with LOADING:
            return super().learn(setup)


def running(
    server: Server, certificates: Certificates, client: int, memory: Path | None, **own: Any
) -> Running:
    tls = certificates.client(identity(client))
    return Running(join(server.address, client, Learning(**own), tls=tls, memory=memory))


class Serving:
    """A server that runs its rounds in a thread, into a run folder, and waits after the first.

    With `leaves` it then ends as one that is stopped, to be resumed.
    """

    def __init__(
        self,
        server: Server,
        folder: Callable[[], RunFolder] | RunFolder,
        *,
        leaves: bool = False,
    ) -> None:
        self.rounds: list[Round] = []
        self.error: Exception | None = None
        self._going_on = threading.Event()
        self._server = server
        self._folder = folder
        self._leaves = leaves
        self._thread = threading.Thread(target=self._run, name="server")
        self._thread.start()
        until(lambda: not server.address.endswith(":0"), lambda: "it does not listen")

    def _run(self) -> None:
        try:
            with contextlib.closing(recorded(self._server, self._folder)) as rounds:
                for round in rounds:
                    self.rounds.append(round)
                    if len(self.rounds) == 1:
                        assert self._going_on.wait(120)
                        if self._leaves:
                            break
        except Exception as error:  # noqa: BLE001, raised again where the test waits for it
            self.error = error

    def go_on(self) -> None:
        """Let it begin the second round."""
        self._going_on.set()

    def end(self) -> None:
        """Wait until the run is over, or left."""
        self.go_on()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error


def folder(parent: Path) -> Callable[[], RunFolder]:
    return lambda: RunFolder.create(parent, "run", "rounds: 3\n", {})


def file_bytes(server: Server, client: int) -> int:
    """Return the bytes of files of all of a client's connections, in both directions."""
    assert isinstance(server.network, RemoteClients)
    traffic = server.network.listener.traffic(identity(client))
    return traffic.file_bytes_sent + traffic.file_bytes_received


class Stalling:
    """A way to the server that carries so many bytes down and then no more, until it is cut."""

    def __init__(self, address: str, down_bytes: int) -> None:
        self._server = address.rpartition(":")[0], int(address.rpartition(":")[2])
        self._left = down_bytes
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._open: list[socket.socket] = [self._listening]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._listening.accept()
            server = socket.create_connection(self._server)
            self._open += [client, server]
            up = threading.Thread(target=self._carry, args=(client, server, 1 << 40))
            self._threads.append(up)
            up.start()
            self._carry(server, client, self._left)

    def _carry(self, source: socket.socket, sink: socket.socket, left: int) -> None:
        with contextlib.suppress(OSError):
            while left and (data := source.recv(min(left, 4096))):
                sink.sendall(data)
                left -= len(data)

    def cut(self) -> None:
        """End all connections."""
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture
def process() -> Iterator[list[ClientProcess]]:
    two = [ClientProcess(), ClientProcess()]
    yield two
    for one in two:
        one.kill()


def test_twenty_clients_fetch_them_once_and_one_is_killed_while_it_does(
    certificates: Certificates, tmp_path: Path, process: list[ClientProcess]
) -> None:
    wanted = Assembly(experiment(certificates, CLIENTS))
    asset = wanted.assets["shared"]
    server = serve(experiment(certificates, CLIENTS), "run")
    serving = Serving(server, folder(tmp_path / "runs"))
    memory = tmp_path / "memory"  # of all clients of this machine
    others = [running(server, certificates, client, memory) for client in range(CLIENTS - 2)]
    others.append(running(server, certificates, CLIENTS - 2, None))
    victim, tls = CLIENTS - 1, certificates.client(identity(CLIENTS - 1))
    way = Stalling(server.address, asset.size_bytes // 2)
    try:
        process[0].start(way.address, victim, memory, tls)
        copy = memory / "assets" / asset.announced.file_name(victim)
        part = copy.with_name(copy.name + ".part")
        until(lambda: part.exists() and part.stat().st_size > 9999, lambda: f"{memory}")
        process[0].kill()
    finally:
        way.cut()
    assert not serving.rounds, "it was not ready"
    assert not copy.exists()
    process[1].start(server.address, victim, memory, tls)
    until(lambda: serving.rounds, lambda: "no round")
    assert copy.read_bytes() == asset.content
    assert 2 * asset.size_bytes > file_bytes(server, victim) > asset.size_bytes
    (kept,) = tmp_path.glob("runs/*/assets/shared.safetensors")
    assert kept.read_bytes() == asset.content
    serving.end()
    assert process[1].finished() == server.reason
    for one in others:
        one.end()
        assert one.error is None
    simulation = simulate(wanted)
    at_home = list(simulation)
    assert server.weights.tobytes() == simulation.weights.tobytes()
    for client in range(victim):
        assert file_bytes(server, client) == asset.wire_bytes(client)
    assert [round.report for round in serving.rounds] == [round.report for round in at_home]
    again = file_bytes(server, victim) - asset.wire_bytes(victim)
    assert serving.rounds[0].file_bytes == at_home[0].file_bytes + again
    assert all(round.file_bytes == 0 for round in serving.rounds[1:])
    assert list((memory / "assets").iterdir()) == [], "the run is over"


def test_who_comes_back_has_them_and_so_does_a_server_that_is_resumed(
    certificates: Certificates, tmp_path: Path, process: list[ClientProcess]
) -> None:
    asked = experiment(certificates, 2)
    simulation = simulate(asked)
    list(simulation)
    first = serve(asked, "run")
    serving = Serving(first, folder(tmp_path / "runs"), leaves=True)
    tls = certificates.client(identity(1))
    steady = running(first, certificates, 0, tmp_path)
    process[0].start(first.address, 1, tmp_path, tls)
    until(lambda: serving.rounds, lambda: "no round")
    process[0].kill()
    serving.end()
    run = RunFolder.open(next((tmp_path / "runs").iterdir()))
    written = (run.assets_path / "shared.safetensors").stat()
    second = serve(asked.with_overrides([f"network.address={first.address}"]), "run")
    serving = Serving(second, run)
    process[1].start(second.address, 1, tmp_path, tls)
    serving.end()
    steady.end()
    assert process[1].finished() == steady.reason == second.reason
    assert second.weights.tobytes() == simulation.weights.tobytes()
    assert [file_bytes(second, client) for client in range(2)] == [0, 0]
    assert (run.assets_path / "shared.safetensors").stat() == written


def test_a_client_with_data_of_its_own_gets_them_too(
    certificates: Certificates, tmp_path: Path
) -> None:
    asked = experiment(certificates, 1, rounds=1)
    made = Assembly(asked)
    data = made.data.dataset
    arrays = {"x_train": data.train.x[:30], "y_train": data.train.y[:30]}
    np.savez(tmp_path / "own.npz", **arrays, x_test=data.test.x[:9], y_test=data.test.y[:9])
    server = serve(asked, "run")
    serving = Serving(server, folder(tmp_path / "runs"))
    one = running(server, certificates, 0, tmp_path / "memory", data=tmp_path / "own.npz")
    serving.end()
    one.end()
    assert one.error is None
    assert serving.rounds[0].report.clients[0].samples == 30 + len(made.asset_samples["shared"])


def test_a_users_own_hook_gives_two_assets_and_a_damaged_copy_is_sent_again(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_assets.py").write_text(TWO)
    monkeypatch.setattr(sys, "path", [*sys.path])
    logic = {"hooks": ["own_assets:Anchored"]}
    asked = experiment(certificates, 3, 2, logic, tmp_path)
    made = Assembly(asked)
    simulation = simulate(made)
    at_home = list(simulation)
    anchors, probes = made.assets["anchors"], made.assets["probes"]
    memory = tmp_path / "memory"
    copies = [memory / "assets" / asset.announced.file_name(0) for asset in (anchors, probes)]
    copies[0].parent.mkdir(parents=True)
    copies[0].write_bytes(anchors.content)
    copies[1].write_bytes(probes.content[:-1] + bytes([probes.content[-1] ^ 1]))
    server = serve(asked, "run")
    serving = Serving(server, folder(tmp_path / "runs"))
    own = {"modules": ["own_assets"], "folder": tmp_path}
    clients = [running(server, certificates, client, memory, **own) for client in range(3)]
    until(lambda: serving.rounds, lambda: "no round")
    assert [path.read_bytes() for path in copies] == [anchors.content, probes.content]
    serving.end()
    for one in clients:
        one.end()
        assert one.error is None
    assert server.weights.tobytes() == simulation.weights.tobytes()
    assert [round.report for round in serving.rounds] == [round.report for round in at_home]
    assert file_bytes(server, 0) == probes.wire_bytes(0)
    saved = anchors.wire_bytes(0)
    assert serving.rounds[0].file_bytes == at_home[0].file_bytes - saved
    written = sorted(path.name for path in tmp_path.glob("runs/*/assets/*"))
    assert written == ["anchors.safetensors", "probes.safetensors"]
    probed = {told.metrics["probed"] for told in at_home[0].report.clients}
    assert probed == {float(made.asset_samples["probes"].x.sum())}


# --- ends that do not do as they should -----------------------------------------------------------


def setup_of(asked: Experiment, asset: AnnouncedAsset) -> Setup:
    shape = Assembly(asked).data.dataset.shape
    text = asked.with_overrides(["network.tls=null"]).to_yaml()
    return Setup("run", text, asked.digest(), 0, shape, 10, (asset,))


NOT_ANNOUNCED = "is offered, which was not announced"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("content", NOT_ANNOUNCED),
        ("file name", NOT_ANNOUNCED),
        ("digest", "says '../../evil' where a SHA-256 belongs"),
        ("name", "calls an asset '../evil', which is no name"),
        ("other", "hooks need the assets shared, which the server does not announce"),
    ],
)
def test_a_file_that_was_not_announced_is_refused(
    certificates: Certificates, tmp_path: Path, wrong: str, reason: str
) -> None:
    asked = experiment(certificates, 1)
    sent = tmp_path / "sent.safetensors"
    sent.write_bytes(b"wrong")
    right = AssetFile("shared", b"right")
    announced = AnnouncedAsset(
        {"name": "../evil", "other": "other"}.get(wrong, "shared"),
        "../../evil" if wrong == "digest" else right.sha256,
        right.size_bytes,
    )
    setup = setup_of(asked, announced)
    name = "other.safetensors" if wrong == "file name" else right.announced.file_name(0)
    told: list[str] = []
    listener = Listener("127.0.0.1:0", CODEC, tls=certificates.server)
    with listener:
        memory = tmp_path / "memory"
        tls = certificates.client(identity(0))
        one = Running(join(listener.address, 0, Learning(), tls=tls, memory=memory))
        while not told:
            event = listener.next_event(60)
            assert event is not None
            if isinstance(event, Joined):
                listener.send(event.peer, setup)
            elif isinstance(event, Received) and isinstance(event.message, MissingAssets):
                assert event.message.assets == ("shared",)
                listener.send_file(event.peer, sent, name)
            elif isinstance(event, Received) and isinstance(event.message, CannotTakePart):
                told.append(event.message.reason)
            elif isinstance(event, Left):
                told.append(event.reason)
        one.end()
    assert str(one.error) == told[0]
    assert "\n" not in told[0]
    assert reason in told[0]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [sent]


@pytest.mark.parametrize("first", [True, False])
def test_a_server_that_sends_what_it_never_announced_fills_no_disk(
    certificates: Certificates, tmp_path: Path, first: bool
) -> None:
    """It offers 40 files before its setup, which the client cannot judge yet, or after it."""
    asked = experiment(certificates, 1, logic={"preset": "fedavg"})
    sent = tmp_path / "sent.safetensors"
    sent.write_bytes(bytes(5000))
    right = AssetFile("shared", b"right")
    setup = replace(setup_of(asked, right.announced), assets=())
    listener = Listener("127.0.0.1:0", CODEC, tls=certificates.server)

    def offer(peer: str) -> None:
        for number in range(40):
            with contextlib.suppress(NotConnected):
                listener.send_file(peer, sent, f"{number}.safetensors")

    with listener:
        memory = tmp_path / "memory"
        tls = certificates.client(identity(0))
        one = Running(join(listener.address, 0, Learning(), tls=tls, memory=memory))
        left = False
        while not left:
            event = listener.next_event(60)
            assert event is not None
            if isinstance(event, Joined):
                if first:
                    offer(event.peer)
                listener.send(event.peer, setup)
            elif isinstance(event, Received) and isinstance(event.message, Ready):
                offer(event.peer)
            left = isinstance(event, Left)
        one.end()
    assert "'0.safetensors' of 5000 bytes" in str(one.error)
    assert "which was not announced" in str(one.error)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [sent]


def test_a_copy_that_was_damaged_is_one_that_the_client_lacks(tmp_path: Path) -> None:
    asset = AssetFile("some", b"what every client is given")
    announced = asset.announced
    copy = AssetReceiver(tmp_path)
    copy.folder.mkdir()
    for there in (asset.content[:-1], asset.content[:-1] + b"m"):
        copy.path(announced, 3).write_bytes(there)
        assert copy.find(announced, 3) is None
    copy.path(announced, 3).write_bytes(asset.content)
    assert copy.find(announced, 3) == asset
    assert copy.find(announced, 2) is None, "another client's copy"
    copy.discard(Setup("run", "", "", 3, (2,), 0, (announced,)))
    assert copy.find(announced, 3) is None


def test_a_client_that_is_ready_without_them_is_sent_away(certificates: Certificates) -> None:
    server = serve(experiment(certificates, 1), "run")
    assert isinstance(server.network, RemoteClients)

    with server, fleet(server, certificates, {0: Scripted.until_told}) as clients:
        until(lambda: _sent_away(server, clients[0]), lambda: clients[0].over)
    assert "with other assets" in clients[0].over
    assert any(
        "with other assets" in said for said in server.network.overhead().rejected_connections
    )


def _sent_away(server: Server, client: Scripted) -> bool:
    assert isinstance(server.network, RemoteClients)
    server.network._sessions.poll()
    return bool(client.over)


def test_a_client_that_asks_for_them_again_and_again_is_sent_away(
    certificates: Certificates, tmp_path: Path
) -> None:
    server = serve(experiment(certificates, 1), "run")
    assert isinstance(server.network, RemoteClients)
    asked = 0
    with server:
        tls = certificates.client(identity(0))
        with Connector(server.address, identity(0), CODEC, tls=tls, files=tmp_path) as greedy:
            ended: list[str] = []
            while not ended:
                server.network._sessions.poll()
                event = greedy.next_event(0.01)
                if isinstance(event, Received) and isinstance(event.message, Setup):
                    greedy.expect(
                        ExpectedFile(one.file_name(0), one.size_bytes, bytes.fromhex(one.sha256))
                        for one in event.message.assets
                    )
                if isinstance(event, FileReceived) or _is_setup(event):
                    with contextlib.suppress(NotConnected):  # it is being sent away already
                        greedy.send(MissingAssets("run", 0, ("shared",)))
                        asked += 1
                elif isinstance(event, GaveUp):
                    ended.append(event.reason)
    assert "lacks the asset shared that it had" in ended[0]
    assert asked < 20
    reported = server.network.overhead().rejected_connections
    assert any("lacks the asset shared that it had" in said for said in reported)


@pytest.mark.parametrize("names", [(), ("other",), ("shared", "other")])
def test_a_client_that_asks_for_what_was_not_announced_is_sent_nothing(
    certificates: Certificates, tmp_path: Path, names: tuple[str, ...]
) -> None:
    server = serve(experiment(certificates, 1), "run")
    assert isinstance(server.network, RemoteClients)
    said: list[str] = []
    with server:
        tls = certificates.client(identity(0))
        with Connector(server.address, identity(0), CODEC, tls=tls, files=tmp_path) as greedy:
            while not said:
                if _is_setup(greedy.next_event(0.01)):
                    greedy.send(MissingAssets("run", 0, names))
                server.network._sessions.poll()
                said += server.network.overhead().rejected_connections
        assert said == ["client 0: lacks assets that it has, or that this run does not have"]
        assert file_bytes(server, 0) == 0


def _is_setup(event: object) -> bool:
    return isinstance(event, Received) and isinstance(event.message, Setup)
