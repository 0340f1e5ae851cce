"""Every example runs, and does what the README says of it."""

from __future__ import annotations

import ast
import configparser
import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from fedmx import Experiment, RunFolder
from fedmx.history import diff
from tests.examples.free_port import free_port
from tests.fedmx.fork_server import ForkedProcess, write_program

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
DEPLOY = EXAMPLES / "deploy"
DOCKER = EXAMPLES / "docker"
FEDMX = [sys.executable, "-m", "fedmx"]
PATIENCE_S = 120.0  # how long a process may take before a test calls it stuck


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """As after `make`: this code, a `fedmx` in the PATH, and a home of its own."""
    programs = tmp_path_factory.mktemp("bin")
    write_program(programs)
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(programs),
        "PYTHONUNBUFFERED": "1",
    }


Start = Callable[..., "Process"]


class Process:
    """A process whose output goes to a file, so that it can be looked at while it runs.

    A `fedmx` command is a copy of a process that has everything loaded.
    """

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.process: subprocess.Popen[bytes] | ForkedProcess
        self.log = folder / f"log-{len(list(folder.glob('log-*')))}"
        with self.log.open("wb") as file, open(os.devnull, "rb") as nothing:
            if command[: len(FEDMX)] == FEDMX:
                words, files = command[len(FEDMX) :], (nothing, file, file)
                self.process = ForkedProcess(
                    "fedmx.cli.start:main",
                    words,
                    folder,
                    environment,
                    [one.fileno() for one in files],
                )
            else:
                self.process = subprocess.Popen(
                    command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT
                )

    @property
    def output(self) -> str:
        """What it wrote, without the time before a line."""
        return re.sub(r"(?m)^[\d-]{10}T[\d:]{8}Z ", "", self.log.read_text())

    def await_line(self, beginning: str) -> str:
        """Return the first line with this beginning; fail if the process ends without it."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            ended = self.process.poll() is not None
            for line in self.output.split("\n")[:-1]:
                if line.startswith(beginning):
                    return line
            assert not ended, self.output
            time.sleep(0.02)
        raise AssertionError(f"no {beginning!r} in: {self.output}")

    def code(self) -> int:
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    """Start processes, and end those that a test leaves."""
    with contextlib.ExitStack() as stack:

        def started(command: list[str], folder: Path) -> Process:
            process = Process(command, folder, environment)
            stack.callback(process.process.wait, PATIENCE_S)
            stack.callback(process.process.kill)
            return process

        yield started


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(work: Callable[[], object]) -> list[str]:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        work()
    return text.getvalue().splitlines()


def only_run(folder: Path) -> RunFolder:
    (path,) = folder.glob("*/run.json")
    return RunFolder.open(path.parent)


def bytes_by_client(run: RunFolder) -> list[tuple[int, int, int, int]]:
    return [(r["round"], r["client"], r["up_bytes"], r["down_bytes"]) for r in run.clients()]


# --- the experiment files -------------------------------------------------------------------


EXPERIMENTS = sorted({*EXAMPLES.rglob("*.yaml")} - {DOCKER / "compose.yaml"})


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.name)
def test_every_experiment_file_is_read_and_says_what_it_is_for(path: Path) -> None:
    experiment = Experiment.read(path)
    assert experiment.name == path.stem.replace("_", "-") or path.parent in (DEPLOY, DOCKER)
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize("name", ["lenet5-mnist-shards", "2nn-mnist-iid"])
def test_the_experiments_on_mnist_train(
    name: str, data_root: Path, tmp_path: Path, start: Start
) -> None:
    command = [*FEDMX, "run", str(EXAMPLES / f"{name}.yaml"), "--set", "rounds=1"]
    command += ["--set", "compute.train.steps=5", "--set", "compute.evaluate.sample=500"]
    done = start(command, tmp_path)
    assert done.code() == 0, done.output
    (record,) = only_run(tmp_path / "runs").rounds()
    assert len(record["participants"]) == 10


# --- the programs ---------------------------------------------------------------------------


def test_the_quickstart_gives_the_same_model_in_simulation_and_over_tls(
    tmp_path: Path, start: Start
) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import quickstart; from pathlib import Path; "
        "sys.exit(quickstart.main(Path('quick'), ('rounds=2', 'clients=2')))"
    )
    done = start([sys.executable, "-c", code, str(EXAMPLES)], tmp_path)
    assert done.code() == 0, done.output
    assert "The final models are the same, bit for bit:" in done.output
    simulated, deployed = (
        only_run(next(tmp_path.glob(f"quick/*/{kind}"))) for kind in ("simulated", "deployed")
    )
    assert simulated.model_path.read_bytes() == deployed.model_path.read_bytes()
    assert bytes_by_client(simulated) == bytes_by_client(deployed)
    control = [run.rounds()[0]["control_bytes"] for run in (simulated, deployed)]
    assert control[0] == 0 < control[1], "a simulation has no connections, whose bytes would count"
    assert diff(simulated, deployed).divergence is None


def test_own_model_and_data_train_until_the_loop_has_enough() -> None:
    lines = printed(example("own_model_and_data").main)
    accuracies = [float(line.split()[3].rstrip(",")) for line in lines]
    assert accuracies[-1] > 0.93
    assert all(accuracy <= 0.93 for accuracy in accuracies[:-1])


def test_fedsgd_returns_the_same_model_by_either_reply() -> None:
    module = example("fedsgd_vs_fedavg")
    lines = printed(lambda: module.main(updates=16))
    rounds = [re.findall(r"(\w+),? *(\w*) +(\d+) rounds", line)[0] for line in lines[1:4]]
    assert rounds == [("FedAvg", "", "2"), ("FedSGD", "rounds", "2"), ("FedSGD", "updates", "16")]
    assert float(lines[-1].split()[-1]) < 1e-5


def test_the_picture_of_the_thesis_trains_over_loopback(tmp_path: Path, start: Start) -> None:
    done = start([sys.executable, str(EXAMPLES / "thesis.py")], tmp_path)
    assert done.code() == 0, done.output
    rounds = re.findall(r"^round (\d+): clients \((\d), (\d)\)", done.output, re.M)
    assert [int(number) for number, *_ in rounds] == [*range(1, 9)]
    assert {client for _, *cohort in rounds for client in cohort} == {"0", "1", "2"}
    assert done.output.count("all 8 rounds were run") == 3
    assert float(done.output.split()[-1].rstrip("%")) > 90


# --- your own hook --------------------------------------------------------------------------


def test_the_hook_is_about_twenty_lines_of_code() -> None:
    tree = ast.parse((EXAMPLES / "own_hook.py").read_bytes())
    lines = {
        node.lineno
        for part in tree.body
        if isinstance(part, ast.ClassDef)
        for node in ast.walk(part)
        if hasattr(node, "lineno")
    }
    assert len(lines) <= 25


@pytest.mark.parametrize(
    ("file", "modules", "smaller"),
    [
        ("own_hook.yaml", ("own_hook",), 3.5),
        ("extending.yaml", ("own_codec", "own_correction", "own_aggregator"), 1.9),
    ],
)
def test_your_own_parts_give_the_same_model_and_bytes_over_sockets(
    file: str, modules: tuple[str, ...], smaller: float, tmp_path: Path, start: Start
) -> None:
    own = EXAMPLES / file
    given = ["--set", "rounds=3", "--set", "clients=2", "--set", "logic.selector.fraction=1.0"]
    given.append("--own-modules")
    simulated = start([*FEDMX, "run", str(own), *given], tmp_path)
    away = tmp_path / "server"
    away.mkdir()
    server = start([*FEDMX, "server", str(own), *given, "--listen", "127.0.0.1:0"], away)
    here = tmp_path / "client"
    here.mkdir()
    for module in modules:
        shutil.copy(EXAMPLES / f"{module}.py", here)
    address = server.await_line("listening on ").split()[2]
    command = [*FEDMX, "client", address, "--memory", "memory"]
    command += [word for module in modules for word in ("--module", module)]
    clients = [start([*command, "--partition", f"{number}/2"], here) for number in range(2)]
    for process in (simulated, server, *clients):
        assert process.code() == 0, process.output
    runs = only_run(tmp_path / "runs"), only_run(away / "runs")
    assert runs[0].model_path.read_bytes() == runs[1].model_path.read_bytes()
    assert bytes_by_client(runs[0]) == bytes_by_client(runs[1])
    assert runs[0].facts["parameters"] == runs[1].facts["parameters"]
    for record in runs[1].rounds():
        assert (record["tasks"], record["updates"]) == (2, 2)
        assert record["up_bytes"] < 2 * 4 * runs[1].facts["parameters"] / smaller


def test_a_client_takes_no_code_that_it_was_not_told_to_allow(tmp_path: Path, start: Start) -> None:
    given = ["--set", "clients=1", "--listen", "127.0.0.1:0", "--own-modules"]
    server = start([*FEDMX, "server", str(EXAMPLES / "own_hook.yaml"), *given], tmp_path)
    address = server.await_line("listening on ").split()[2]
    shutil.copy(EXAMPLES / "own_hook.py", tmp_path)
    client = start([*FEDMX, "client", address, "--id", "0", "--memory", "memory"], tmp_path)
    assert client.code() == 2
    (reason,) = [line for line in client.output.splitlines() if line.startswith("fedmx: ")]
    assert "own_hook" in reason
    assert "client 0" in server.await_line("warning: ")


# --- deploy on two machines -----------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The folder of a deployment that lasts six rounds, on a port of its own."""
    folder = tmp_path / "deploy"
    shutil.copytree(DEPLOY, folder)
    experiment = yaml.safe_load((folder / "experiment.yaml").read_text())
    experiment["rounds"] = 6
    experiment["network"]["address"] = f"127.0.0.1:{free_port()}"
    (folder / "experiment.yaml").write_text(yaml.safe_dump(experiment))
    return folder


