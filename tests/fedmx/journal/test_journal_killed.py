"""A run with losses, lost memory, a killed server and a late update is replayed to its bits.

Clients and server are processes over mutual TLS.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fedmx import RunFolder
from fedmx.history import rerun
from fedmx.journal.journal import journals_of
from tests.fedmx.held import Held
from tests.fedmx.journal import deployed
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

CLIENTS = 4
EXPERIMENT = (
    deployed.EXPERIMENT
    + """
rounds: 5
clients: 4
logic:
  selector: {name: uniform, count: 3}
  over_select: 1.3
  min_updates: 1
  hooks:
    - {hook}
clock: {deadline_s: 3}
"""
)


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[RunFolder]:
    """A run in which nothing went well."""
    folder = tmp_path_factory.mktemp("journal")
    with Held(folder, certificates, EXPERIMENT, "own_course", CLIENTS) as held:
        _go_through(held)
        yield held.deployment.run


def _go_through(held: Held) -> None:
    held.hold(2, 2, 3)
    held.hold(3, 1)
    held.hold(4)
    server = held.deployment.serve()
    clients = [held.client(number) for number in range(CLIENTS)]

    # In round 2 two clients miss the deadline.
    held.await_round(2)
    held.release(2)

    # Round 3 ends without client 1. In round 4 the server is killed, and a client with it, whose
    # memory is lost.
    held.await_at(4, 0, clients[0])
    server.kill()
    clients[0].kill()
    for file in (held.folder / "memory").glob("*-client-0.safetensors"):
        file.unlink()
    held.release(3)
    held.release(4)
    clients[0] = held.client(0)
    for process in (held.deployment.resume(), *clients):
        assert process.code() == 0, process.output


def test_the_run_had_all_that_a_run_can_have(run: RunFolder) -> None:
    journals = journals_of(run.journal(), "journal.jsonl")
    assert [record["lost"] for record in run.rounds()][:2] == [0, 2]
    assert run.rounds()[0]["declined"] == 1
    commands = [one for entry in journals[4].entries for one in entry.commands]
    began = dict(task[:2] for name, *tasks in commands if name == "tasks" for task in tasks)
    assert 0 in run.rounds()[1]["participants"]
    assert began[0] == 0  # all the same: its memory was lost
    assert any(began.values())


def test_its_journal_ends_each_round_in_the_deployed_model(run: RunFolder) -> None:
    assert len(run.rounds()) == 5
    deployed.assert_replayed(run)


def test_it_stands_before_any_round_as_the_deployed_server_did(run: RunFolder) -> None:
    with rerun(run, 3, modules=None) as server:
        assert server.state.round == 2
        third = next(server.rounds())
    assert third.model_sha256 == run.rounds()[2]["model_sha256"]
