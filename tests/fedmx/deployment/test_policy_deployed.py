"""A client with a policy of its own, in a process of its own, and its server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from fedmx import Experiment
from fedmx.protocol.messages import CODEC, CannotTakePart, Failed, Ready, Setup
from layers.compute.data.targets import Targets
from layers.logic import Task, Training, Update
from layers.network import Joined, Listener, Received
from tests.fedmx.processes import Deployment, Process
from tests.network.conftest import Certificates

T = TypeVar("T")
FEDBUFF = "logic={preset: {name: fedbuff, concurrency: 2, buffer: 1}}"
pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

EXPERIMENT = """
name: policy
rounds: 2
clients: 2
compute: {engine: numpy, model: logistic, data: digits, normalise: {scale: 16}}
logic: {selector: {name: uniform, fraction: 1.0}}
privacy: {name: local, clip: 0.3, delta: 1.0e-5, noise: 8}
"""


class Hostile:
    """A server that sends one client what a test says."""

    def __init__(self, certificates: Certificates) -> None:
        self._listener = Listener("127.0.0.1:0", CODEC, tls=certificates.server, successors=True)
        self._listener.start()
        self.address = self._listener.address

    def next(self, kind: type[T]) -> T:
        """Return the next message, or event, of a type."""
        while True:
            event = self._listener.next_event(60.0)
            assert event is not None, f"no {kind} within a minute"
            found = event.message if isinstance(event, Received) else event
            if isinstance(found, kind):
                return found

    def setup(self, *overrides: str, run: str = "run") -> Ready | CannotTakePart:
        made = Experiment.parse(EXPERIMENT, overrides=overrides)
        setup = Setup(run, made.to_yaml(), made.digest(), 0, (1, 28, 28), Targets("classes", 10))
        self._listener.send("client-0", setup)
        return self.next(Ready | CannotTakePart)  # type: ignore[arg-type, return-value]

    def task(self, number: int, weight: float, version: int = 0) -> Update | Failed:
        """Let the client train; it has 784 inputs and 10 classes."""
        weights = np.full(7850, weight, np.float32)
        task = Task(number, 0, 0, Training(steps=1), weights, np.zeros(0, np.float32))
        self._listener.send("client-0", replace(task, model_version=version))
        return self.next(Update | Failed)  # type: ignore[arg-type, return-value]

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def hostile(certificates: Certificates) -> Iterator[Hostile]:
    server = Hostile(certificates)
    yield server
    server.close()


@contextlib.contextmanager
def client_of(
    server: Hostile, certificates: Certificates, folder: Path, *words: str
) -> Iterator[tuple[Deployment, Process]]:
    with Deployment(folder, folder, certificates) as deployment:
        deployment.address = server.address
        client = deployment.client(0, 2, *words)
        server.next(Joined)
        yield deployment, client


@pytest.mark.parametrize(
    ("overrides", "most"),
    [([], 2), (["privacy=null"], 12), (["privacy=null", FEDBUFF], 16)],
    ids=["local", "public", "asynchronous"],
)
def test_a_hostile_server_gets_a_bounded_number_of_updates_also_of_a_client_without_a_policy(
    overrides: list[str], most: int, hostile: Hostile, certificates: Certificates, tmp_path: Path
) -> None:
    """Rounds that do not exist, other tasks for one round, and models that are said to be old."""
    with client_of(hostile, certificates, tmp_path) as (deployment, client):
        assert isinstance(hostile.setup(*overrides), Ready)
        beyond = [hostile.task(number, 0.0, number - 1) for number in range(1, 6)]
        repeated = [hostile.task(2, float(weight)) for weight in range(1, 20)]
        numbered = [hostile.task(number, 0.0) for number in range(100, 120)]
        answers = [*beyond, *repeated, *numbered]
        assert sum(isinstance(one, Update) for one in answers) == most
        refused = [one for one in answers if isinstance(one, Failed)]
        assert {one.traceback for one in refused} == {""}
        assert not any("\n" in one.reason for one in refused)
        if not overrides:
            client.kill()
            deployment.client(0, 2)
            hostile.next(Joined)
            hostile.setup()
            assert isinstance(hostile.task(1, 0.0), Update)  # the same one
            assert isinstance(hostile.task(1, 1.0), Failed)


@pytest.mark.parametrize("overrides", [["privacy=null"], ["seed=9"]], ids=["raw", "another-run"])
def test_a_hostile_server_gets_nothing_beyond_the_policy_by_another_run(
    overrides: list[str], hostile: Hostile, certificates: Certificates, tmp_path: Path
) -> None:
    with client_of(hostile, certificates, tmp_path, "--max-epsilon", "1.5") as (_, client):
        assert isinstance(hostile.setup(run="one"), Ready)
        assert isinstance(hostile.task(1, 0.0), Update)
        found = hostile.setup(*overrides, run="two")
        assert isinstance(found, CannotTakePart)
        assert "policy, epsilon" in found.reason
        assert client.code() == 2


def test_a_refusal_is_one_line_at_both_ends_and_what_is_allowed_is_counted(
    certificates: Certificates, tmp_path: Path
) -> None:
    file, policy = tmp_path / "experiment.yaml", tmp_path / "client.yaml"
    file.write_text(EXPERIMENT)
    policy.write_text("noise: 8\nexperiments: [policy]\n")
    with Deployment(tmp_path, file, certificates) as deployment:
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
