"""A deployment: an experiment's server and its clients, each where its data are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from fedmx.assembly import Assembly
from fedmx.client import Client
from fedmx.errors import FedmxError
from fedmx.experiment import Experiment
from fedmx.messages import CODEC, Setup
from fedmx.reception import identity
from fedmx.server import Server
from fedmx.shared_copy import SharedCopy
from fedmx.simulation import server_of
from fedmx.socket_clients import SocketClients
from layers.compute.compute import Compute
from layers.compute.datasets import Files
from layers.logic import Logic
from layers.network import ClientTLS, Connector, Listener, ServerTLS


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
    clients = SocketClients(
        listener,
        setup,
        clients=experiment.clients,
        wait_for=experiment.clients_awaited,
        at_least=max(experiment.logic.min_updates, 1),
        rejoin_s=network.rejoin_s,
        deadline_s=experiment.clock.deadline_s,
        shared=assembly.shared,
    )
    return server_of(assembly, clients)


@dataclass(frozen=True)
class OwnPart:
    """What a client brings to an experiment that it learns from the server.

    Attributes:
        data: an ``.npz`` file of its own; None: its part of the experiment's data set.
        part: (i, n): only the i-th of n parts of `data`.
        parts: into how many parts this client believes the experiment's data to be divided.
        modules: the modules of its own whose names an experiment may use.
        folder: where these modules are.
        files: where data sets are.
    """

    data: Path | None = None
    part: tuple[int, int] | None = None
    parts: int | None = None
    modules: Collection[str] = ()
    folder: Path | None = None
    files: Files = field(default_factory=Files)

    def learn(self, setup: Setup) -> tuple[Logic, Compute]:
        """Make logic and compute from what the server says.

        Raises:
            ExperimentError: it names something that this client does not have or allow.
        """
        experiment = Experiment.parse(
            setup.experiment,
            "the server's experiment",
            folder=self.folder or Path.cwd(),
            modules=self.modules,
        )
        if experiment.digest() != setup.digest:
            raise FedmxError(
                "the server's experiment reads differently here than there; "
                "use the same version of fedmx at both ends"
            )
        assembly = Assembly(experiment, self.files, tuple(setup.shape), setup.classes)
        logic = assembly.logic
        if self.parts is not None and self.data is None and self.parts != experiment.clients:
            raise FedmxError(
                f"--partition says {self.parts} parts, the server's experiment has "
                f"{experiment.clients} clients; give one of its parts"
            )
        if self.data is not None:
            return logic, assembly.own_compute(self.data, self.part)
        return logic, assembly.client_compute(setup.client)


def join(
    address: str,
    client: int,
    own: OwnPart | None = None,
    *,
    tls: ClientTLS | None = None,
    token: bytes | None = None,
    insecure: bool = False,
    memory: Path | None = None,
    give_up_s: float | None = None,
) -> Client:
    """Return a client that learns its experiment from the server at `address`; run it."""
    shared = SharedCopy(memory)
    connector = Connector(
        address,
        identity(client),
        CODEC,
        tls=tls,
        token=token,
        insecure=insecure,
        give_up_s=give_up_s,
        files=shared.folder,
    )
    return Client(connector, learn=(own or OwnPart()).learn, memory=memory, shared=shared)


def read_token(path: Path | None) -> bytes | None:
    """Return the shared secret in a file, without the white space around it.

    Raises:
        FedmxError: the file cannot be read, or holds fewer than 16 bytes.
    """
    if path is None:
        return None
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise FedmxError(f"{path}: the token cannot be read ({error.strerror})") from None
    if len(token) < 16:
        raise FedmxError(f"{path}: a token of {len(token)} bytes; use 16 or more random ones")
    return token
