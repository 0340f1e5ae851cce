"""``fedmx certs``: a private certificate authority for one deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Make certificates for mutual TLS.", no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the files are kept.")]


@app.command("ca")
def ca(folder: Folder) -> None:
    """Make a private certificate authority; keep its key where clients cannot read it."""
    from layers.network import make_ca

    typer.echo(f"made {make_ca(folder)}")


@app.command("server")
def server(
    folder: Folder,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Host name or IP address of the server; may be repeated."),
    ] = None,
) -> None:
    """Make the server's certificate."""
    from layers.network import make_server_certificate

    typer.echo(f"made {make_server_certificate(folder, name or ['localhost', '127.0.0.1'])}")


@app.command("client")
def client(
    folder: Folder,
    ids: Annotated[list[int], typer.Argument(metavar="ID...", help="Numbers of clients.")],
) -> None:
    """Make certificates for clients by their numbers."""
    from fedmx.socket_clients import identity
    from layers.network import make_client_certificate

    for number in ids:
        typer.echo(f"made {make_client_certificate(folder, identity(number))}")


@app.command("all")
def everything(
    folder: Folder,
    clients: Annotated[int, typer.Option(min=1, help="How many clients, numbered from 0.")] = 1,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Host name or IP address of the server; may be repeated."),
    ] = None,
) -> None:
    """Make a certificate authority, the server's certificate, and those of all clients."""
    ca(folder)
    server(folder, name)
    client(folder, list(range(clients)))
