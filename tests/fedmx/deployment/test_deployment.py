"""One experiment, simulated and deployed over mutual TLS in 20 client processes: the same run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmx import Experiment, RunFolder, recorded, simulate
from fedmx.run import gather_facts
from tests.fedmx.processes import Deployment
from tests.fedmx.timeless import timeless
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

CLIENTS = 20
EXPERIMENT = """
name: twenty
seed: 3
rounds: 5
clients: 20
compute:
  model: lenet5
  data: digits
  normalise: {scale: 16}
  partition: {name: shards, per_client: 2}
  train: {epochs: 2, batch_size: 10, learning_rate: 0.05}
logic:
  preset: fedavg
  selector: {name: uniform, fraction: 0.4}
"""


def simulated(folder: Path, file: Path) -> RunFolder:
    """Simulate an experiment in this process, and record it."""
    experiment = Experiment.read(file, modules=None)
    facts = gather_facts(
        seed=experiment.seed, mode="simulation", digest=experiment.digest(), engine="mxnet"
    )
    run = RunFolder.create(folder, experiment.name, experiment.to_yaml(), facts)
    for _ in recorded(simulate(experiment), run):
        pass
    return run


@pytest.fixture(scope="module")
def twenty(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[tuple[RunFolder, RunFolder, Deployment]]:
    """The simulated run, the deployed run, and the deployment, over by now."""
    folder = tmp_path_factory.mktemp("twenty")
    file = folder / "experiment.yaml"
    file.write_text(EXPERIMENT)
    with Deployment(folder, file, certificates) as deployment:
        server = deployment.serve()
        clients = [deployment.client(number, CLIENTS) for number in range(CLIENTS)]
        for process in (server, *clients):
            assert process.code() == 0, process.output
        yield simulated(folder / "simulated", file), deployment.run, deployment


Twenty = tuple[RunFolder, RunFolder, Deployment]


def test_simulation_and_deployment_end_in_the_same_model_bytes_and_records(twenty: Twenty) -> None:
    simulated, deployed, _ = twenty
    assert simulated.model_path.read_bytes() == deployed.model_path.read_bytes()
    # A busy machine may also let a handshake run out of time; the client comes again.
    other = ("control_bytes", "rejected_connections", "chain")  # the chain has the others in it
    assert timeless(simulated.rounds(), *other) == timeless(deployed.rounds(), *other)
    assert [record["round"] for record in deployed.rounds()] == [1, 2, 3, 4, 5]
    clients = timeless(deployed.clients())
    assert timeless(simulated.clients()) == clients
    assert len(clients) == 5 * 8
    assert all(one["up_bytes"] > 4 * 44_000 for one in clients)  # a LeNet-5 each


def test_what_is_not_a_rounds_message_is_reported_as_control(twenty: Twenty) -> None:
    control = [record["control_bytes"] for record in twenty[1].rounds()]
    assert control[0] > CLIENTS * 100  # the handshakes, and the experiment for each client
    assert all(0 <= one < control[0] for one in control[1:])


def test_every_client_learns_why_it_can_end(twenty: Twenty) -> None:
    _, run, deployment = twenty
    assert run.status == "done"
    for number in range(CLIENTS):
        log = (deployment.folder / f"client-{number}.log").read_text()
        assert "all 5 rounds were run" in log
        assert "Traceback" not in log


def test_a_run_with_a_port_that_the_system_chose_knows_it(twenty: Twenty) -> None:
    _, run, deployment = twenty
    assert run.facts["address"] == deployment.address
    assert not deployment.address.endswith(":0")
