"""``fedmx status``: what a run does now, who is there and who is waited for."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmx.cli.terminal.options import AsJson

ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")


def status(
    where: Annotated[
        str,
        typer.Argument(
            metavar="RUN|ADDRESS",
            help="A run folder, or HOST:PORT of a server's metrics (network.metrics).",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Show what a run does now, who is there and who is waited for."""
    from fedmx.monitoring.reading import status_of_address, status_of_run

    is_address = ADDRESS.fullmatch(where) is not None and not Path(where).exists()
    found = status_of_address(where) if is_address else status_of_run(where)
    if as_json:
        typer.echo(json.dumps(found))
        return
    for label, text in lines(found, time.time()):
        typer.echo(f"{label + ':':12} {text}")


def lines(status: dict[str, Any], now: float) -> list[tuple[str, str]]:
    """Return a status as labels and texts; `now` is seconds since 1970."""
    from fedmx.cli.terminal.error_text import printable
    from fedmx.deployment.membership import listing
    from fedmx.report.quantities import mebibytes, percent

    state = status["state"]
    process = f", process {status['pid']}" if status["pid"] is not None else ""
    reason = f": {status['reason']}" if status["reason"] else ""
    found = [("run", f"{status['run']}"), ("state", f"{state}{process}{reason}")]
    done, last = status["rounds_done"], status["last_round"]
    text = f"{done} of {last} done"
    if status["round"] is not None and state == "running":
        text += f", round {status['round']} is under way"
    found.append(("rounds", text))
    if status["accuracy"] is not None:
        found.append(
            ("model", f"accuracy {percent(status['accuracy'])}, loss {status['loss']:.4f}")
        )
    if state == "interrupted" and status["time"] is not None:
        found.append(("last seen", f"{status['time']}; what follows is of then"))
    if status["clients"] is not None or status["ready"]:
        of = "" if status["clients"] is None else f" of {status['clients']}"
        ready = status["ready"]
        who = f": {listing(set(ready))}" if ready else ""
        found.append(("clients", f"{len(ready)}{of} are ready{who}"))
    for client, since in status["away"].items():
        found.append(("away", f"client {client}, since {_since(since, now)}"))
    waiting = status["waiting"]
    if waiting is not None:
        text = f"for {waiting['for']} of {listing(set(waiting['clients']))}"
        if waiting["for"] == "clients":
            text = f"for clients {listing(set(waiting['clients']))}"
        found.append(("waiting", f"{text}, since {_since(waiting['since'], now)}"))
    updates = ", ".join(f"{number} {fate}" for fate, number in status["updates"].items())
    found.append(("updates", updates))
    received, sent = mebibytes(status["received_bytes"]), mebibytes(status["sent_bytes"])
    found.append(("bytes", f"up {received}, down {sent}"))
    if status["refused_connections"] is not None:
        text = f"{status['refused_connections']} refused, {status['reconnections']} came back"
        found.append(("connections", text))
    if status["memory_bytes"] is not None:
        found.append(("memory", mebibytes(status["memory_bytes"])))
    return [(label, printable(text)) for label, text in found]


def _since(timestamp: str, now: float) -> str:
    from fedmx.report.quantities import duration

    moment = datetime.fromisoformat(timestamp)
    return f"{moment:%H:%M:%S} UTC ({duration(max(now - moment.timestamp(), 0.0))})"
