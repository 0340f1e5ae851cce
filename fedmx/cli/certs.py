"""``fedmx certs``: a private certificate authority for one deployment."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmx.cli.options import show_help_without_command
from fedmx.errors import FedmxError

if TYPE_CHECKING:
    from cryptography import x509

certs = typer.Typer(help="Create and inspect certificates for mutual TLS.")
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the files.")]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="HOST",
        help="Host name or IP address of the server, as clients use it; may be repeated.",
    ),
]
LOCAL = ("localhost", "127.0.0.1", "::1")


@certs.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    show_help_without_command(context)


@certs.command("ca")
def ca_certificate(folder: Folder) -> None:
    """Create the private CA that signs all other certificates."""
    from layers.network import make_ca

    files = make_ca(folder)
    _print_line("authority", f"{files.certificate}, for everybody")
    _print_line("", f"{files.key}, which signs certificates: keep it to yourself")


@certs.command("server")
def server_certificate(folder: Folder, names: Names = None) -> None:
    """Create the server's certificate."""
    from layers.network import make_server_certificate

    hosts = names or LOCAL
    files = make_server_certificate(folder, hosts)
    _print_line("server", f"{files.certificate} and .key, as {', '.join(hosts)}")


@certs.command("client")
def client_certificates(
    folder: Folder,
    ids: Annotated[list[int], typer.Argument(metavar="ID", min=0, help="Clients' numbers.")],
) -> None:
    """Create clients' certificates, by their numbers."""
    from fedmx.deployment.names import identity
    from layers.network import make_client_certificate

    numbers = sorted(set(ids))
    first, *others = [make_client_certificate(folder, identity(one)).certificate for one in numbers]
    names = [str(first), *(other.name for other in others)]
    if others and numbers[-1] - numbers[0] == len(others):
        names = [f"{names[0]} to {names[-1]}"]
    who = f"{len(numbers)} clients" if others else "client"
    _print_line(who, f"{', '.join(names)} and .key")


@certs.command("site")
def site_certificates(
    folder: Folder,
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="The names of the sites.")],
) -> None:
    """Create certificates of a federation's sites, by their names."""
    from layers.network import make_client_certificate

    for name in names:
        _print_line("site", f"{make_client_certificate(folder, name).certificate} and .key")


@certs.command("kit")
def startup_kit(
    folder: Folder,
    site: Annotated[str, typer.Argument(metavar="SITE", help="The name of the site.")],
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The address of the federation.")
    ],
    request: Annotated[
        bool,
        typer.Option(
            "--request", help="Without a certificate: the site makes its key, and a request."
        ),
    ] = False,
) -> None:
    """Write the startup kit of a site: one archive for its machine."""
    from fedmx.federation.kit import write_kit

    path = write_kit(folder, site, address, request=request)
    _print_line("kit", f"{path}: its README.md says what to do")
    if not request:
        _print_line("", "it has the site's key: send it so that nobody else can read it")


@certs.command("operator")
def operator_certificate(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The operator's name.")] = "operator",
    reader: Annotated[
        bool, typer.Option("--reader", help="It may read, and give no orders.")
    ] = False,
) -> None:
    """Create the certificate of a federation's operator."""
    from fedmx.federation.messages import OPERATOR, READER
    from layers.network import make_client_certificate

    role = READER if reader else OPERATOR
    files = make_client_certificate(folder, name, role=role)
    _print_line(role, f"{files.certificate} and .key")


@certs.command("request")
def request_certificate(
    folder: Folder,
    who: Annotated[
        str,
        typer.Argument(
            metavar="ID|SITE|server",
            help="The client's number, the site's name, or the word server.",
        ),
    ],
    names: Names = None,
) -> None:
    """Create this machine's key, and a request for the CA.

    The key stays here. `fedmx certs sign` signs the request on the CA's machine.
    """
    from fedmx.deployment.names import identity
    from layers.network.enrolment import request_client, request_server

    if who == "server":
        made = request_server(folder, names or LOCAL)
    elif names:
        raise FedmxError("--name is for a server's request; leave it out for a client")
    elif re.fullmatch(r"0|[1-9][0-9]{0,8}", who):
        made = request_client(folder, identity(int(who)))
    elif who.isdigit():
        raise FedmxError(f"{who}: give the client's number, as in 7, a site's name, or server")
    else:
        made = request_client(folder, who)
    _print_line("key", f"{made.key}: it stays on this machine")
    _print_line("request", f"{made.request}: fedmx certs sign signs it on the CA's machine")
    _print_line("SHA-256", made.fingerprint)


@certs.command("sign")
def sign_requests(
    folder: Folder,
    requests: Annotated[
        list[Path],
        typer.Argument(
            metavar="CSR",
            help="Requests: client-7.csr for client 7, SITE.csr for a site, or server.csr.",
        ),
    ],
    again: Annotated[
        bool, typer.Option("--again", help="Sign also if the name has a certificate already.")
    ] = False,
) -> None:
    """Sign requests with the CA in FOLDER, by their files' names.

    A request must be for the name of its file.
    """
    from layers.network.enrolment import sign_client, sign_server

    for path in requests:
        if path.name == "server.csr":
            signed = sign_server(folder, path, again=again)
        elif path.suffix == ".csr":
            signed = sign_client(folder, path, path.stem, again=again)
        else:
            raise FedmxError(
                f"{path}: the name of a request is client-7.csr for client 7, SITE.csr for a "
                "site, or server.csr; rename the file"
            )
        _print_line("signed", str(signed.certificate))
        if signed.names:
            _print_line("names", ", ".join(signed.names))
        _print_line("SHA-256", signed.fingerprint)
        if signed.replaced is not None:
            _print_line("before", f"{signed.replaced} stays valid until it is revoked")
    typer.echo("with ca.pem, each goes back to the machine whose request had this SHA-256")


