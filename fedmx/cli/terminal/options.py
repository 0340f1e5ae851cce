"""Options and behaviour that several commands share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

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
        metavar="ENGINE",
        help="Who trains: serial, processes[:N] or ray[:ADDRESS]; it changes no bit of the result.",
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
Insecure = Annotated[bool, typer.Option("--insecure", help="Allow plain TCP beyond this machine.")]


def executor_override(name: str | None) -> list[str]:
    """Return what puts an engine into an experiment, as ``--set`` does.

    Raises:
        FedmxError: there is none of this name.
    """
    if name is None:
        return []
    kind, colon, of = name.partition(":")
    count = of.isascii() and of.isdigit() and int(of) > 0
    if kind == "processes" and colon and (count or of == "all"):
        return [f"engine={{processes: {of}}}"]
    if kind == "ray" and of:
        return [f"engine={{ray: {{address: {json.dumps(of)}}}}}"]
    if name in ("serial", "processes", "ray"):
        return [f"engine={name}"]
    raise FedmxError(f"--executor {shown(name)}: must be serial, processes[:N] or ray[:ADDRESS]")


def three_files(
    ca: Path | None, certificate: Path | None, key: Path | None
) -> tuple[Path, Path, Path] | None:
    """Return the files of one end of TLS, or None where none is given.

    Raises:
        FedmxError: some are given, and some are not.
    """
    if ca is None and certificate is None and key is None:
        return None
    if ca is None or certificate is None or key is None:
        raise FedmxError("TLS needs all of --ca, --cert and --key; make them with fedmx certs")
    return ca, certificate, key


def help_if_alone(context: typer.Context) -> None:
    """Show the help of a command that was given without one of its own commands."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)
