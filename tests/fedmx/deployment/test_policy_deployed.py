"""A client with a policy of its own, in a process of its own, and its server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fedmx.processes import Deployment
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

EXPERIMENT = """
name: policy
rounds: 2
clients: 2
compute: {engine: numpy, model: logistic, data: digits, normalise: {scale: 16}}
logic: {selector: {name: uniform, fraction: 1.0}}
privacy: {name: local, clip: 0.3, delta: 1.0e-5, noise: 8}
"""


def test_a_refusal_is_one_line_at_both_ends_and_what_is_allowed_is_counted(
    certificates: Certificates, tmp_path: Path
) -> None:
    file, policy = tmp_path / "experiment.yaml", tmp_path / "client.yaml"
    file.write_text(EXPERIMENT)
    policy.write_text("noise: 8\nexperiments: [policy]\n")
    deployment = Deployment(tmp_path, file, certificates)
    try:
        server = deployment.serve()
        strict = deployment.client(0, 2, "--max-epsilon", "1")
        assert strict.code() == 2
        assert "epsilon" in server.line("client 0: cannot take part")
        assert "Traceback" not in strict.output + server.output
        clients = [
            deployment.client(0, 2, "--policy", str(policy), "--max-epsilon", "2"),
            deployment.client(1, 2),
        ]
        assert [one.code() for one in (server, *clients)] == [0, 0, 0]
        for number in range(2):
            released = tmp_path / "memory" / f"releases-client-{number}.jsonl"
            assert len(released.read_text().splitlines()) == 2
            assert released.stat().st_mode & 0o777 == 0o600
    finally:
        deployment.end()
