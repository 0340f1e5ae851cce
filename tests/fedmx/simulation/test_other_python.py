"""The same bits on every Python and numpy, where a second interpreter is at hand.

`FEDMX_OTHER_PYTHON` names interpreters that have what fedmx needs, such as the `.venv/bin/python`
of a second checkout that was made with `make venv PYTHON=python3.13`; several are separated by
colons.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmx import serve, simulate
from tests.fedmx.algorithms import CLIENTS, LOGIC, experiment
from tests.fedmx.fleet import Fleet
from tests.network.conftest import Certificates

ROOT = Path(__file__).resolve().parents[3]
OTHERS = [name for name in os.environ.get("FEDMX_OTHER_PYTHON", "").split(os.pathsep) if name]

pytestmark = [
    pytest.mark.needs_second_python,
    pytest.mark.skipif(
        not OTHERS, reason="needs a second interpreter: set FEDMX_OTHER_PYTHON to its path"
    ),
]
each_other_python = pytest.mark.parametrize("python", OTHERS or ["none"])


@functools.cache
def digests(python: str) -> dict[str, str]:
    done = subprocess.run(
        [python, str(ROOT / "tests" / "fedmx" / "result_digests.py")],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@each_other_python
def test_every_algorithm_ends_in_the_same_bits_on_another_python(python: str) -> None:
    here, there = digests(sys.executable), digests(python)
    assert set(LOGIC) < set(here)
    assert [name for name in here if there[name] != here[name]] == []


@pytest.fixture(scope="module", params=OTHERS or ["none"])
def other_fleet(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Fleet]:
    with Fleet(CLIENTS, certificates, python=request.param) as fleet:
        yield fleet


@pytest.mark.parametrize("name", ["projected-stc", "scaffold", "fedshare", "q-fedavg", "fedsso"])
def test_a_server_and_clients_of_another_python_end_in_the_bits_of_one_alone(
    name: str, other_fleet: Fleet, certificates: Certificates, tmp_path: Path
) -> None:
    logic = LOGIC[f"preset {name}"]
    network = {"address": "127.0.0.1:0", "heartbeat_s": 30, "tls": certificates.files}
    server = serve(experiment(logic, network=network), "run")
    rounds = list(other_fleet.run(server, tmp_path))
    with simulate(experiment(logic)) as simulation:
        expected = list(simulation)
    assert server.weights.tobytes() == simulation.weights.tobytes()
    assert [round.report for round in rounds] == [round.report for round in expected]
