"""``fedmx server``: the server of an experiment whose clients connect over sockets."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmx.cli.terminal.interrupts import on_hangup
from fedmx.cli.terminal.json_lines import begin_log
from fedmx.cli.terminal.options import (
    CaFile,
    CertificateFile,
    ExperimentFile,
    Insecure,
    KeyFile,
    Overrides,
    TokenFile,
    tls_files,
)
from fedmx.cli.terminal.permission import Modules, OwnModules, allowed_modules
from fedmx.cli.terminal.restart import restart_on
from fedmx.errors import FedmxError

if TYPE_CHECKING:
    from fedmx.experiment import Experiment
    from fedmx.experiment.sections import NetworkSection
    from fedmx.run import RunFolder
    from fedmx.server.server import Server


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
) -> None:
    """Run an experiment with clients that connect over sockets."""
    from fedmx.experiment.names import check_names

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
    check_names(file, overrides)
    modules = allowed_modules(file, overrides, module, own_modules)

    from fedmx.experiment import Experiment

    experiment = Experiment.read(file, overrides, modules=modules)
    restart_on(experiment.compute.bits)
    check_network(experiment.network)

    # Not before: this imports MXNet, and a wrong file should be shown at once.
    from fedmx.assembly.assembly import Assembly
    from fedmx.cli.terminal.downloads import files_with_progress
    from fedmx.cli.terminal.log_lines import LogLines
    from fedmx.components.user_code import own_code
    from fedmx.deployment.serve import serve
    from fedmx.run import RunFolder, gather_facts

    run = uuid.uuid4().hex
    with LogLines(), files_with_progress() as files:
        assembly = Assembly(experiment, files)
        deployed = serve(assembly, run)

    def make_folder() -> RunFolder:
        facts = gather_facts(
            seed=experiment.seed,
            mode="server",
            digest=experiment.digest(),
            modules=str(file.resolve().parent),
            code=own_code(file.resolve().parent),
            parameters=deployed.state.weights.size,
            buffers=deployed.state.buffers.size,
            **assembly.facts(),
            run=run,
            address=deployed.address,
        )
        return RunFolder.create(
            experiment.run.folder, experiment.name, experiment.to_yaml(), facts, assembly.kept()
        )

    run_deployed(deployed, make_folder, experiment)


def run_deployed(
    server: Server, folder: RunFolder | Callable[[], RunFolder], experiment: Experiment
) -> None:
    """Run all rounds of a server whose clients connect over sockets; see `run_loop`."""
    from fedmx.cli.commands.run_loop import run_loop
    from fedmx.deployment.remote_clients import RemoteClients

    assert isinstance(server.network, RemoteClients)
    begin_log()
    with on_hangup(server.network.listener.renew_certificates):
        # A deployed client keeps the state of its last round only.
        run_loop(server, folder, experiment, every=1)


def check_network(network: NetworkSection) -> None:
    """Check the address and the certificates before anything that takes time.

    Raises:
        AddressError: the address cannot be used, or needs TLS.
        CertificateError: a certificate cannot be used.
        FedmxError: the package for `network.metrics` is not installed.
    """
    from fedmx.monitoring.prometheus import check_prometheus
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
