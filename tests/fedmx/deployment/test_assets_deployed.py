"""Assets in a deployment: every client fetches them once, and is ready when it has them all."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import Assembly, Experiment, Round, RunFolder, Server, join, recorded, serve, simulate
from fedmx.assembly.assets import AssetFile
from fedmx.client.asset_receiver import AssetReceiver
from fedmx.deployment.asset_sender import AssetSender
from fedmx.deployment.names import identity
from fedmx.protocol.messages import Setup
from layers.compute.data.targets import Targets
from layers.network.frames import SIZE, Kind, frame
from tests.fedmx.client_process import ClientProcess
from tests.fedmx.deployment.test_deployment_by_hand import Running
from tests.fedmx.deployment.with_assets import Learning, experiment, file_bytes
from tests.fedmx.processes import until
from tests.fedmx.scripted import Scripted
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

CLIENTS = 20


TWO = """
import numpy as np

from layers.logic import Asset, ClientSide, Hook, ServerSide
from layers.logic.core.engine import ArrayData


class Anchored(Hook):
    assets = {"anchors": Asset(0.1), "probes": Asset(0.05)}

    class Client(ClientSide):
        def samples(self, data, context):
            anchors = context.assets["anchors"]
            x, y = np.concatenate([data.x, anchors.x]), np.concatenate([data.y, anchors.y])
            return ArrayData(x, y)

        def send(self, update, context):
            update.metrics["probed"] = float(context.assets["probes"].x.sum())
            return update

    class Server(ServerSide):
        def most_samples(self, samples, context):
            return samples + context.asset_sizes["anchors"]
"""


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
        self, server: Server, folder: Callable[[], RunFolder] | RunFolder, *, leaves: bool = False
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


def test_a_message_that_no_client_needs_is_refused_by_its_size(certificates: Certificates) -> None:
    class Announcing(Scripted):
        def be_ready(self) -> Setup:
            self.raw(frame(Kind.MESSAGE, 1, SIZE.pack(100_000_000)))
            return self.expect(Setup)

    tls = certificates.client(identity(0))
    with serve(experiment(certificates, 1), "run") as server:
        one = Announcing(server.address, 0, tls, Scripted.until_told)
        one.wait()
    assert "100000000" in one.over


def test_a_users_own_hook_gives_two_assets_and_a_damaged_copy_is_sent_again(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_assets.py").write_text(TWO)
    monkeypatch.setattr(sys, "path", [*sys.path])
    asked = experiment(certificates, 3, 2, {"hooks": ["own_assets:Anchored"]}, tmp_path)
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
    assert serving.rounds[0].file_bytes == at_home[0].file_bytes - anchors.wire_bytes(0)
    written = sorted(path.name for path in tmp_path.glob("runs/*/assets/*"))
    assert written == ["anchors.safetensors", "probes.safetensors"]
    probed = {told.metrics["probed"] for told in at_home[0].report.clients}
    assert probed == {float(made.asset_samples["probes"].x.sum())}


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
    copy.discard(Setup("run", "", "", 3, (2,), Targets("classes", 0), (announced,)))
    assert copy.find(announced, 3) is None


def test_a_file_of_an_earlier_process_is_not_sent_unless_it_is_the_asset(tmp_path: Path) -> None:
    sent: list[tuple[str, bytes]] = []

    class Sending:
        def send_file(self, peer: str, path: Path, name: str) -> None:
            sent.append((peer, path.read_bytes()))

    (tmp_path / "shared.safetensors").write_bytes(b"stale")
    sender = AssetSender([AssetFile("shared", b"new")], Sending())  # type: ignore[arg-type]
    sender.folder = tmp_path
    sender.send("client-0", 0, ["shared"])
    assert sent == [("client-0", b"new")]


def test_a_server_that_needs_no_update_waits_for_a_client(certificates: Certificates) -> None:
    compute = {"model": "2nn", "data": "digits", "normalise": {"scale": 16}}
    text = {"rounds": 1, "clients": 2, "compute": compute}
    network = {"address": "127.0.0.1:0", "insecure": True, "wait_for": 1}
    for least, needed in ((0, 1), (2, 2)):
        given = Experiment.from_dict({**text, "logic": {"min_updates": least}, "network": network})
        assert serve(given, "a-run").network._at_least == needed
