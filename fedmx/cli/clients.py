"""``fedmx clients``: many clients of one run on this machine, each a process of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmx.cli.options import Insecure
from fedmx.cli.output import say
from fedmx.cli.process import Interrupted
from fedmx.errors import FedmxError
from fedmx.log import Log

if TYPE_CHECKING:
    from fedmx.fork_server import ForkServer

log = Log("fedmx.clients")

_POLL_S = 0.1


def clients(
    count: Annotated[int, typer.Argument(metavar="N", min=1, help="The number of clients.")],
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The server's address.")],
    certificates: Annotated[
        Path | None,
        typer.Option(
            "--certs", metavar="FOLDER", help="The certificates that fedmx certs all wrote there."
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option(metavar="FOLDER", help="For the clients' logs and their memory.")
    ] = Path("runs/clients"),
    module: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE",
            help="A module of your own that the experiment may import; may be repeated.",
        ),
    ] = None,
    insecure: Insecure = False,
    stay: Annotated[
        bool, typer.Option("--stay", help="Stay at a federation, as the sites client-0 to N - 1.")
    ] = False,
) -> None:
    """Take part in a run as N clients, all of them on this machine.

    Each client is a process of its own, as `fedmx client` starts it: client I uses part I of N of
    the data, the certificate client-I.pem, and writes to client-I.log.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # before the imports that read it
    from fedmx.components.engines import MODULES, MXNET
    from fedmx.fork_server import COMMAND, ForkServer

    if certificates is not None and not (certificates / "ca.pem").is_file():
        raise FedmxError(
            f"--certs {certificates}: has no ca.pem; fedmx certs all {certificates} writes it"
        )
    folder.mkdir(parents=True, exist_ok=True)
    given = ["--insecure"] if insecure else []
    given += [word for name in module or () for word in ("--module", name)]
    imported = [*COMMAND, "fedmx.deployment.join", *MODULES[MXNET]]
    with ForkServer(imported, dict(os.environ)) as server:
        try:
            code = _run(server, count, address, certificates, folder, given, stay)
        except KeyboardInterrupt:
            text = "interrupted; run the same command to take part again"
            raise Interrupted(text) from None
    if code:
        raise typer.Exit(code)


def _run(
    server: ForkServer,
    count: int,
    address: str,
    certificates: Path | None,
    folder: Path,
    given: list[str],
    stay: bool,
) -> int:
    """Start the clients and wait for them; return the first exit code that is not 0."""
    running = {}
    for number in range(count):
        memory = folder / "memory" / (f"{number}" if stay else "")
        words = ["client", address, "--memory", str(memory), *given]
        words += ["--stay"] if stay else ["--partition", f"{number}/{count}"]
        if certificates is not None:
            files = {"ca": "ca.pem", "cert": f"client-{number}.pem", "key": f"client-{number}.key"}
            for option, file in files.items():
                words += [f"--{option}", str(certificates / file)]
        with (folder / f"client-{number}.log").open("ab") as to, open(os.devnull, "rb") as nothing:
            files_of = nothing.fileno(), to.fileno(), to.fileno()
            running[number] = server.popen("fedmx", words, files_of)
    say("clients_started", f"{count} clients started; logs: {folder}", count=count)
    code = 0
    while running:
        time.sleep(_POLL_S)
        for number, process in list(running.items()):
            ended = process.poll()
            if ended is None:
                continue
            del running[number]
            if ended:
                code = code or ended
                log.warning(
                    "client_ended",
                    "client {client} ended with code {code}; see {log}",
                    client=number,
                    code=ended,
                    log=folder / f"client-{number}.log",
                )
    return code
