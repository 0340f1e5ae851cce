"""A run in which a client was suspended is replayed to its bits.

Clients and server are processes over mutual TLS.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fedmx import RunFolder
from tests.fedmx.held import Held
from tests.fedmx.journal import deployed
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

CLIENTS, ROUNDS = 3, 6
EXPERIMENT = f"""{deployed.EXPERIMENT}
rounds: {ROUNDS}
clients: {CLIENTS}
logic:
  selector: {{name: uniform, count: 2}}
  hooks:
    - {{hook}}
network: {{patience_s: 3}}
"""


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[RunFolder]:
    """A run with a client that is silent in every round."""
    folder = tmp_path_factory.mktemp("suspended")
    with Held(folder, certificates, EXPERIMENT, "own_suspended", CLIENTS) as held:
        for round in range(1, ROUNDS + 1):
            held.hold(round, 1)
        server = held.deployment.serve()
        clients = [held.client(number) for number in range(CLIENTS)]
        held.await_round(ROUNDS)
        for round in range(1, ROUNDS + 1):
            held.release(round)
        for process in (server, *clients):
            assert process.code() == 0, process.output
        yield held.deployment.run


def test_the_silent_client_was_suspended_after_two_rounds(run: RunFolder) -> None:
    lost = [one["round"] for one in run.clients() if (one["client"], one["status"]) == (1, "lost")]
    assert len(lost) == 2
    suspended = [one["round"] for one in run.rounds() if "1" in one.get("suspended", {})]
    assert suspended == list(range(lost[-1], ROUNDS + 1))


def test_its_journal_ends_each_round_in_the_deployed_model(run: RunFolder) -> None:
    deployed.assert_replayed(run)
