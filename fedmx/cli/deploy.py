"""``fedmx server`` and ``fedmx client``: the same experiment between machines."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmx.cli.options import (
    CaFile,
    CertificateFile,
    ExperimentFile,
    Insecure,
    KeyFile,
    Overrides,
    TokenFile,
)
from fedmx.errors import FedmxError

if TYPE_CHECKING:
    from layers.network import ClientTLS


def server(
    file: ExperimentFile,
    set_: Overrides = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Instead of network.address.")
    ] = None,
    ca: CaFile = None,
    cert: CertificateFile = None,
    key: KeyFile = None,
    token_file: TokenFile = None,
    insecure: Insecure = False,
) -> None:
    """Run the experiment in FILE with clients that connect over sockets."""
    from fedmx.assembly import Assembly
    from fedmx.cli.downloads import files_with_progress
    from fedmx.cli.run import drive
    from fedmx.deployment import serve
    from fedmx.experiment import Experiment
    from fedmx.run import RunFolder, gather_facts

    overrides = list(set_ or [])
    if listen is not None:
        overrides.append(f"network.address={listen}")
    if insecure:
        overrides.append("network.insecure=true")
    if token_file is not None:
        overrides.append(f"network.token_file={token_file.resolve()}")
    tls = _three(ca, cert, key)
    if tls is not None:
        names = ("ca", "certificate", "key")
        overrides += [
            f"network.tls.{name}={path.resolve()}" for name, path in zip(names, tls, strict=True)
        ]
    experiment = Experiment.read(file, overrides)
    run = uuid.uuid4().hex
    deployed = serve(Assembly(experiment, files_with_progress()), run)
    facts = gather_facts(
        seed=experiment.seed,
        mode="server",
        digest=experiment.digest(),
        modules=str(file.resolve().parent),
        run=run,
    )
    folder = RunFolder.create(experiment.run.folder, experiment.name, experiment.to_yaml(), facts)
    drive(deployed, folder, experiment)


def client(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The server's address.")],
    id_: Annotated[
        int | None, typer.Option("--id", min=0, help="This client's number, from 0.")
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Part I (from 0) of N of the data; I is also the client's number.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Own data: an .npz file with x_train, y_train, x_test, y_test."),
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(help="A module of yours whose names the experiment may use; may be repeated."),
    ] = None,
    memory: Annotated[
        Path | None,
        typer.Option(help="Folder for what hooks remember between rounds, over restarts too."),
    ] = None,
    ca: CaFile = None,
    cert: CertificateFile = None,
    key: KeyFile = None,
    token_file: TokenFile = None,
    insecure: Insecure = False,
    give_up: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop looking for a lost server.")
    ] = None,
) -> None:
    """Take part in a run as one client, with data that stay here."""
    from fedmx.cli.progress import LogLines
    from fedmx.deployment import OwnPart, join, read_token
    from layers.network import ClientTLS

    number, part = _place(id_, partition)
    three = _three(ca, cert, key)
    tls: ClientTLS | None = None
    if three is not None:
        tls = ClientTLS(ca=three[0], certificate=three[1], key=three[2])
    joined = join(
        address,
        number,
        OwnPart(
            data=data,
            part=part if data is not None else None,
            parts=None if part is None else part[1],
            modules=tuple(module or ()),
        ),
        tls=tls,
        token=read_token(token_file),
        insecure=insecure,
        memory=memory or _default_memory(),
        give_up_s=give_up,
    )
    with LogLines(), joined:
        typer.echo(joined.run())


def _place(id_: int | None, partition: str | None) -> tuple[int, tuple[int, int] | None]:
    """Return the client's number, and which part of the data is its own."""
    if partition is None:
        if id_ is None:
            raise FedmxError("say which client this is: --id 7, or --partition 7/100")
        return id_, None
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", partition)
    if match is None or int(match[1]) >= int(match[2]):
        raise FedmxError(f"--partition {partition}: give I/N with I from 0 to N - 1, as in 7/100")
    part = (int(match[1]), int(match[2]))
    return (part[0] if id_ is None else id_), part


def _three(
    ca: Path | None, certificate: Path | None, key: Path | None
) -> tuple[Path, Path, Path] | None:
    """Return the files of one end of TLS, or None where none is given."""
    if ca is None and certificate is None and key is None:
        return None
    if ca is None or certificate is None or key is None:
        raise FedmxError("TLS needs all of --ca, --cert and --key; make them with fedmx certs")
    return ca, certificate, key


def _default_memory() -> Path:
    """Return the folder for state in the user's home (XDG)."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "fedmx"