def test_a_killed_server_goes_on_with_its_run_when_its_script_is_started_again(
    machine: Path, start: Start
) -> None:
    made = start([*FEDMX, "certs", "all", "certs", "--clients", "2"], machine)
    assert made.code() == 0, made.output
    address = yaml.safe_load((machine / "experiment.yaml").read_text())["network"]["address"]
    server = start(["./server.sh"], machine)
    clients = [start(["./client.sh", address, str(number)], machine) for number in range(2)]
    server.await_line("round 2/6")
    server.process.kill()
    server.code()
    simulated = start([*FEDMX, "run", "experiment.yaml", "--set", "run.folder=alone"], machine)
    again = start(["./server.sh"], machine)
    for process in (again, simulated, *clients):
        assert process.code() == 0, process.output
    run = only_run(machine / "runs")
    assert [record["round"] for record in run.rounds()] == [1, 2, 3, 4, 5, 6]
    assert run.model_path.read_bytes() == only_run(machine / "alone").model_path.read_bytes()

    once_more = start(["./server.sh"], machine)
    assert once_more.code() == 0
    assert "is done" in once_more.output
    assert only_run(machine / "runs").status == "done"


def test_the_client_script_says_how_it_is_called(start: Start, tmp_path: Path) -> None:
    called = start([str(DEPLOY / "client.sh"), "127.0.0.1:7070"], tmp_path)
    assert called.code() == 2
    assert called.output.startswith("usage: client.sh HOST:PORT NUMBER")


@pytest.mark.parametrize("name", ["fedmx-server.service", "fedmx-client@.service"])
def test_a_unit_starts_a_script_of_this_folder_and_restarts_it(name: str) -> None:
    unit = configparser.RawConfigParser(strict=False, delimiters=("=",))
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string((DEPLOY / name).read_text())
    service = unit["Service"]
    script = ROOT / service["ExecStart"].split()[0].removeprefix("/opt/fedmx/")
    assert os.access(script, os.X_OK)
    assert service["Restart"] == "on-failure"
    assert service["SuccessExitStatus"] == "130"
    assert service["NoNewPrivileges"] == "yes"


def test_the_units_are_hardened_alike() -> None:
    hardening = [
        (DEPLOY / name).read_text().partition("NoNewPrivileges")[2]
        for name in ("fedmx-server.service", "fedmx-client@.service")
    ]
    assert hardening[0] == hardening[1]