@certs.command("crl")
def revocation_list(folder: Folder) -> None:
    """Create an empty list of revoked certificates."""
    from layers.network import make_crl

    _print_line("revoked", f"{make_crl(folder)}, nobody yet")


@certs.command("revoke")
def revoke_certificates(
    folder: Folder,
    clients: Annotated[
        list[str],
        typer.Argument(metavar="CLIENT", help="Clients' numbers, or their certificates (.pem)."),
    ],
) -> None:
    """Revoke clients' certificates.

    A server that watches the list ends their sessions at once.
    """
    from fedmx.deployment.names import identity
    from layers.network import revoke

    files = [
        folder / f"{identity(int(one))}.pem" if one.isascii() and one.isdigit() else Path(one)
        for one in clients
    ]
    path = revoke(folder, files)
    _print_line("revoked", ", ".join(str(file) for file in files))
    _print_line("list", f"{path}: put it where the server reads it (network.tls.crl)")


@certs.command("all")
def all_certificates(
    folder: Folder,
    clients: Annotated[int, typer.Option(min=1, help="Number of clients, numbered from 0.")] = 1,
    names: Names = None,
) -> None:
    """Create all certificates for a server and its clients."""
    from fedmx.deployment.names import identity

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
    ca_certificate(folder)
    server_certificate(folder, names)
    client_certificates(folder, list(range(clients)))
    revocation_list(folder)
    typer.echo("""
ca.pem, crl.pem, server.pem and server.key go to the server's machine:
  fedmx server FILE --ca ca.pem --cert server.pem --key server.key --crl crl.pem
ca.pem, client-I.pem and client-I.key go to the machine of client I:
  fedmx client HOST:PORT --id I --ca ca.pem --cert client-I.pem --key client-I.key""")


@certs.command("show")
def show_certificate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A certificate or list (.pem).")],
) -> None:
    """Show the subject, host names and validity of a certificate.

    For a list of revoked certificates, show its entries.
    """
    from fedmx.cli.output import one_line

    for label, text in describe(file).items():
        _print_line(label, one_line(text))


def _print_line(label: str, text: str) -> None:
    typer.echo(f"{label + ':' if label else '':11} {text}")


def describe(path: Path) -> dict[str, str]:
    """Return the facts of a certificate or a revocation list (PEM), by their labels.

    Raises:
        FedmxError: the file cannot be read, or is neither.
    """
    from cryptography import x509

    try:
        content = path.read_bytes()
        if b"BEGIN X509 CRL" in content:
            crl = x509.load_pem_x509_crl(content)
            revoked = [
                f"{one.serial_number:X} ({one.revocation_date_utc:%Y-%m-%d %H:%M} UTC)"
                for one in crl
            ]
            return {
                "purpose": "the list of the revoked certificates",
                "signed by": _common_name(crl.issuer),
                "written": f"{crl.last_update_utc:%Y-%m-%d}",
                "revoked": ", ".join(revoked) or "nobody",
            }
        certificate = x509.load_pem_x509_certificate(content)
    except OSError as error:
        raise FedmxError(f"{path}: cannot be read ({error.strerror}); give a .pem file") from None
    except ValueError:
        hint = "; give the .pem beside it" if path.suffix == ".key" else ""
        raise FedmxError(f"{path}: not a certificate in PEM format{hint}") from None
    found = {one.oid: one.value for one in certificate.extensions}
    hosts = found.get(x509.SubjectAlternativeName.oid, ())
    names = ", ".join(str(name.value) for name in hosts)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    now = datetime.datetime.now(datetime.timezone.utc)
    left = f"{(ends - now).days:,} days left"
    state = "not yet" if now < begins else "expired" if now > ends else left
    return {
        "subject": _common_name(certificate.subject),
        "purpose": _purpose(found),
        **({"names": names} if names else {}),
        "serial": f"{certificate.serial_number:X}",
        "signed by": _common_name(certificate.issuer),
        "valid": f"{begins:%Y-%m-%d} to {ends:%Y-%m-%d} ({state})",
    }


def _common_name(name: x509.Name) -> str:
    from cryptography.x509.oid import NameOID

    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else name.rfc4514_string()


def _purpose(extensions: Mapping[x509.ObjectIdentifier, Any]) -> str:
    """Return the purpose of a certificate, from its extensions."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    constraints = extensions.get(x509.BasicConstraints.oid)
    if constraints is not None and constraints.ca:
        return "an authority, which signs certificates"
    uses = {
        ExtendedKeyUsageOID.SERVER_AUTH: "a server",
        ExtendedKeyUsageOID.CLIENT_AUTH: "a client",
    }
    usages = extensions.get(x509.ExtendedKeyUsage.oid)
    if usages is None:
        return "any"
    return " and ".join(uses.get(usage, usage.dotted_string) for usage in usages)
