"""``fedmx ctl``: what an operator tells a running server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedmx.cli.options import AsJson
from fedmx.components.text import unknown
from fedmx.errors import FedmxError


def ctl(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder of a server.")],
    command: Annotated[
        str,
        typer.Argument(
            metavar="COMMAND", help="pause, resume or stop; or kick, exclude or include CLIENT."
        ),
    ],
    client: Annotated[
        int | None, typer.Argument(metavar="[CLIENT]", min=0, help="The client's number.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell a running server to pause, end, or leave out a client."""
    from fedmx.deployment.operator_socket import OF_A_CLIENT, OF_THE_RUN, ask
    from fedmx.run import RunError, RunFolder

    if command not in (*OF_THE_RUN, *OF_A_CLIENT):
        raise FedmxError(unknown("command", command, (*OF_THE_RUN, *OF_A_CLIENT)))
    if (client is None) is (command in OF_A_CLIENT):
        needs = "needs a client's number" if client is None else "takes no client"
        right = f"{command} 7" if client is None else command
        raise FedmxError(f"fedmx ctl RUN {command}: {needs}, as in fedmx ctl RUN {right}")
    folder = RunFolder.open(path)
    if folder.facts.get("mode") != "server":
        raise RunError(f"{path}: this is a simulation; fedmx ctl is for a server's run")
    if folder.status != "running":
        reason = f": {folder.reason}" if folder.reason else ""
        raise RunError(f"{path}: the run is not running ({folder.status}{reason})")
    answer = ask(folder.path, {"command": command, "client": client})
    if "error" in answer:
        raise FedmxError(f"{path}: {answer['error']}")
    typer.echo(json.dumps(answer) if as_json else answer["text"])
