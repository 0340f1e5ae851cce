"""``fedmx server`` and ``fedmx client``: a run with clients that connect over sockets."""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from collections.abc import Callable
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmx.cli.options import (
    AllowVersion,
    CaFile,
    CertificateFile,
    ExperimentFile,
    Insecure,
    KeyFile,
    Modules,
    Overrides,
    OwnModules,
    TokenFile,
    permitted,
    tls_files,
)
from fedmx.cli.output import begin_log, say
from fedmx.cli.process import NO_UPDATE, Interrupted, on_hangup, restart_on
from fedmx.errors import FedmxError

if TYPE_CHECKING:
    from fedmx.client.client import Client
    from fedmx.experiment import Experiment
    from fedmx.experiment.sections import NetworkSection
    from fedmx.run import RunFolder
    from fedmx.server.server import Server
    from layers.network import ClientTLS


def server(
    file: ExperimentFile,
    set_: Overrides = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="The address, instead of network.address."),
    ] = None,
    ca: CaFile = None,
    cert: CertificateFile = None,
    key: KeyFile = None,
    crl: Annotated[
        Path | None,
        typer.Option(metavar="PEM", help="The CA's list of revoked certificates; needs --ca."),
    ] = None,
    token_file: TokenFile = None,
    insecure: Insecure = False,
    module: Modules = None,
    own_modules: OwnModules = False,
    allow_version: AllowVersion = False,
) -> None:
    """Run an experiment with clients that connect over sockets."""
    experiment = permitted(
        served(file, set_, listen, ca, cert, key, crl, token_file, insecure), module, own_modules
    )
    check_network(experiment.network)

    from fedmx.assembly.assembly import Assembly
    from fedmx.assembly.run_folder import new_run_folder
    from fedmx.cli.datasets import files_with_progress
    from fedmx.deployment.serve import serve
    from fedmx.server.survey import normalised

    run = uuid.uuid4().hex
    with files_with_progress() as files:
        given = Assembly(experiment, files)
        asking = partial(serve, run=uuid.uuid4().hex, any_version=allow_version)
        assembly = normalised(given, asking)
        deployed = serve(assembly, run, any_version=allow_version)

    def make_folder() -> RunFolder:
        own = file.resolve().parent
        return new_run_folder(assembly, "server", own, run=run, address=deployed.address)

    run_deployed(deployed, make_folder)


def served(
    file: Path,
    set_: list[str] | None,
    listen: str | None,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    crl: Path | None,
    token_file: Path | None,
    insecure: bool,
) -> Experiment:
    """Return the experiment of a server, with the options of its command.

    Raises:
        FedmxError: the experiment or an option is wrong.
    """
    from fedmx.experiment import Experiment

    overrides = list(set_ or [])
    if listen is not None:
        overrides.append(f"network.address={json.dumps(listen)}")
    if insecure:
        overrides.append("network.insecure=true")
    if token_file is not None:
        overrides.append(_path_override("network.token_file", token_file))
    tls = tls_files(ca, cert, key)
    if tls is not None:
        names = ("ca", "certificate", "key")
        overrides += [
            _path_override(f"network.tls.{name}", path)
            for name, path in zip(names, tls, strict=True)
        ]
    if crl is not None:
        if tls is None:
            raise FedmxError("--crl needs --ca, --cert and --key; make them with fedmx certs")
        overrides.append(_path_override("network.tls.crl", crl))
    return Experiment.read(file, overrides)


def run_deployed(server: Server, folder: RunFolder | Callable[[], RunFolder]) -> None:
    """Run all rounds of a server whose clients connect over sockets; see `run_loop`."""
    from fedmx.cli.rounds import run_loop
    from fedmx.connection_log import warn_of_open_key
    from fedmx.deployment.remote_clients import RemoteClients
    from fedmx.deployment.serve import relax_gc

    assert isinstance(server.network, RemoteClients)
    assert server.experiment is not None
    tls = server.experiment.network.tls
    begin_log()
    warn_of_open_key(None if tls is None else tls.key)
    relax_gc()
    with on_hangup(server.network.listener.renew_certificates):
        run_loop(server, folder)


def check_network(network: NetworkSection) -> None:
    """Check the address and the certificates before any slow step.

    Raises:
        AddressError: the address cannot be used, or needs TLS.
        CertificateError: a certificate cannot be used.
        FedmxError: the package for `network.metrics` is not installed.
    """
    from fedmx.monitoring.endpoint import check_prometheus
    from layers.network import ServerTLS
    from layers.network.address import Address

    tls = network.tls
    Address.parse(network.address).check_safe(tls=tls is not None, insecure=network.insecure)
    if tls is not None:
        files = ServerTLS(tls.certificate, tls.key, tls.ca, crl=tls.crl)
        files.context()
        files.revoked()
    if network.metrics is not None:
        check_prometheus()


def _path_override(key: str, path: Path) -> str:
    """Return an override with a path, quoted so that YAML reads it as text."""
    return f"{key}={json.dumps(str(path.resolve()))}"


