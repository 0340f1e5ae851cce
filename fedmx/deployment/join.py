"""Joining a deployed run: the client receives its experiment from the server."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from fedmx.assembly.assembly import Assembly
from fedmx.client.asset_receiver import AssetReceiver
from fedmx.client.client import Client
from fedmx.components.component import Component
from fedmx.deployment.client_sessions import identity
from fedmx.errors import FedmxError
from fedmx.experiment import Experiment
from fedmx.protocol.messages import CODEC, Setup
from fedmx.version import FEATURE
from layers.compute.data.datasets import Files
from layers.compute.engines.engine import Compute
from layers.logic import Logic
from layers.network import ClientTLS, Connector


@dataclass(frozen=True)
class OwnPart:
    """A client's own data and modules, for an experiment that it receives from the server.

    Attributes:
        data: an ``.npz`` file of the client's own; None: its part of the experiment's data set.
        part: (i, n), as `--partition i/n` gives it. With `data`, the client uses the i-th of n
            parts of it; without, the experiment must have n clients. None: all of `data`, and
            any number of clients.
        modules: the client's own modules that an experiment may name.
        folder: the folder of these modules.
        files: where data sets are.
    """

    data: Path | None = None
    part: tuple[int, int] | None = None
    modules: Collection[str] = ()
    folder: Path | None = None
    files: Files = field(default_factory=Files)

    def learn(self, setup: Setup) -> tuple[Logic, Compute]:
        """Return the logic and the compute of the server's experiment.

        Raises:
            ExperimentError: it names something that this client does not have or allow.
            FedmxError: the two ends read it differently, or it has another number of parts.
        """
        experiment = Experiment.parse(
            setup.experiment,
            "the server's experiment",
            folder=self.folder or Path.cwd(),
            modules=self.modules,
        )
        if experiment.digest() != setup.digest:
            raise FedmxError(
                "this client reads the server's experiment differently than the server; "
                "use the same version of fedmx at both ends"
            )
        if _names_file(experiment.compute.data):
            if self.data is None:
                raise FedmxError(
                    "the server's experiment has its samples in a file of its own; give yours with "
                    "--data, since a server chooses no file of this machine"
                )
            words: tuple[str, ...] | None = ()  # those of that file are not here, either
        else:
            words = None
        shape = tuple(setup.shape)
        assembly = Assembly(experiment, self.files, shape, setup.classes, words)
        logic = assembly.logic
        if self.data is not None:
            return logic, assembly.own_compute(self.data, self.part)
        if self.part is not None and self.part[1] != experiment.clients:
            raise FedmxError(
                f"--partition says {self.part[1]} parts, the server's experiment has "
                f"{experiment.clients} clients; give one of its parts"
            )
        return logic, assembly.client_compute(setup.client)


def _names_file(data: Component) -> bool:
    """Return whether an experiment may choose a file of this machine by its data set's settings."""
    own = ":" in data.name and any(isinstance(one, str) for one in data.settings.values())
    return own or data.name == "arrays"


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
    """Return a client that receives its experiment from the server at `address`; run it.

    Args:
        address: ``HOST:PORT`` of the server.
        client: the client's number.
        own: its own data and modules; None: neither.
        tls: its TLS settings; None: plain TCP.
        token: the shared secret; None: none.
        insecure: whether plain TCP beyond loopback is allowed.
        memory: the folder in which hooks' memory survives this process; None: it does not.
        give_up_s: seconds without a connection after which the client gives up; None: never.
    """
    assets = AssetReceiver(memory)
    connector = Connector(
        address,
        identity(client),
        CODEC,
        tls=tls,
        token=token,
        insecure=insecure,
        give_up_s=give_up_s,
        files=assets.folder,
        features=[FEATURE],
    )
    return Client(connector, learn=(own or OwnPart()).learn, memory=memory, assets=assets)
