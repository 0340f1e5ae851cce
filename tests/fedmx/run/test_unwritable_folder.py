"""A run folder that cannot be written for a time: an error of one line, and the same bits later."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fedmx import RunFolder
from tests.fedmx.deployment.test_deployment import simulated
from tests.fedmx.held import Held
from tests.fedmx.processes import Process
from tests.fedmx.timeless import timeless
from tests.fedmx.unwritable import Unprivileged, disk, full, read_only
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

CLIENTS = 2
EXPERIMENT = """
name: unwritable
seed: 5
rounds: 4
clients: 2
compute:
  model: 2nn
  data: digits
  normalise: {scale: 16}
  train: {steps: 3, batch_size: 10, learning_rate: 0.05}
logic:
  preset: fedavg
  selector: {name: uniform, fraction: 1.0}
  hooks:
    - {hook}
"""
OTHERS = ("control_bytes", "rejected_connections", "chain")

Trouble = Callable[[Path], AbstractContextManager[None]]


@pytest.fixture(params=[read_only, full], ids=["read-only", "full"])
def trouble(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trouble]:
    with disk(tmp_path / "runs") if request.param is full else contextlib.nullcontext():
        yield request.param


@pytest.fixture
def held(tmp_path: Path, certificates: Certificates) -> Iterator[Held]:
    module = f"own_{tmp_path.name}"  # a process imports a module of a name once
    with Held(tmp_path, certificates, EXPERIMENT, module, CLIENTS) as held:
        held.deployment.process = Unprivileged
        yield held


def last_line(process: Process) -> str:
    """Return the last line of a process, without the time that a server's line begins with."""
    line = process.output.splitlines()[-1]
    return line[line.index("fedmx: ") :]


def assert_ended_in_one_line(process: Process, run: RunFolder, shown: Path) -> None:
    """It says what it cannot write, where, and how to go on; nothing is damaged."""
    assert process.code() == 2, process.output
    assert "Traceback" not in process.output
    last = last_line(process)
    assert last.startswith(f"fedmx: {shown}"), last
    assert "cannot write" in last
    assert ("Permission denied" in last) == ("make it writable" in last), last
    assert ("No space left" in last) == ("disk space" in last), last
    assert f"fedmx resume {shown} --own-modules" in last
    again = RunFolder.open(run.path)
    assert (len(again.rounds()) in (1, 2), again.damage) == (True, ())  # the next may fit in
    checkpoint = again.latest_checkpoint()
    assert (checkpoint.round, checkpoint.warnings) == (1, ())


def assert_same(run: RunFolder, held: Held, tmp_path: Path) -> None:
    undisturbed = simulated(tmp_path / "undisturbed", held.file)
    assert run.model_path.read_bytes() == undisturbed.model_path.read_bytes()
    assert timeless(run.rounds(), *OTHERS) == timeless(undisturbed.rounds(), *OTHERS)


def test_a_simulation_goes_on_when_its_folder_can_be_written_again(
    trouble: Trouble, held: Held, tmp_path: Path
) -> None:
    held.hold(2)
    process = Unprivileged(tmp_path, "run", "run", str(held.file), "--own-modules")
    held.await_at(2, 0, process)
    run = held.deployment.run
    with trouble(run.path):
        held.release(2)
        shown = run.path.relative_to(tmp_path)
        assert_ended_in_one_line(process, run, shown)
        refused = Unprivileged(tmp_path, "refused", "resume", str(shown), "--own-modules")
        assert refused.code() == 2, refused.output
        assert "Traceback" not in refused.output
        assert last_line(refused).startswith(f"fedmx: {shown}"), refused.output
        assert "make it writable" in refused.output or "disk space" in refused.output
    resumed = Unprivileged(tmp_path, "resumed", "resume", str(shown), "--own-modules")
    assert resumed.code() == 0, resumed.output
    assert_same(run, held, tmp_path)


def test_the_clients_of_a_server_come_back_when_its_folder_can_be_written_again(
    trouble: Trouble, held: Held, tmp_path: Path
) -> None:
    held.hold(2)
    server = held.deployment.serve()
    clients = [held.client(number) for number in range(CLIENTS)]
    for number, client in enumerate(clients):
        held.await_at(2, number, client)
    run = held.deployment.run
    with trouble(run.path):
        held.release(2)
        assert_ended_in_one_line(server, run, run.path.relative_to(tmp_path))
    for process in (held.deployment.resume(), *clients):
        assert process.code() == 0, process.output
    assert_same(run, held, tmp_path)
