"""Serving a deployed run: from an experiment to a server that listens."""

from __future__ import annotations

import gc
import math
import socket
from collections.abc import Sequence

from fedmx.assembly.assembly import Assembly
from fedmx.deployment.names import SiteNames
from fedmx.deployment.remote_clients import RemoteClients
from fedmx.deployment.token import read_token
from fedmx.errors import ExperimentError
from fedmx.experiment import Experiment
from fedmx.experiment.sections import PATIENCE, RunSection
from fedmx.monitoring.monitor import Monitor
from fedmx.protocol.messages import CODEC, SMALL_BYTES, Setup
from fedmx.server.callback import Callback
from fedmx.server.of_experiment import server_of
from fedmx.server.server import Server
from layers.logic.core.declaration import Need
from layers.logic.round.patience import FIRST_S, Patience
from layers.network import Limits, Listener, ServerTLS

GC_THRESHOLD = 10_000  # new objects before a collection; Python's default is 700


def serve(
    experiment: Experiment | Assembly,
    run: str,
    *,
    callbacks: Sequence[Callback] = (),
    any_version: bool = False,
    sites: Sequence[str] = (),
    taking: socket.socket | None = None,
    start_limit_s: float = math.inf,
    shared: bool = False,
) -> Server:
    """Return the server of a deployed experiment; iterate over it to run it.

    Args:
        experiment: the experiment, or its assembly.
        run: name of the run; a resumed run has the same name.
        callbacks: called after each round; they may end the run.
        any_version: whether clients may have another minor version of fedmx.
        sites: the names of the clients, in the order of their numbers; empty: client-N.
        taking: see `Listener`.
        start_limit_s: how long the first round waits for enough clients.
        shared: whether clients may train for other runs meanwhile, which counts as silence here.

    Raises:
        CallbackError: a callback is none, or has a misspelt method.
        ExperimentError: the experiment has parts that are objects, which cannot be sent by name.
        FedmxError: `network.metrics` is given, and the package for it is not installed.
    """
    assembly = experiment if isinstance(experiment, Assembly) else Assembly(experiment)
    experiment = assembly.experiment
    experiment.require_portable()
    if experiment.without:
        raise ExperimentError(
            "without: is for simulations; a deployed client is left out if nobody starts it, with "
            "network.wait_for below clients"
        )
    if experiment.attack is not None:
        raise ExperimentError(
            "attack: is for simulations; leave it out of the experiment of a deployment"
        )
    network = experiment.network
    tls = network.tls
    listener = Listener(
        network.address,
        CODEC,
        tls=None if tls is None else ServerTLS(tls.certificate, tls.key, tls.ca, crl=tls.crl),
        token=read_token(network.token_file),
        insecure=network.insecure,
        heartbeat_s=network.heartbeat_s,
        successors=True,
        taking=taking,
        limits=Limits(
            max_message_bytes=_most_message_bytes(assembly),
            max_incoming_bytes=network.incoming_bytes,
        ),
    )
    # Clients need not know where this machine keeps its keys and runs.
    keys = ("tls", "token_file", "metrics", "metrics_token_file")
    folder = RunSection().folder
    sent = experiment.with_overrides(
        [f"run.folder={folder}", *(f"network.{key}=null" for key in keys)]
    )
    setup = Setup(
        run=run,
        experiment=sent.to_yaml(),
        digest=experiment.digest(),
        client=0,
        shape=assembly.data.dataset.shape,
        targets=assembly.data.dataset.targets,
    )
    most = network.max_samples
    clients = RemoteClients(
        listener,
        setup,
        clients=experiment.clients,
        wait_for=experiment.clients_awaited,
        at_least=max(experiment.logic.min_updates, 1),
        rejoin_s=network.rejoin_s,
        max_samples=assembly.sizes() if most == "partition" else most,
        assets=tuple(assembly.assets.values()),
        violations=network.violations,
        log_lines=network.log_lines,
        any_version=any_version,
        patience=_patience(assembly, shared),
        wait_limit_s=network.wait_limit_s,
        start_limit_s=start_limit_s,
        names=SiteNames(sites) if sites else None,
    )
    monitor = Monitor(run, experiment.name, experiment.rounds, clients.now)
    metrics = None
    if network.metrics is not None:
        # Not at the top: only this setting needs an HTTP server and the library of Prometheus.
        from fedmx.monitoring.endpoint import MetricsEndpoint, pages_of

        metrics = MetricsEndpoint(
            network.metrics, pages_of(monitor), read_token(network.metrics_token_file)
        )
    return server_of(
        assembly,
        clients,
        callbacks=callbacks,
        monitor=monitor,
        metrics=metrics,
        operated=clients.orders.listening,
    )


def _most_message_bytes(assembly: Assembly) -> int:
    """Return the most bytes of a client's unfinished messages: two models with their slots."""
    engine, logic = assembly.engine, assembly.server_logic
    values = engine.weights.size + engine.buffers.size
    one = 4 * values + logic.most_slot_bytes(values, assembly.experiment.clients or 0)
    return min(2 * (one + SMALL_BYTES), Limits.max_message_bytes)


def relax_gc() -> None:
    """Make Python's garbage collector ignore existing objects, and run less often.

    A round creates many objects that live until its end, and each collection visits them. With
    1,000 clients, this took 0.2 of the server's 3.9 processor seconds a round.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


def _patience(assembly: Assembly, shared: bool) -> Patience:
    """Return how long a client may take to answer.

    Who counts in a private run must not follow the answer times of others, and a client that trains
    for another run is not silent. If nothing is set, clients of such runs have as long in each
    round as those of any run before the first answer.
    """
    network = assembly.experiment.network
    unset = network.patience_s is None and network.patience == PATIENCE
    if unset and (shared or assembly.logic.needs(Need.BOUNDED)):
        return Patience(limit_s=FIRST_S)
    return Patience(network.patience, network.patience_s)
