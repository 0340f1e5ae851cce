"""A server that may open few files: who does not fit is told so, and the rounds go on."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fedmx import RunFolder
from layers.network import Backoff
from tests.fedmx.command_line import environment
from tests.fedmx.deployment.test_deployment_many import Crowd
from tests.fedmx.processes import until

FILES = 160
CLIENTS = 120
NEEDED = 20
EXPERIMENT = f"""
rounds: 3
clients: {CLIENTS}
logic: {{selector: {{name: uniform, fraction: 1.0}}, min_updates: {NEEDED}}}
compute:
  model: 2nn
  data: digits
  normalise: {{scale: 16}}
  train: {{steps: 0}}
network: {{wait_for: {NEEDED}, rejoin_s: 1}}
"""

pytestmark = pytest.mark.timeout(240)


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))


def test_rounds_go_on_when_more_clients_come_than_a_server_may_have_files(tmp_path: Path) -> None:
    (tmp_path / "many.yaml").write_text(EXPERIMENT)
    log = tmp_path / "server.log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            [sys.executable, "-m", "fedmx", "server", "many.yaml", "--listen", "127.0.0.1:0"],
            cwd=tmp_path,
            env=environment(PYTHONUNBUFFERED="1"),
            stdout=file,
            stderr=file,
            preexec_fn=few_files,
        )
    try:
        lines = until(lambda: "listening on" in (text := log.read_text()) and text, log.read_text)
        address = lines.partition("listening on ")[2].split()[0]
        crowd = Crowd(address, CLIENTS, Backoff(first_s=0.1, longest_s=0.5))
        code = server.wait(120)
        crowd.end(everybody=False)
    finally:
        server.kill()
        server.wait(30)
    said = log.read_text()
    assert code == 0, said
    assert "Traceback" not in said, said
    crowded = [line for line in said.splitlines() if f"limit of {FILES} open files" in line]
    assert len(crowded) == 1 + said.count("there is room for clients again"), said
    (facts,) = tmp_path.glob("runs/*/run.json")
    rounds = RunFolder.open(facts.parent).rounds()
    assert [record["round"] for record in rounds] == [1, 2, 3]
    assert all(len(record["participants"]) >= NEEDED for record in rounds)
