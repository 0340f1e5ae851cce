"""The server of a deployment, made from its experiment."""

from __future__ import annotations

from fedmx.assembly.assembly import Assembly
from fedmx.deployment.remote_clients import RemoteClients
from fedmx.deployment.token import read_token
from fedmx.experiment import Experiment
from fedmx.protocol.messages import CODEC, Setup
from fedmx.server.of_experiment import server_of
from fedmx.server.server import Server
from layers.network import Listener, ServerTLS


def serve(experiment: Experiment | Assembly, run: str) -> Server:
    """Return the server of a deployed experiment; iterate over it to run it.

    Args:
        run: names the run; the same name when it is resumed.
    """
    assembly = experiment if isinstance(experiment, Assembly) else Assembly(experiment)
    experiment = assembly.experiment
    experiment.require_portable()
    network = experiment.network
    tls = network.tls
    listener = Listener(
        network.address,
        CODEC,
        tls=None if tls is None else ServerTLS(tls.certificate, tls.key, tls.ca),
        token=read_token(network.token_file),
        insecure=network.insecure,
        heartbeat_s=network.heartbeat_s,
    )
    # Where this machine keeps its keys is nothing that a client has to know.
    told = experiment.with_overrides(["network.tls=null", "network.token_file=null"])
    setup = Setup(
        run=run,
        experiment=told.to_yaml(),
        digest=experiment.digest(),
        client=0,
        shape=assembly.dataset.shape,
        classes=assembly.dataset.classes,
    )
    clients = RemoteClients(
        listener,
        setup,
        clients=experiment.clients,
        wait_for=experiment.clients_awaited,
        at_least=max(experiment.logic.min_updates, 1),
        rejoin_s=network.rejoin_s,
        shared=assembly.shared,
    )
    return server_of(assembly, clients)
