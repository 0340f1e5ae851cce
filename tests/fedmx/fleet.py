"""All clients of a deployment over mutual TLS, in processes that serve one run after the other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from fedmx import Round, Server
from fedmx.deployment.names import identity
from tests.fedmx.client_process import ClientProcess
from tests.fedmx.processes import until
from tests.network.conftest import Certificates


class Fleet:
    """Clients 0 to `number` - 1; any of them can be killed between rounds and started again.

    Args:
        number: of clients.
        certificates: for mutual TLS.
        python: the interpreter that the clients run on.
    """

    def __init__(
        self, number: int, certificates: Certificates, python: str = sys.executable
    ) -> None:
        self._certificates = certificates
        self._python = python
        self._running = [ClientProcess(python) for _ in range(number)]

    def run(self, server: Server, memory: Path, modules: Path | None = None) -> Iterator[Round]:
        """Run a deployment to its end; client k keeps its memory in the folder `memory`/k.

        The clients may use the modules in the folder `modules`.
        """
        with server:
            for client in range(len(self._running)):
                self.start(server, client, memory / f"{client}", modules)
            yield from server
            for process in self._running:
                assert process.finished() == server.reason

    def start(self, server: Server, client: int, memory: Path, modules: Path | None = None) -> None:
        """Let a client take part in a run."""
        tls = self._certificates.client(identity(client))
        self._running[client].start(server.address, client, memory, tls, modules)

    def reason(self, client: int) -> str:
        """Return why the run was over for a client, once it is."""
        return self._running[client].finished()

    def kill(self, client: int) -> None:
        """Kill a client."""
        self._running[client].kill()

    def start_again(
        self, server: Server, client: int, memory: Path, modules: Path | None = None
    ) -> None:
        """Kill a client; when the server has seen that it is gone, start it in a new process."""
        listener = server.network.listener
        self._running[client].kill()
        # A task that was on its way to the dead client would have been sent, and counted, twice.
        until(lambda: identity(client) not in listener.peers, lambda: f"{client} is still there")
        self._running[client] = ClientProcess(self._python)
        self.start(server, client, memory, modules)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Kill what still runs."""
        for process in self._running:
            process.kill()
