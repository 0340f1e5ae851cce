"""The options that several commands share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedmx.cli.terminal.exit_codes import USER_ERROR
from fedmx.components.text import shown
from fedmx.errors import FedmxError

ExperimentFile = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The experiment file (YAML).", show_default=False),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Override a value, e.g. logic.selector.fraction=0.2; may be repeated.",
    ),
]
ExecutorName = Annotated[
    str | None,
    typer.Option(
        "--executor",
        metavar="EXECUTOR",
        help="Who trains: serial, processes[:N] or ray[:ADDRESS]; the result is the same.",
        show_default=False,
    ),
]
CaFile = Annotated[
    Path | None, typer.Option("--ca", metavar="PEM", help="Certificate of the private CA.")
]
CertificateFile = Annotated[
    Path | None, typer.Option("--cert", metavar="PEM", help="This end's certificate.")
]
KeyFile = Annotated[
    Path | None, typer.Option("--key", metavar="PEM", help="This end's private key.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="PATH", help="File with a secret that all ends share."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Allow plain TCP beyond this machine.")]


def executor_override(name: str | None) -> list[str]:
    """Return the overrides that set an experiment's executor, as after ``--set``.

    Raises:
        FedmxError: there is no such executor.
    """
    if name is None:
        return []
    kind, colon, argument = name.partition(":")
    count = argument.isascii() and argument.isdigit() and int(argument) > 0
    if kind == "processes" and colon and (count or argument == "all"):
        return [f"executor={{processes: {argument}}}"]
    if kind == "ray" and argument:
        return [f"executor={{ray: {{address: {json.dumps(argument)}}}}}"]
    if name in ("serial", "processes", "ray"):
        return [f"executor={name}"]
    raise FedmxError(f"--executor {shown(name)}: must be serial, processes[:N] or ray[:ADDRESS]")


def tls_files(
    ca: Path | None, certificate: Path | None, key: Path | None
) -> tuple[Path, Path, Path] | None:
    """Return the files of one end of a TLS connection, or None if none is given.

    Raises:
        FedmxError: only some of them are given.
    """
    if ca is None and certificate is None and key is None:
        return None
    if ca is None or certificate is None or key is None:
        raise FedmxError("TLS needs all of --ca, --cert and --key; make them with fedmx certs")
    return ca, certificate, key


def show_help_without_command(context: typer.Context) -> None:
    """Show the help and end, if a group of commands was called without one of them."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(USER_ERROR)
