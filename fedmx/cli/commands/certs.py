"""``fedmx certs``: a private certificate authority for one deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedmx.cli.terminal.options import show_help_without_command

app = typer.Typer(help="Make certificates for mutual TLS, and look at them.")
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the files are kept.")]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="HOST",
        help="Name or IP address by which clients know the server; may be repeated.",
    ),
]
LOCAL = ("localhost", "127.0.0.1", "::1")


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    show_help_without_command(context)


@app.command("ca")
def ca(folder: Folder) -> None:
    """Make the private authority that signs everything else."""
    from layers.network import make_ca

    files = make_ca(folder)
    _print_line("authority", f"{files.certificate}, for everybody")
    _print_line("", f"{files.key}, which signs certificates: keep it to yourself")


@app.command("server")
def server(folder: Folder, names: Names = None) -> None:
    """Make the server's certificate."""
    from layers.network import make_server_certificate

    hosts = names or LOCAL
    files = make_server_certificate(folder, hosts)
    _print_line("server", f"{files.certificate} and .key, as {', '.join(hosts)}")


@app.command("client")
def client(
    folder: Folder,
    ids: Annotated[list[int], typer.Argument(metavar="ID", min=0, help="Clients' numbers.")],
) -> None:
    """Make the certificates of clients, by their numbers."""
    from fedmx.deployment.client_sessions import identity
    from layers.network import make_client_certificate

    made = [make_client_certificate(folder, identity(number)) for number in dict.fromkeys(ids)]
    first, last = made[0].certificate, made[-1].certificate
    to = f" to {last.name}" if len(made) > 1 else ""
    who = "client" if len(made) == 1 else f"{len(made)} clients"
    _print_line(who, f"{first}{to} and .key")


@app.command("crl")
def crl(folder: Folder) -> None:
    """Make the list of revoked certificates, in which none is yet."""
    from layers.network import make_crl

    _print_line("revoked", f"{make_crl(folder)}, nobody yet")


@app.command("revoke")
def revoke_(
    folder: Folder,
    clients: Annotated[
        list[str],
        typer.Argument(metavar="CLIENT", help="Clients' numbers, or their certificates (.pem)."),
    ],
) -> None:
    """Revoke certificates of clients.

    A server that watches the list ends their sessions at once.
    """
    from fedmx.deployment.client_sessions import identity
    from layers.network import revoke

    files = [
        folder / f"{identity(int(one))}.pem" if one.isascii() and one.isdigit() else Path(one)
        for one in clients
    ]
    path = revoke(folder, files)
    _print_line("revoked", ", ".join(str(file) for file in files))
    _print_line("list", f"{path}: put it where the server reads it (network.tls.crl)")


@app.command("all")
def everything(
    folder: Folder,
    clients: Annotated[int, typer.Option(min=1, help="How many clients, numbered from 0.")] = 1,
    names: Names = None,
) -> None:
    """Make all certificates that a server and its clients need."""
    from fedmx.deployment.client_sessions import identity
    from fedmx.errors import FedmxError

    existing = [
        name
        for name in ("ca", "crl", "server", *map(identity, range(clients)))
        if (folder / f"{name}.pem").exists() or (folder / f"{name}.key").exists()
    ]
    if existing:  # before the first certificate is made
        raise FedmxError(
            f"{folder}: {existing[0]}.pem or .key is already there and stays as it is; "
            "give another folder"
        )
    ca(folder)
    server(folder, names)
    client(folder, list(range(clients)))
    crl(folder)
    typer.echo("""
ca.pem, crl.pem, server.pem and server.key go to the server's machine:
  fedmx server FILE --ca ca.pem --cert server.pem --key server.key --crl crl.pem
ca.pem, client-I.pem and client-I.key go to the machine of client I:
  fedmx client HOST:PORT --id I --ca ca.pem --cert client-I.pem --key client-I.key""")


@app.command("show")
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A certificate or list (.pem).")],
) -> None:
    """Show whose a certificate is, for which names, until when.

    Of a list of revoked certificates it shows these.
    """
    from fedmx.cli.commands.certificate import describe
    from fedmx.cli.terminal.error_text import printable

    for label, text in describe(file).items():
        _print_line(label, printable(text))


def _print_line(label: str, text: str) -> None:
    typer.echo(f"{label + ':' if label else '':11} {text}")
