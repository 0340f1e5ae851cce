"""An asynchronous deployment with lost and excluded clients and a killed server is replayed.

Clients and server are processes over mutual TLS. The hook's memory on both ends would show an
update that counted twice, or none that was acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from fedmx import RunFolder
from fedmx.deployment.operator_socket import ask
from fedmx.journal.journal import UpdateArrived, journals_of
from tests.fedmx.held import Held
from tests.fedmx.journal import deployed
from tests.fedmx.processes import until
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

CLIENTS = 4
EXPERIMENT = """
name: journal
seed: 5
rounds: 60
clients: 4
compute:
  model: logistic
  data: digits
  normalise: {scale: 16}
  train: {steps: 5, batch_size: 10, learning_rate: 0.05}
logic:
  preset: {name: fedbuff, concurrency: 3, buffer: 2}
  hooks:
    - {hook}
network: {rejoin_s: 0.5}
"""


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[RunFolder]:
    """A run that loses a client and its server."""
    held = Held(tmp_path_factory.mktemp("journal"), certificates, EXPERIMENT, "own_flow", CLIENTS)
    with held:
        _go_through(held)
        yield held.deployment.run


def _go_through(held: Held) -> None:
    for number in range(5, 200):
        held.hold(number)
    server = held.deployment.serve()
    clients = [held.client(number) for number in range(CLIENTS)]

    # Three clients wait with a task. One of them is killed, and the fourth takes its place.
    until(lambda: len(_waiting(held)) == 3, lambda: server.output)
    lost = _waiting(held)[0]
    clients[lost].kill()
    until(lambda: len(_waiting(held)) == 4, lambda: server.output)
    clients[lost] = held.client(lost)
    left_out = next(one for one in _waiting(held) if one != lost)
    folder = held.deployment.run.path
    assert ask(folder, {"command": "exclude", "client": left_out})["excluded"] == [left_out]
    clients[left_out].kill()  # its update would come too late
    for number in range(5, 200):
        held.release(number)

    held.await_round(held.deployment.rounds() + 2)
    assert ask(folder, {"command": "include", "client": left_out})["excluded"] == []
    clients[left_out] = held.client(left_out)
    held.await_round(held.deployment.rounds() + 2)
    server.kill()
    for process in (held.deployment.resume(), *clients):
        assert process.code() == 0, process.output


def _waiting(held: Held) -> list[int]:
    """Return the clients that wait with a task."""
    at = [one.name.split("-") for one in (held.folder / "gates").glob("at-*")]
    return [int(client) for _, number, client, _ in at if int(number) >= 5]


def test_clients_were_lost_and_updates_were_stale(run: RunFolder) -> None:
    records = run.rounds()
    assert len(records) == 60
    assert sum(record["lost"] for record in records) >= 1
    assert max(one for record in records for one in record["staleness"]) > 0
    told = [text.split()[1] for record in records for text in record.get("operator", ())]
    assert told == ["exclude", "include"]


def test_no_update_counts_twice(run: RunFolder) -> None:
    journals = journals_of(run.journal(), "journal.jsonl").values()
    arrived = Counter(
        (entry.event.client, entry.event.round)
        for journal in journals
        for entry in journal.entries
        if isinstance(entry.event, UpdateArrived) and entry.event.blake3
    )
    assert set(arrived.values()) == {1}


def test_tasks_and_bytes_of_both_files_add_up(run: RunFolder) -> None:
    rows = [row for one in run.rounds() for row in run.clients(one["round"])]
    for name in ("tasks", "up_bytes", "down_bytes"):
        of_clients = sum(row[name] for row in rows)
        assert of_clients == sum(record[name] for record in run.rounds()), name


def test_its_journal_ends_each_version_in_the_deployed_model(run: RunFolder) -> None:
    deployed.assert_replayed(run)
