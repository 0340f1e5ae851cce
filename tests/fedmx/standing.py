"""A standing federation in processes of its own: a server, and sites that stay."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Any

from fedmx.federation.ledger import OVER
from fedmx.federation.operator import Operator
from layers.network import ClientTLS, make_client_certificate
from tests.fedmx.processes import PATIENCE_S, Process, until
from tests.network.conftest import Certificates

EXPERIMENT = """\
name: {name}
seed: 3
rounds: {rounds}
clients: {clients}
compute:
  engine: numpy
  model: 2nn
  data: digits
  normalise: {{scale: 16}}
  train: {{epochs: 1, batch_size: 20, learning_rate: 0.05}}
logic: {{preset: {preset}}}
"""


def experiment(name: str = "one", clients: int = 2, rounds: int = 2, preset: str = "fedavg") -> str:
    return EXPERIMENT.format(name=name, clients=clients, rounds=rounds, preset=preset)


class Standing:
    """A federation in a folder.

    Args:
        folder: of its files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificates = Certificates(folder / "pki")
        self.address = "127.0.0.1:0"
        self._started: list[Process] = []

    def serve(self, *words: str, folder: str = "fed") -> Process:
        """Start the server; another time at the same address."""
        where = ["--listen", self.address, "--certs", str(self.certificates.folder)]
        known = Path(self.folder, "server.log")
        before = known.read_text().count("listening on ") if known.exists() else 0
        server = self._start("server", "federation", "serve", folder, *where, *words)
        until(lambda: server.output.count("listening on ") > before, lambda: server.output)
        self.address = server.line("listening on ").split()[-1]
        return server

    def site(self, name: str, policy: str = "", *words: str) -> Process:
        """Start a site."""
        tls = self.certificates.client(name)
        given = ["--ca", tls.ca, "--cert", tls.certificate, "--key", tls.key]
        given += ["--memory", self.folder / f"memory-{name}"]
        if policy:
            file = self.folder / f"{name}.yaml"
            file.write_text(policy)
            given += ["--policy", file]
        return self._start(name, "client", self.address, "--stay", *map(str, given), *words)

    def operator(self, name: str = "operator", role: str = "operator") -> Operator:
        """Return an operator's connection."""
        folder = self.certificates.folder
        if not (folder / f"{name}.pem").exists():
            make_client_certificate(folder, name, role=role)
        files = (folder / f"{name}.pem", folder / f"{name}.key", folder / "ca.pem")
        received = self.folder / "received"
        received.mkdir(exist_ok=True)
        return Operator(self.address, ClientTLS(*files), received)

    def over(self, operator: Operator, job: str) -> dict[str, Any]:
        """Return a job once it is over."""
        return self.when(operator, job, *OVER)

    def when(self, operator: Operator, job: str, *states: str) -> dict[str, Any]:
        """Return a job once it is in one of these states."""
        ends = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends:
            found = operator.order("job", job)
            if found["state"] in states:
                return dict(found)
            time.sleep(0.05)
        log = self.folder / "fed" / "jobs" / job / "log"
        raise AssertionError(f"{found}: {log.read_text() if log.exists() else 'no log'}")

    def model(self, job: str) -> bytes:
        """Return the final model of a job."""
        (path,) = (self.folder / "fed" / "jobs" / job / "runs").glob("*/model.safetensors")
        return path.read_bytes()

    def __enter__(self) -> Standing:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._started:  # in order, so that the processes of their own end, too
            process.terminate()
        for process in self._started:
            process.code()

    def _start(self, log: str, *words: str) -> Process:
        process = Process(self.folder, log, *words)
        self._started.append(process)
        return process
