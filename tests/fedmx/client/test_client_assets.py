"""What a deployed client does with the files that it receives, without a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from fedmx.assembly.assets import AssetFile
from fedmx.client.asset_receiver import AssetReceiver, check_announced
from fedmx.client.client import Client
from fedmx.client.participant import ClientMemory, Participant
from fedmx.errors import FedmxError
from fedmx.protocol.messages import CannotTakePart, Finished, MissingAssets, Ready, Setup
from layers.compute.data.targets import Targets
from layers.logic import ClientLedger, ClientState
from layers.network import FileFailed, FileReceived, Received


def samples(number: int) -> bytes:
    return save({"x": np.zeros((number, 3), np.float32), "y": np.zeros(number, np.int64)})


FIRST, SECOND = AssetFile("first", samples(2)), AssetFile("second", samples(5))
SETUP = Setup("run", "", "", 4, (3,), Targets("classes", 2), (FIRST.announced, SECOND.announced))


class Waiting:
    """Client 4 of a run that announces two assets, and what it has sent."""

    def __init__(self, folder: Path) -> None:
        self.sent: list[Any] = []
        self.expected: list[str] = []
        network: Any = SimpleNamespace(
            send=self.sent.append,
            next_event=lambda timeout_s: None,
            expect=lambda files: self.expected.extend(file.name for file in files),
        )
        logic: Any = SimpleNamespace(assets={})
        engine = SimpleNamespace(example_shape=(3,))
        compute: Any = SimpleNamespace(engine=engine, samples=range(9))
        self.receiver = AssetReceiver(folder)
        self.receiver.folder.mkdir()
        self.client: Any = Client(network, logic, compute, assets=self.receiver)
        self.client._setup = SETUP
        self.client._participant = Participant(4, logic, compute, ClientLedger())
        self.client._handle_setup(SETUP)

    def receive(self, name: str, content: bytes) -> Path:
        path = self.receiver.folder / name
        path.write_bytes(content)
        digest = AssetFile("", content).sha256
        self.client._handle_file(FileReceived("server", path, len(content), digest))
        return path


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    made = Waiting(tmp_path)
    assert made.sent == [MissingAssets("run", 4, ("first", "second"))]
    assert made.expected == [name_of(FIRST), name_of(SECOND)]
    made.sent.clear()
    yield made
    made.receiver.close()


def name_of(asset: AssetFile) -> str:
    return asset.announced.file_name(4)


def test_a_client_is_ready_when_it_has_the_last_of_its_assets(waiting: Waiting) -> None:
    waiting.receive(name_of(SECOND), SECOND.content)
    assert waiting.sent == []
    waiting.receive(name_of(FIRST), FIRST.content)
    assert waiting.sent == [Ready("run", 4, 9, (), (FIRST.sha256, SECOND.sha256))]
    assets = waiting.client._participant.assets
    assert {name: len(kept) for name, kept in assets.items()} == {"first": 2, "second": 5}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (name_of(FIRST), SECOND.content),
        (name_of(FIRST), FIRST.content[:-1] + b"x"),
        (FIRST.announced.file_name(5), FIRST.content),
        ("unknown.safetensors", FIRST.content),
    ],
)
def test_a_file_that_was_not_announced_is_removed_and_ends_the_client(
    waiting: Waiting, name: str, content: bytes
) -> None:
    with pytest.raises(FedmxError, match="is not an asset that it announced") as caught:
        waiting.receive(name, content)
    assert list(waiting.receiver.folder.iterdir()) == []
    assert waiting.sent == [CannotTakePart(4, str(caught.value))]


def test_what_a_client_has_of_a_run_is_removed_when_the_run_has_ended(
    waiting: Waiting, tmp_path: Path
) -> None:
    waiting.client._memory = memory = ClientMemory(tmp_path / "ledgers", "run", 4)
    memory.keep(ClientLedger(pending=ClientState(3, {"hook": {"count": 2}})))
    assert len(list((tmp_path / "ledgers").iterdir())) == 1
    events: list[Any] = [Received("server", Finished("3 rounds"), 10)]
    for asset in (FIRST, SECOND):
        path = waiting.receiver.folder / name_of(asset)
        path.write_bytes(asset.content)
        events.append(FileReceived("server", path, len(asset.content), asset.sha256))
    other = waiting.receiver.folder / FIRST.announced.file_name(5)
    other.write_bytes(FIRST.content)
    waiting.client.network.next_event = lambda timeout_s: (
        events.pop() if timeout_s is None else None
    )
    assert waiting.client.run() == "3 rounds"
    assert [type(one) for one in waiting.sent] == [Ready]
    assert list(waiting.receiver.folder.iterdir()) == [other]
    assert list((tmp_path / "ledgers").iterdir()) == []


def test_a_client_that_has_its_assets_already_is_ready_at_once(waiting: Waiting) -> None:
    for asset in (FIRST, SECOND):
        (waiting.receiver.folder / name_of(asset)).write_bytes(asset.content)
    waiting.client._handle_setup(SETUP)
    assert waiting.sent == [Ready("run", 4, 9, (), (FIRST.sha256, SECOND.sha256))]


def test_an_asset_that_is_not_received_ends_the_client(waiting: Waiting) -> None:
    with pytest.raises(FedmxError, match="the asset first was not received: too large") as caught:
        waiting.client._handle_file(FileFailed("server", "first", "too large"))
    assert waiting.sent == [CannotTakePart(4, str(caught.value))]


@pytest.mark.parametrize("unset", ["_setup", "_participant", "_missing_assets"])
def test_a_file_is_ignored_before_the_setup_of_this_connection(
    waiting: Waiting, unset: str
) -> None:
    setattr(waiting.client, unset, set() if unset == "_missing_assets" else None)
    assert waiting.receive("unknown.safetensors", b"").exists()
    waiting.client._handle_file(FileFailed("server", "first", "too large"))
    assert waiting.sent == []


def test_an_asset_of_another_shape_than_the_model_takes_ends_the_client(waiting: Waiting) -> None:
    waiting.client._participant.compute.engine.example_shape = (4,)
    with pytest.raises(FedmxError, match=r"'first' have shape \(3,\), and the model takes \(4,\)"):
        waiting.receive(name_of(FIRST), FIRST.content)
    assert [type(one) for one in waiting.sent] == [CannotTakePart]
    assert waiting.client._participant.assets == {}


def test_without_a_folder_for_its_memory_a_client_removes_its_assets_at_the_end() -> None:
    receiver = AssetReceiver(None)
    receiver.expect(SETUP)
    (receiver.folder / name_of(FIRST)).write_bytes(FIRST.content)
    found = receiver.find(FIRST.announced, 4)
    assert found is not None
    assert found.content == FIRST.content
    receiver.close()
    assert not receiver.folder.exists()


def test_unfinished_files_are_removed_at_the_next_start_and_at_the_end(tmp_path: Path) -> None:
    receiver = AssetReceiver(tmp_path)
    receiver.folder.mkdir()
    parts = {
        name: receiver.folder / f"{name}.part"
        for name in (
            name_of(FIRST),
            "first-0123456789abcdef-client-4.safetensors",
            FIRST.announced.file_name(44),
        )
    }
    for part in parts.values():
        part.write_bytes(b"half")
    announced, _, of_another_client = parts.values()
    assert [file.name for file in receiver.expect(SETUP)] == [name_of(FIRST), name_of(SECOND)]
    assert {*receiver.folder.iterdir()} == {announced, of_another_client}
    receiver.close()
    assert {*receiver.folder.iterdir()} == {of_another_client}


@pytest.mark.parametrize(
    ("assets", "named"),
    [
        ((FIRST.announced, FIRST.announced), "same name"),
        ((replace(FIRST.announced, name="../first"),), "../first"),
        ((replace(FIRST.announced, sha256="12ab"),), "12ab"),
    ],
)
def test_announced_assets_that_could_not_be_files_are_refused(assets, named: str) -> None:
    with pytest.raises(FedmxError, match=re.escape(named)):
        check_announced(replace(SETUP, assets=assets))
