"""The secrets of a deployed run: drawn once, kept, never sent; and what cannot be done without."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmx import Experiment, FedmxError, serve
from fedmx.client.participant import ClientMemory
from fedmx.deployment.token import read_token
from fedmx.history import pack, replay
from fedmx.run import RunError, RunFolder
from fedmx.run.secret_file import SECRET
from layers.logic import LogicError
from tests.fedmx.deployment.test_deployment import simulated
from tests.fedmx.processes import Deployment, until
from tests.fedmx.scripted import Scripted, honest
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

MODULE = '''
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from layers.logic import ClientSide, Hook, ServerSide


@dataclass(frozen=True)
class Noise(Hook):
    """Adds noise of the server's secret to the model, or of a client's to its update."""

    end: str = "server"
    hold: str = ""

    class Server(ServerSide):
        def conclude(self, state, context):
            noise = context.secret("noise").uniform(state.weights.size).astype(np.float32) * 0.01
            adds = self.hook.end == "server"
            return replace(state, weights=state.weights + noise) if adds else state

    class Client(ClientSide):
        def send(self, update, context):
            while context.round == 3 and Path(self.hook.hold).is_file():
                time.sleep(0.01)
            if self.hook.end != "client":
                return update
            noise = context.secret("noise", update.delta).uniform(update.delta.size)
            noise = noise.astype(np.float32) * 0.01
            return replace(update, delta=update.delta + noise)
'''
EXPERIMENT = """
name: secrets
seed: 5
rounds: 4
clients: 2
compute:
  model: logistic
  data: digits
  normalise: {scale: 16}
  train: {steps: 3, batch_size: 10, learning_rate: 0.05}
logic:
  selector: {name: uniform, fraction: 1.0}
  hooks: [{name: "MODULE:Noise", end: END, hold: HOLD}]
"""


@pytest.fixture
def deployment(tmp_path: Path, certificates: Certificates) -> Iterator[Deployment]:
    file = tmp_path / "experiment.yaml"
    with Deployment(tmp_path, file, certificates) as made:
        yield made


def write(deployment: Deployment, end: str) -> Path:
    """Write the experiment and its module, which a process imports once."""
    file, hold = deployment.folder / "experiment.yaml", str(deployment.folder / "hold")
    (deployment.folder / f"noise_of_{end}.py").write_text(MODULE)
    text = EXPERIMENT.replace("MODULE", f"noise_of_{end}")
    file.write_text(text.replace("END", end).replace("HOLD", hold))
    return file


def test_a_killed_server_keeps_a_secret_no_pack_has(deployment: Deployment, tmp_path: Path) -> None:
    file = write(deployment, "server")
    (tmp_path / "hold").touch()
    server = deployment.serve()
    clients = [deployment.client(n, 2, "--module", "noise_of_server") for n in range(2)]
    until(lambda: deployment.rounds() >= 2, lambda: server.output)
    server.kill()
    key = (deployment.run.path / SECRET).read_bytes()
    (tmp_path / "hold").unlink()
    for process in (deployment.resume(), *clients):
        assert process.code() == 0, process.output

    run = deployment.run
    assert (run.path / SECRET).read_bytes() == key
    assert stat.S_IMODE((run.path / SECRET).stat().st_mode) == 0o600
    assert run.model_path.read_bytes() != simulated(tmp_path / "s", file).model_path.read_bytes()
    # The rounds before and after the kill follow the one secret.
    assert replay(run, modules=None).same is True
    packed = pack(run, tmp_path / "run.fedmx", modules=None)
    assert all(key[:32] not in content for content in packed.members.values())
    for path in [run.path / "experiment.yaml", run.path / "run.json", *tmp_path.glob("*.log")]:
        assert key[:32].hex() not in path.read_text()
    # Elsewhere the run cannot be followed, and says so.
    (run.path / SECRET).unlink()
    with pytest.raises((FedmxError, LogicError), match=SECRET) as caught:
        replay(run, modules=None)
    assert "\n" not in str(caught.value)


def test_what_clients_draw_in_secret_cannot_be_followed_elsewhere(
    deployment: Deployment, tmp_path: Path
) -> None:
    write(deployment, "client")
    server = deployment.serve()
    clients = [deployment.client(n, 2, "--module", "noise_of_client") for n in range(2)]
    for process in (server, *clients):
        assert process.code() == 0, process.output
    with pytest.raises((FedmxError, LogicError), match="secret of each client") as caught:
        replay(deployment.run, modules=None)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "memory").glob("*"))  # they went with the run


def test_a_clients_secret_outlives_its_process_and_ends_with_the_run(tmp_path: Path) -> None:
    memory = ClientMemory(tmp_path / "memory", "run", 3)
    assert not (tmp_path / "memory").exists()  # nothing was drawn
    drawn = memory.secret.draws("noise").bytes(8)
    (path,) = (tmp_path / "memory").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = ClientMemory(tmp_path / "memory", "run", 3)
    assert again.secret.draws("noise").bytes(8) == drawn
    for other in (("run", 4), ("other", 3)):
        assert ClientMemory(tmp_path / "memory", *other).secret.draws("noise").bytes(8) != drawn
    again.discard()
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"x" * 40])
def test_a_damaged_secret_is_named(tmp_path: Path, content: bytes) -> None:
    run = RunFolder.create(tmp_path, "one", "rounds: 1\n", {})
    run.draw_secret()
    (run.path / SECRET).write_bytes(content)
    with pytest.raises(RunError, match=rf"{SECRET}.*damaged"):
        run.secret.draws("noise")


def test_a_token_of_16_bytes_or_more_is_read_without_white_space(tmp_path: Path) -> None:
    path = tmp_path / "token"
    assert read_token(None) is None
    path.write_bytes(b" \n0123456789 bcdef\r\n")
    assert read_token(path) == b"0123456789 bcdef"
    path.write_bytes(b"0123456789abcde\n")
    with pytest.raises(FedmxError) as caught:
        read_token(path)
    assert str(caught.value).startswith(f"{path}: a token of 15 bytes")
    with pytest.raises(FedmxError) as caught:
        read_token(tmp_path / "none")
    assert str(caught.value).startswith(f"{tmp_path / 'none'}: ")
    assert "No such file or directory" in str(caught.value)


def test_clients_are_told_no_path_of_the_server(certificates: Certificates, tmp_path: Path) -> None:
    tls = certificates.server
    files = {"certificate": str(tls.certificate), "key": str(tls.key), "ca": str(tls.ca)}
    (tmp_path / "token").write_text("a long secret of this test")
    network = {"address": "127.0.0.1:0", "tls": files, "wait_for": 1}
    tree = {
        "rounds": 1,
        "clients": 2,
        "compute": {
            "engine": "numpy",
            "model": "logistic",
            "data": "digits",
            "normalise": {"scale": 16},
        },
        "run": {"folder": str(tmp_path / "runs")},
        "logic": {"min_updates": 1},
        "network": {**network, "metrics_token_file": str(tmp_path / "token")},
    }
    with serve(Experiment.from_dict(tree), "run") as server:
        client = Scripted(server.address, 0, certificates.client("client-0"), honest)
        list(server)
    client.stop()
    assert "rounds: 1" in client.setup.experiment
    assert str(tmp_path) not in client.setup.experiment
    assert str(certificates.folder) not in client.setup.experiment
