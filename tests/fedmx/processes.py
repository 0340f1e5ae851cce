"""Deployments in processes of their own: they are started, watched, killed and started again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fedmx import RunFolder
from fedmx.deployment.names import identity
from tests.fedmx.fork_server import ForkedProcess
from tests.network.conftest import Certificates

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 240.0  # how long anything may take before a test calls it stuck
T = TypeVar("T")


def until(found: Callable[[], T | None], what: Callable[[], str]) -> T:
    """Wait for a condition and return what it found; `what` says what was there instead."""
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        result = found()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"it did not come to pass: {what()}")


class Process:
    """A `fedmx` command whose output goes to a file; `main` is what runs in its place."""

    main = "fedmx.cli.start:main"

    def __init__(self, folder: Path, log: str, *words: str, **variables: str) -> None:
        self._log = folder / f"{log}.log"
        environment = {name: v for name, v in os.environ.items() if not name.startswith("MXNET_")}
        environment |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        environment |= {"HOME": str(folder), **variables}
        with open(os.devnull, "rb") as nothing, self._log.open("ab") as file:
            files = nothing.fileno(), file.fileno(), file.fileno()
            self._process = ForkedProcess(self.main, words, folder, environment, files)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return self._log.read_text()

    def line(self, part: str) -> str:
        """Return the last line with this in it, once there is one."""

        def look() -> str | None:
            ended = self._process.poll() is not None
            found = [line for line in self.output.split("\n")[:-1] if part in line]
            assert found or not ended, f"no {part!r} in: {self.output}"
            return found[-1] if found else None

        return until(look, lambda: self.output)

    def kill(self) -> None:
        """SIGKILL; it has no last words."""
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def terminate(self) -> None:
        """SIGTERM, unless it has ended."""
        self._process.terminate()

    def code(self) -> int:
        """Return its exit code, once it has ended."""
        return self._process.wait(PATIENCE_S)


class Deployment:
    """A server and its clients over mutual TLS, each in its own process, in one folder."""

    process = Process

    def __init__(self, folder: Path, experiment: Path, certificates: Certificates) -> None:
        self.folder = folder
        self._experiment = experiment
        self._certificates = certificates
        self._started: list[Process] = []
        self.address = ""

    def serve(self) -> Process:
        """Start the server at a port that the system chooses."""
        words = ["server", str(self._experiment), "--listen", "127.0.0.1:0", "--own-modules"]
        server = self._start("server", *words, *self._tls("server"))
        self.address = server.line("listening on ").split()[-1]
        return server

    def resume(self) -> Process:
        """Start a server that goes on with the run."""
        return self._start("resumed", "resume", str(self.run.path), "--own-modules")

    def client(self, number: int, parts: int, *more: str) -> Process:
        """Start one client; it keeps its memory in this deployment's folder."""
        return self._start(f"client-{number}", *self.client_words(number, parts, *more))

    def client_words(self, number: int, parts: int, *more: str) -> list[str]:
        """Return the command of a client."""
        self._certificates.client(identity(number))  # makes its certificate
        words = ["client", self.address, "--partition", f"{number}/{parts}"]
        words += ["--memory", str(self.folder / "memory"), *more]
        return [*words, *self._tls(identity(number))]

    @property
    def run(self) -> RunFolder:
        """The run's folder."""
        (facts,) = self._facts()
        return RunFolder.open(facts.parent)

    def rounds(self) -> int:
        """Return how many rounds are recorded; none before there is a folder."""
        return len(self.run.rounds()) if self._facts() else 0

    def _facts(self) -> list[Path]:
        """Return the facts of the run; a folder that is being made is hidden."""
        return list(self.folder.glob("runs/[!.]*/run.json"))

    def __enter__(self) -> Deployment:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Kill what still runs."""
        for process in self._started:
            process.kill()

    def _start(self, log: str, *words: str) -> Process:
        process = self.process(self.folder, log, *words)
        self._started.append(process)
        return process

    def _tls(self, name: str) -> list[str]:
        folder = self._certificates.folder
        files = {"ca": "ca.pem", "cert": f"{name}.pem", "key": f"{name}.key"}
        return [word for one, file in files.items() for word in (f"--{one}", str(folder / file))]
