"""A server and clients that are killed in mid-round and started again: the same final bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fedmx.deployment.test_deployment import simulated
from tests.fedmx.held import Held
from tests.fedmx.timeless import timeless
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

CLIENTS = 3
EXPERIMENT = """
name: killed
seed: 5
rounds: 5
clients: 3
compute:
  model: 2nn
  data: digits
  normalise: {scale: 16}
  train: {steps: 5, batch_size: 10, learning_rate: 0.05}
logic:
  preset: fedavg
  selector: {name: uniform, fraction: 1.0}
  hooks:
    - {hook}
run: {checkpoint: {every: 3}}
"""


@pytest.fixture
def held(tmp_path: Path, certificates: Certificates) -> Iterator[Held]:
    with Held(tmp_path, certificates, EXPERIMENT, "own_killed", CLIENTS) as held:
        yield held


def test_server_and_clients_that_are_killed_end_in_the_same_bytes(
    held: Held, tmp_path: Path
) -> None:
    for round in (2, 3):
        held.hold(round)
    server = held.deployment.serve()
    clients = [held.client(number) for number in range(CLIENTS)]
    held.await_round(1)

    # A client at work is killed; the server waits for it, and asks it again.
    held.await_at(2, 0, clients[0])
    clients[0].kill()
    clients[0] = held.client(0)
    held.await_at(2, 0, clients[0])
    held.release(2)
    held.await_round(2)

    # The server is killed while all clients work, two of which are killed, too, when they are done:
    # one finds its server again, the others find their memory with an update that did not count.
    for number, client in enumerate(clients):
        held.await_at(3, number, client)
    server.kill()
    held.release(3)
    for number in (1, 2):
        clients[number].line("round 3: 5 steps")
        clients[number].kill()
        clients[number] = held.client(number)
    resumed = held.deployment.resume()
    held.await_round(3)
    for process in (resumed, *clients):
        assert process.code() == 0, process.output

    run = held.deployment.run
    undisturbed = simulated(tmp_path / "undisturbed", held.file)
    assert run.model_path.read_bytes() == undisturbed.model_path.read_bytes()
    assert [record["round"] for record in run.rounds()] == [1, 2, 3, 4, 5]
    assert all(record["participants"] == [0, 1, 2] for record in run.rounds())
    assert all(record["rejected_connections"] == [] for record in run.rounds())
    assert [r["accuracy"] for r in run.rounds()] == [r["accuracy"] for r in undisturbed.rounds()]
    # No memory of a run that is over stays behind.
    assert not list((tmp_path / "memory").glob("*"))
    # Rounds without a killed client have the same bytes, too.
    for round in (1, 4, 5):
        assert timeless(run.clients(round)) == timeless(undisturbed.clients(round))
