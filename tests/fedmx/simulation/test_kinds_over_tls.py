"""Models, losses, masked updates and another engine over sockets: the bits of the simulation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmx import serve, simulate
from tests.fedmx.fleet import Fleet
from tests.fedmx.kinds import KINDS, TREE, experiment, outcome_of
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

# What is algorithm, test_every_algorithm.py has over sockets.
KINDS_HERE = (
    *("dropout", "batch norm", "loss", "loss with a reference"),
    *("secure sum", "numpy", "asked", "kept state"),
)


@pytest.fixture(scope="module")
def fleet(certificates: Certificates) -> Iterator[Fleet]:
    with Fleet(TREE["clients"], certificates) as fleet:
        yield fleet


@pytest.mark.parametrize("kind", KINDS_HERE)
def test_over_tls_it_ends_in_the_bits_of_the_simulation(
    kind: str, fleet: Fleet, certificates: Certificates, tmp_path: Path, kind_folder: Path
) -> None:
    network = {"address": "127.0.0.1:0", "heartbeat_s": 30, "tls": certificates.files}
    server = serve(experiment(kind_folder, **KINDS[kind], network=network), "run")
    rounds = list(fleet.run(server, tmp_path, kind_folder))
    alone = simulate(experiment(kind_folder, **KINDS[kind]))
    outcome_of(alone)
    assert server.weights.tobytes() == alone.weights.tobytes()
    assert server.state.buffers.tobytes() == alone.state.buffers.tobytes()
    rows = [row for one in rounds for row in one.client_records()]
    for name in ("up_bytes", "down_bytes"):
        assert sum(row[name] for row in rows) == sum(one.record()[name] for one in rounds), name
