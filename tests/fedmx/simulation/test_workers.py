"""Worker processes: the same bits, whoever does the work, and whatever becomes of the workers."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fedmx import Experiment, ExperimentError, simulate
from fedmx.simulation.executors.executor import ExecutorFailed
from fedmx.simulation.executors.processes import ProcessBackend
from layers.logic import ClientFailed
from tests.fedmx.command_line import environment, fedmx, hear_ctrl_c
from tests.fedmx.kinds import ALL, KINDS, TREE, experiment, outcome

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

PARTS = """
import os, signal
from dataclasses import dataclass
from pathlib import Path

from layers.logic import ClientSide, Hook


class _Does(ClientSide):
    def __init__(self, hook):
        self.hook = hook

    def send(self, update, context):
        if (update.client, update.round) == (self.hook.whom, 2):
            self.hook.act()
        return update


@dataclass(frozen=True)
class Kills(Hook):
    whom: int = 0
    flag: str = ""

    def client(self):
        return _Does(self)

    def act(self):
        if not self.flag or not Path(self.flag).exists():
            if self.flag:
                Path(self.flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Fails(Hook):
    whom: int = 0
    how: str = "raise"

    def client(self):
        return _Does(self)

    def act(self):
        if self.how == "breakpoint":
            breakpoint()
        raise ValueError("this client will not")
"""


@pytest.fixture(scope="module")
def folder(kind_folder: Path) -> Path:
    """The folder with the components that the experiments here name."""
    (kind_folder / "worker_parts.py").write_text(PARTS)
    return kind_folder


@pytest.fixture(scope="module")
def crews() -> Iterator[list[ProcessBackend]]:
    """One process and three, which all tests of this file use one after the other."""
    crews = [ProcessBackend(size) for size in (1, 3)]
    yield crews
    for backend in crews:
        backend.close()


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_processes_gives_the_bits_of_one(
    kind: str, folder: Path, crews: list[ProcessBackend]
) -> None:
    given = experiment(folder, **KINDS[kind])
    serial = outcome(given)
    for backend in crews:
        assert outcome(given, backend) == serial


def test_a_killed_worker_is_named_and_its_task_done_by_another(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, crews: list[ProcessBackend]
) -> None:
    flag = tmp_path / "killed"
    hook = {"name": "worker_parts:Kills", "whom": 3, "flag": str(flag)}
    given = experiment(folder, logic={"preset": {"name": "stc", "fraction": 1.0}, "hooks": [hook]})
    flag.touch()
    serial = outcome(given)
    flag.unlink()
    with caplog.at_level(logging.WARNING, "fedmx.executors"):
        assert outcome(given, crews[1]) == serial
    (result,) = [record.getMessage() for record in caplog.records]
    assert result.startswith("worker process ")
    assert "SIGKILL" in result
    assert "client 3 in round 2" in result


def test_a_task_that_kills_every_worker_ends_the_run_with_its_client_named(
    folder: Path, crews: list[ProcessBackend]
) -> None:
    hook = {"name": "worker_parts:Kills", "whom": 2}
    with pytest.raises(ClientFailed, match=r"client 2, round 2: 3 workers died over it.*SIGKILL"):
        outcome(experiment(folder, logic={**ALL, "hooks": [hook]}), crews[1])


def test_an_error_in_a_hook_comes_back_with_its_own_traceback(
    folder: Path, crews: list[ProcessBackend]
) -> None:
    hook = {"name": "worker_parts:Fails", "whom": 1}
    with pytest.raises(ClientFailed, match="client 1, round 2: ValueError: this client") as raised:
        outcome(experiment(folder, logic={**ALL, "hooks": [hook]}), crews[1])
    line = PARTS.splitlines().index('        raise ValueError("this client will not")') + 1
    text = str(raised.value.__cause__)
    assert f'worker_parts.py", line {line}, in act' in text
    assert raised.value.__cause__.place == f"{folder / 'worker_parts.py'}:{line}"


def test_a_breakpoint_in_a_worker_says_where_breakpoints_work(
    folder: Path, crews: list[ProcessBackend]
) -> None:
    hook = {"name": "worker_parts:Fails", "how": "breakpoint"}
    with pytest.raises(ClientFailed, match="run with executor: serial"):
        outcome(experiment(folder, logic={**ALL, "hooks": [hook]}), crews[0])


def test_an_experiment_that_workers_cannot_build_says_why(
    folder: Path, tmp_path: Path, crews: list[ProcessBackend]
) -> None:
    (tmp_path / "only_once.py").write_text(
        "from pathlib import Path\n"
        "from kind_models import Dropping as Model\n"
        "Path(__file__).unlink()\n"
    )
    sys.path.append(str(folder))
    given = Experiment.parse(
        json.dumps({**TREE, "compute": {**TREE["compute"], "model": "only_once:Model"}}),
        folder=tmp_path,
        modules=None,
    )
    with pytest.raises(ExecutorFailed, match="there is no module 'only_once'"):
        outcome(given, crews[0])


def test_an_object_that_no_file_can_hold_is_refused_by_name() -> None:
    tree = {**TREE, "compute": {**TREE["compute"], "model": lambda: None}, "executor": "processes"}
    with pytest.raises(ExperimentError, match=r"compute.model: .*executor: serial") as raised:
        simulate(Experiment(**tree))
    assert len(str(raised.value).splitlines()) == 1


def test_nothing_grows_from_round_to_round(folder: Path, crews: list[ProcessBackend]) -> None:
    preset = {"name": "stc", "fraction": 1.0}
    with simulate(experiment(folder, rounds=30, logic={"preset": preset}), crews[1]) as simulation:
        seen = []
        for round in simulation:
            if round.round % 10 == 0:
                open_files = len(os.listdir("/proc/self/fd"))
                seen.append((open_files, _shared_bytes(), _children(os.getpid())))
    (files, *rest), *later = seen
    assert [more for more, *_ in later if more > files] == []  # earlier tests' files may go
    assert [others for _, *others in later] == [rest, rest]


def test_workers_end_when_the_run_is_killed(folder: Path) -> None:
    _end_a_run(folder, signal.SIGKILL, -signal.SIGKILL)


def test_workers_end_when_the_run_is_interrupted(folder: Path) -> None:
    result = _end_a_run(folder, signal.SIGINT, 130)
    assert "interrupted" in result
    assert "Traceback" not in result


def test_the_command_line_names_the_line_that_failed_in_a_worker(folder: Path) -> None:
    hook = {"name": "worker_parts:Fails", "whom": 1}
    (folder / "fails.yaml").write_text(json.dumps({**TREE, "logic": {**ALL, "hooks": [hook]}}))
    result = fedmx("run", "fails.yaml", "--own-modules", "--executor", "processes:2", cwd=folder)
    assert result.code == 2
    last = result.err.splitlines()[-1]
    assert last.startswith("fedmx: client 1, round 2: ValueError: this client will not (")
    assert "worker_parts.py:" in last


def test_an_executor_that_there_is_none_of_is_refused_in_one_line(folder: Path) -> None:
    (folder / "plain.yaml").write_text(json.dumps(TREE))
    for name in ("procesess:2", "processes:many", "serial:1"):
        result = fedmx("run", "plain.yaml", "--executor", name, cwd=folder)
        assert result.error_text.startswith(f"--executor '{name}': must be serial, processes")
    for value, text in (
        ("procesess", "did you mean 'processes'"),
        ("{processes: 0}", "executor.processes: must be all or a whole number from 1"),
        ("{processes: 1, ray: {}}", "executor: has both processes and ray"),
    ):
        with pytest.raises(ExperimentError, match=text):
            Experiment.from_dict(TREE, [f"executor={value}"])


def test_the_executor_is_no_part_of_what_determines_the_result() -> None:
    plain = Experiment(**TREE)
    for executor in ("serial", "processes", {"processes": 3}, {"ray": {"workers": 2}}):
        other = Experiment(**TREE, executor=executor)
        assert other.digest() == plain.digest()
        assert Experiment.parse(other.to_yaml()) == other


def _end_a_run(folder: Path, number: int, code: int) -> str:
    """Send a run a signal while its workers train for minutes; wait until all have ended."""
    tree = {**TREE, "rounds": 2}
    long = {"compute": {**TREE["compute"], "train": {"batch_size": 1, "epochs": 100_000}}}
    (folder / "long.yaml").write_text(json.dumps({**tree, **long}))
    command = [sys.executable, "-m", "fedmx", "run", "long.yaml", "--executor", "processes:2"]
    run = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,
    )
    assert run.stderr is not None
    while "run folder" not in run.stderr.readline():  # its workers were started before
        assert run.poll() is None
    workers = [os.pidfd_open(pid) for pid in _children(run.pid)]
    assert len(workers) == 2
    run.send_signal(number)
    result = run.communicate(timeout=60)[1]
    assert run.returncode == code
    for worker in workers:
        assert select.select([worker], [], [], 60)[0], "a worker goes on without its run"
        os.close(worker)
    return result


def _shared_bytes() -> list[int]:
    """The sizes of the memory that this process shares with its workers."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(descriptor).startswith("/memfd:fedmx (deleted)"):
                found.append(descriptor.stat().st_size)
    return sorted(found)


def _children(pid: int) -> list[int]:
    return sorted(child.pid for child in psutil.Process(pid).children())