def client(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The server's address.")],
    id_: Annotated[
        int | None,
        typer.Option("--id", metavar="I", min=0, help="This client's number, from 0."),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Use part I (from 0) of N of the data. I is also the client's number; "
            "with --data, --id may differ.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Your data: x_train and y_train in .npz, or a table."),
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE",
            help="A module of your own that the experiment may import; may be repeated.",
        ),
    ] = None,
    memory: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for hooks' memory across restarts. [default: ~/.local/state/fedmx]",
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(metavar="YAML", help="What this client accepts, whatever a server sends."),
    ] = None,
    max_epsilon: Annotated[
        float | None,
        typer.Option(metavar="E", help="The most that all runs may spend, by privacy: local."),
    ] = None,
    keep_model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep the models that this client evaluates: the newest as FILE (.safetensors), "
            "and beside it the best one on its samples.",
        ),
    ] = None,
    ca: CaFile = None,
    cert: CertificateFile = None,
    key: KeyFile = None,
    token_file: TokenFile = None,
    insecure: Insecure = False,
    stay: Annotated[
        bool,
        typer.Option("--stay", help="Stay at a federation, and take part in job after job."),
    ] = False,
    available_if: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="With --stay: take part only while this command ends with 0.",
        ),
    ] = None,
    give_up: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="Stop looking for a lost server after this time. [default: never]",
        ),
    ] = None,
) -> None:
    """Take part in a run as one client; its data stay here."""
    from layers.network.address import Address

    if stay:
        from fedmx.cli.federation import stay as stay_at

        stay_at(
            address,
            ca,
            cert,
            key,
            memory or _default_memory(),
            policy,
            tuple(module or ()),
            available_if,
        )
        return
    number, part = _number_and_part(id_, partition, own_data=data is not None)
    tls = _client_tls(ca, cert, key)
    Address.parse(address).check_safe(tls=tls is not None, insecure=insecure)
    if data is not None and not data.is_file():
        raise FedmxError(f"{data}: there is no such file; give your data as .npz or a table")
    for name in module or ():
        if PathFinder.find_spec(name.partition(".")[0], [*sys.path, os.getcwd()]) is None:
            raise FedmxError(
                f"--module {name}: there is no such module among the installed ones or in "
                f"{os.getcwd()}; start from the folder that holds it"
            )

    from fedmx.cli.datasets import files_with_progress
    from fedmx.client.policy import Policy
    from fedmx.connection_log import warn_of_open_key
    from fedmx.deployment.join import OwnPart, join
    from fedmx.deployment.token import read_token
    from layers.compute.bits import PORTABLE, OtherInstructionsError

    limits = policy is not None or max_epsilon is not None
    own_policy = Policy.of(policy, max_epsilon) if limits else None
    with files_with_progress() as files:
        own = OwnPart(
            data=data,
            part=part,
            modules=tuple(module or ()),
            files=files,
        )
        joined = join(
            address,
            number,
            own,
            tls=tls,
            token=read_token(token_file),
            insecure=insecure,
            memory=memory or _default_memory(),
            give_up_s=give_up,
            policy=own_policy,
            keep_model=keep_model,
        )
        until = "until it answers" if give_up is None else f"for {give_up:g} s"
        begin_log()
        warn_of_open_key(key)
        text = f"client {number}: looking for {address}, {until}"
        say("looking_for_server", text, client=number, address=address)
        try:
            # Each connection reads the certificates again: a service's reload needs no action.
            with joined, on_hangup(lambda: None):
                take_part(joined)
        except OtherInstructionsError:
            text = f"client {number}: restarts on portable instructions"
            say("other_instructions", text, client=number)
            restart_on(PORTABLE)
        except KeyboardInterrupt:
            raise Interrupted("interrupted; run the same command to take part again") from None


def take_part(joined: Client) -> None:
    """Take part in all rounds; print a line for each, and the reason for the end."""
    from fedmx.report.formats import mebibytes

    rounds = 0
    for update in joined.updates():
        rounds += 1
        loss = update.metrics.get("loss")
        parts = [f"round {update.round}: {update.steps} steps on {update.samples:,} samples"]
        parts += [f"loss {loss:.4f}"] if loss is not None else []
        say(
            "round",
            ", ".join([*parts, f"update of {mebibytes(joined.update_bytes)}"]),
            round=update.round,
            steps=update.steps,
            samples=update.samples,
            loss=loss,
            update_bytes=joined.update_bytes,
        )
    updates = "1 update" if rounds == 1 else f"{rounds} updates"
    traffic = joined.network.traffic()
    typer.echo(
        f"the run is over: {joined.reason}; {updates} from here, "
        f"up {mebibytes(traffic.sent_bytes)}, down {mebibytes(traffic.received_bytes)}"
    )
    if joined.failed and not rounds:
        say("no_update", "this client made no update; each failure is above")
        raise typer.Exit(NO_UPDATE)


def _number_and_part(
    id_: int | None, partition: str | None, *, own_data: bool
) -> tuple[int, tuple[int, int] | None]:
    """Return the client's number and its part of the data (None: not given).

    Only a client with its own data may have a part other than its number.
    """
    if partition is None:
        if id_ is None:
            raise FedmxError("the client's number is missing; give --id 7, or --partition 7/100")
        return id_, None
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", partition)
    if match is None or int(match[1]) >= int(match[2]):
        raise FedmxError(
            f"--partition {partition}: must be I/N with I from 0 to N - 1, as in 7/100"
        )
    part = (int(match[1]), int(match[2]))
    if id_ not in (None, part[0]) and not own_data:
        raise FedmxError(
            f"--id {id_} and --partition {partition} name two clients; give one of them"
        )
    return (part[0] if id_ is None else id_), part


def _client_tls(ca: Path | None, certificate: Path | None, key: Path | None) -> ClientTLS | None:
    """Check and return the client's TLS files, or None if none is given."""
    from layers.network import ClientTLS

    files = tls_files(ca, certificate, key)
    if files is None:
        return None
    tls = ClientTLS(ca=files[0], certificate=files[1], key=files[2])
    tls.context()
    return tls


def _default_memory() -> Path:
    """Return fedmx's state folder in the user's home (XDG)."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "fedmx"
