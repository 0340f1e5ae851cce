"""What trainer and hooks of a client share within a round: the same wherever the client runs."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedmx import serve, simulate
from tests.fedmx.fleet import Fleet
from tests.fedmx.kinds import KINDS, TREE, experiment, outcome_of
from tests.fedmx.processes import until
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

LOGIC: dict[str, Any] = KINDS["round memory"]["logic"]
CLIENTS = 6


@pytest.fixture
def fleet(certificates: Certificates) -> Iterator[Fleet]:
    with Fleet(CLIENTS, certificates) as fleet:
        yield fleet


def test_a_resumed_run_ends_in_the_same_bits(kind_folder: Path) -> None:
    given = experiment(kind_folder, **KINDS["round memory"])
    with simulate(given) as whole:
        first = list(itertools.islice(whole, 1))
        kept = copy.deepcopy(whole.checkpoint())
        rest = list(whole)
    totals = [one.report.numbers["total"] for one in (*first, *rest)]
    assert len(set(totals)) == len(totals), "each round draws anew"
    resumed = simulate(given)
    resumed.restore(kept)
    with resumed:
        assert [one.report for one in resumed] == [one.report for one in rest]
    assert resumed.weights.tobytes() == whole.weights.tobytes()


@pytest.mark.parametrize("killed", [False, True])
def test_over_tls_it_ends_in_the_same_bits_also_if_a_client_is_killed_before_its_task(
    killed: bool, fleet: Fleet, certificates: Certificates, tmp_path: Path, kind_folder: Path
) -> None:
    flag = tmp_path / "killed"
    network = {"address": "127.0.0.1:0", "heartbeat_s": 30, "tls": certificates.files}
    hooks = ["kind_parts:Shares", {"name": "kind_parts:Kills", "file": str(flag)}]
    logic = {**LOGIC, "selector": {"name": "uniform", "fraction": 1.0}, "hooks": hooks}
    server = serve(experiment(kind_folder, logic=logic, network=network), "run")

    def start_again() -> None:
        until(flag.exists, lambda: "no client has ended")
        fleet.start_again(server, 2, tmp_path / "2", kind_folder)

    watch = threading.Thread(target=start_again, daemon=True)
    if killed:
        watch.start()
    else:
        flag.touch()
    rounds = list(fleet.run(server, tmp_path, kind_folder))
    assert flag.exists()
    alone = simulate(experiment(kind_folder, logic=logic))
    outcome_of(alone)
    assert [len(one.participants) for one in rounds] == [CLIENTS] * TREE["rounds"]
    assert server.weights.tobytes() == alone.weights.tobytes()
