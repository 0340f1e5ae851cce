"""Joining a deployed run: the client receives its experiment from the server."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedmx.assembly.assembly import Assembly
from fedmx.client.asset_receiver import AssetReceiver
from fedmx.client.client import Client
from fedmx.client.kept_model import KeptModel
from fedmx.client.policy import Policy
from fedmx.client.releases import Releases
from fedmx.components.text import shown
from fedmx.deployment.certified import Certified
from fedmx.deployment.names import identity
from fedmx.errors import ExperimentError, FedmxError
from fedmx.experiment import Experiment
from fedmx.protocol.messages import CODEC, Setup
from fedmx.version import FEATURE
from layers.compute.data.datasets import Files
from layers.compute.engines.engine import Compute
from layers.logic import Logic
from layers.logic.core.hook import Process
from layers.network import ClientTLS, Connector

MOST_ROUNDS = 1_000_000


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
        local: files by their local names, for an experiment that names its data so.
    """

    data: Path | None = None
    part: tuple[int, int] | None = None
    modules: Collection[str] = ()
    folder: Path | None = None
    files: Files = field(default_factory=Files)
    local: Mapping[str, Path] = field(default_factory=dict)

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
        data = self._data(experiment)
        _check_received(experiment, own_data=data is not None)
        files = replace(self.files, named=False)
        # The words of a file that is not here are not, either.
        words = () if experiment.compute.data.name in ("arrays", "declared") else None
        assembly = Assembly(experiment, files, tuple(setup.shape), setup.targets, words)
        logic = assembly.logic
        if data is not None:
            return logic, assembly.own_compute(setup.client, data, self.part)
        if self.part is not None and self.part[1] != experiment.clients:
            raise FedmxError(
                f"--partition says {self.part[1]} parts, the server's experiment has "
                f"{experiment.clients} clients; give one of its parts"
            )
        return logic, assembly.client_compute(setup.client)

    def _data(self, experiment: Experiment) -> Path | None:
        """Return the file that this client trains on; None: its part of the experiment's data set.

        Raises:
            FedmxError: there is no such file here.
        """
        name = experiment.compute.data.settings.get("local")
        if not isinstance(name, str) or self.data is not None:
            return self.data
        if name not in self.local:
            raise FedmxError(f"compute.data.local: there are no data {shown(name)} here")
        return self.local[name]


def _check_received(experiment: Experiment, *, own_data: bool) -> None:
    """Check what only a server that is not honest, or another version, sends.

    The file of `arrays` is refused where it would be read (`Files.named`).

    Args:
        experiment: the server's experiment.
        own_data: whether the client has data of its own, and loads no others.

    Raises:
        ExperimentError: it gives the client's own code for data a path, has an attack, or costs
            a client too much before its first round.
    """
    if experiment.attack is not None:  # its draw is of all clients
        raise ExperimentError(experiment.attack.problem("is for simulations"))
    if experiment.rounds > MOST_ROUNDS:  # the learning rate of each is checked
        source = experiment.compute.data.source
        text = f"must be at most {MOST_ROUNDS} in a deployment, not {experiment.rounds}"
        raise ExperimentError(source.problem(("rounds",), text))
    parts = (experiment.compute.partition, *(() if own_data else (experiment.compute.data,)))
    for component in parts:
        if ":" in component.name and (path := _path_in(component.settings)):
            text = f"{shown(path)} is a path, which cannot come from a server; let the code of "
            raise ExperimentError(component.problem(f"{text}{component.name} find its own files"))


def _path_in(value: object) -> str:
    """Return a text that is a path with a folder, in a setting; empty: there is none."""
    if isinstance(value, str):
        return value if "/" in value or value.startswith("~") else ""
    if isinstance(value, Mapping):
        return _path_in([*value.values()])
    inner = value if isinstance(value, list | tuple) else ()
    return next(filter(None, map(_path_in, inner)), "")


def join(
    address: str,
    client: int,
    own: OwnPart | None = None,
    *,
    name: str | None = None,
    tls: ClientTLS | None = None,
    token: bytes | None = None,
    insecure: bool = False,
    memory: Path | None = None,
    give_up_s: float | None = None,
    policy: Policy | None = None,
    keep_model: Path | None = None,
    job: Experiment | None = None,
) -> Client:
    """Return a client that receives its experiment from the server at `address`; run it.

    Args:
        address: ``HOST:PORT`` of the server.
        client: the client's number.
        own: its own data and modules; None: neither.
        name: the name under which it connects; None: client-N.
        tls: its TLS settings; None: plain TCP.
        token: the shared secret; None: none.
        insecure: whether plain TCP beyond loopback is allowed.
        memory: the folder in which hooks' memory survives this process; None: it does not.
        give_up_s: seconds without a connection after which the client gives up; None: never.
        policy: what the client accepts; None: any experiment.
        keep_model: the file of the models that it evaluates; None: it keeps none.
        job: the experiment of a federation's job that was accepted; None: any may be sent.

    Raises:
        FedmxError: the policy limits epsilon, and there is no `memory` or no dp-accounting.
    """

    certified = None if tls is None or tls.key is None else Certified(tls, name)

    def learn(setup: Setup) -> tuple[Logic, Compute]:
        if setup.client != client:  # else it would train on another client's part
            raise FedmxError(f"this is client {client}, and the server says client {setup.client}")
        if certified is not None:
            certified.run = setup.run
        return (own or OwnPart()).learn(setup)

    own_name = identity(client) if name is None else name
    assets = AssetReceiver(memory)
    connector = Connector(
        address,
        own_name,
        CODEC,
        tls=tls,
        token=token,
        insecure=insecure,
        give_up_s=give_up_s,
        files=assets.folder,
        features=[FEATURE],
    )
    return Client(
        connector,
        learn=learn,
        memory=memory,
        assets=assets,
        releases=Releases(memory, own_name, policy, job, certified=certified is not None),
        kept_model=None if keep_model is None else KeptModel(keep_model),
        process=Process(identity=certified),
    )
