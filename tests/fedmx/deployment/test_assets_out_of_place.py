"""Assets that are offered, asked for or missing where they should not be."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from fedmx import Assembly, Experiment, Server, join, serve
from fedmx.assembly.assets import AssetFile
from fedmx.components.text import without_folders
from fedmx.deployment.names import identity
from fedmx.protocol.messages import (
    CODEC,
    AnnouncedAsset,
    CannotTakePart,
    MissingAssets,
    Ready,
    Setup,
)
from layers.compute.data.targets import Targets
from layers.logic.round.exchange import ReportCosts
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
from tests.fedmx.deployment.test_deployment_by_hand import Running
from tests.fedmx.deployment.with_assets import Learning, experiment
from tests.fedmx.processes import until
from tests.fedmx.scripted import Scripted, fleet
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine


def setup_of(asked: Experiment, asset: AnnouncedAsset) -> Setup:
    shape = Assembly(asked).data.dataset.shape
    text = asked.with_overrides(["network.tls=null"]).to_yaml()
    return Setup("run", text, asked.digest(), 0, shape, Targets("classes", 10), (asset,))


NOT_ANNOUNCED = "not announced"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("content", NOT_ANNOUNCED),
        ("file name", NOT_ANNOUNCED),
        ("digest", "'../../evil'"),
        ("name", "asset '../evil'"),
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
    assert without_folders(str(one.error)) == told[0]
    assert "\n" not in told[0]
    assert without_folders(reason) in told[0]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [sent]


@pytest.mark.parametrize("first", [True, False])
def test_a_server_that_sends_what_it_never_announced_fills_no_disk(
    certificates: Certificates, tmp_path: Path, first: bool
) -> None:
    """It offers 40 files before its setup, which the client cannot judge yet, or after it."""
    asked = experiment(certificates, 1, logic={"preset": "fedavg"})
    sent = tmp_path / "sent.safetensors"
    sent.write_bytes(bytes(5000))
    setup = replace(setup_of(asked, AssetFile("shared", b"right").announced), assets=())
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
    assert "not announced" in str(one.error)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [sent]


def test_a_client_that_is_ready_without_them_is_sent_away(certificates: Certificates) -> None:
    server = serve(experiment(certificates, 1), "run")

    with server, fleet(server, certificates, {0: Scripted.until_told}) as clients:
        until(lambda: _sent_away(server, clients[0]), lambda: clients[0].over)
    assert "with other assets" in clients[0].over
    assert any(
        "with other assets" in said
        for said in server.network.exchange([ReportCosts()])[0].overhead.rejected_connections
    )


def _sent_away(server: Server, client: Scripted) -> bool:
    server.network._sessions.poll()
    return bool(client.over)


def test_a_client_that_asks_for_them_again_and_again_is_sent_away(
    certificates: Certificates, tmp_path: Path
) -> None:
    server = serve(experiment(certificates, 1), "run")
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
    reported = server.network.exchange([ReportCosts()])[0].overhead.rejected_connections
    assert any("lacks the asset shared that it had" in said for said in reported)


def _is_setup(event: object) -> bool:
    return isinstance(event, Received) and isinstance(event.message, Setup)
