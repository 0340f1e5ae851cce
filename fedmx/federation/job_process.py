"""The process of a job that runs, as the federation's server sees it, and its options."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmx.deployment.operator_socket import ask
from fedmx.errors import FedmxError
from fedmx.federation.ledger import Job
from fedmx.fork_server import ForkedProcess, ForkServer
from fedmx.run.durable import write_document
from layers.network.handed import pair


@dataclass(frozen=True)
class Options:
    """How a federation is served.

    Attributes:
        address: where it listens, HOST:PORT.
        certificate, key, ca: its TLS files (PEM).
        crl: the list of revoked certificates; None: there is none.
        modules: the modules whose code an experiment may name.
        at_once: how many jobs may run at a time.
        start_limit_s: how long a job waits for the sites with which it begins.
    """

    address: str
    certificate: Path
    key: Path
    ca: Path
    crl: Path | None = None
    modules: Sequence[str] = ()
    at_once: int = 1
    start_limit_s: float = 600.0


@dataclass
class JobProcess:
    """The process of a job that runs.

    Attributes:
        folder: of the job.
        process: the process.
        giving: hands it the connections of its clients.
        cancelled: who has cancelled it; empty: nobody.
        failed: why it cannot go on; empty: it can.
        restarts: how often each site's process was started again.
        left_out: the sites without which it goes on.
    """

    folder: Path
    process: ForkedProcess
    giving: socket.socket
    cancelled: str = ""
    failed: str = ""
    restarts: Counter[str] = field(default_factory=Counter)
    left_out: set[str] = field(default_factory=set)
    _cannot: list[str] = field(default_factory=list, init=False)  # from the threads that ask

    @classmethod
    def start(
        cls, folder: Path, processes: ForkServer, job: Job, options: Options, address: str
    ) -> JobProcess:
        """Start a process, which begins the job's run or goes on with it.

        Args:
            folder: of the job.
            processes: starts it.
            job: the job, with its sites.
            options: of the federation.
            address: where the federation listens.

        Raises:
            RunError, OSError: a file cannot be written.
        """
        one = options
        facts = {
            "address": address,
            "tls": {"certificate": str(one.certificate), "key": str(one.key), "ca": str(one.ca)},
            "crl": None if one.crl is None else str(one.crl),
            "sites": list(job.sites),
            "shared": job.shared,
            "modules": list(one.modules),
            "start_limit_s": one.start_limit_s,
        }
        write_document(folder / "process.json", facts)
        giving, taking = pair()
        with taking, (folder / "log").open("ab") as to, open(os.devnull, "rb") as nothing:
            files = nothing.fileno(), to.fileno(), to.fileno()
            words = ["job-server", str(folder), str(taking.fileno())]
            process = processes.popen("fedmx", words, files, (taking.fileno(),))
        return cls(folder, process, giving)

    def leave_out(self, site: str, client: int, reason: str) -> None:
        """Let the job go on without a site, or end it if it cannot; wait for neither.

        Args:
            site: the site.
            client: its number in the job.
            reason: why, for the end of the job.
        """
        if site in self.left_out:
            return
        self.left_out.add(site)

        def exclude() -> None:  # the process answers late while it evaluates a model
            answer: Mapping[str, Any] = {}
            for run in (self.folder / "runs").glob("[!.]*"):
                with contextlib.suppress(FedmxError):  # it has ended
                    answer = ask(run, {"command": "exclude", "client": client})
            if client not in answer.get("excluded", ()):
                self._cannot.append(f"{site}: {reason}")

        threading.Thread(target=exclude, name="fedmx-exclude", daemon=True).start()

    def poll(self) -> int | None:
        """Return its exit code; None: it goes on. End it if it cannot go on without a site."""
        if self._cannot and not self.failed:
            self.failed = self._cannot[0]
            self.process.terminate()
        return self.process.poll()


def last_line(path: Path, code: int) -> str:
    """Return the last line of a process's log, or its exit code."""
    with contextlib.suppress(OSError):
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - 4096, 0))
            lines = file.read().decode(errors="replace").split("\n")
        for line in reversed(lines):
            if line.strip():
                return line.strip()[:500]
    return f"its process ended with code {code}"
