"""fedmx: federated learning for MXNet/Gluon, from an idea to machines that talk over TLS."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedmx.version import __version__

if TYPE_CHECKING:
    from fedmx.assembly.assembly import Assembly
    from fedmx.client.client import Client
    from fedmx.deployment.join import OwnPart, join
    from fedmx.deployment.remote_clients import RemoteClients
    from fedmx.deployment.serve import serve
    from fedmx.errors import ExperimentError, FedmxError
    from fedmx.experiment import Experiment
    from fedmx.run import RunFolder
    from fedmx.server.recorder import recorded
    from fedmx.server.round import Round
    from fedmx.server.server import Server, Stop
    from fedmx.simulation.simulate import simulate
    from fedmx.simulation.simulated_clients import SimulatedClients

__all__ = [
    "Assembly",
    "Client",
    "Experiment",
    "ExperimentError",
    "FedmxError",
    "OwnPart",
    "Round",
    "RunFolder",
    "Server",
    "SimulatedClients",
    "RemoteClients",
    "Stop",
    "__version__",
    "join",
    "recorded",
    "serve",
    "simulate",
]

_HOMES = {
    "Assembly": "assembly.assembly",
    "Client": "client.client",
    "Experiment": "experiment",
    "ExperimentError": "errors",
    "FedmxError": "errors",
    "OwnPart": "deployment.join",
    "Round": "server.round",
    "RunFolder": "run",
    "Server": "server.server",
    "SimulatedClients": "simulation.simulated_clients",
    "RemoteClients": "deployment.remote_clients",
    "Stop": "server.server",
    "join": "deployment.join",
    "recorded": "server.recorder",
    "serve": "deployment.serve",
    "simulate": "simulation.simulate",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that `fedmx --help` need not wait for MXNet."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedmx' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedmx.{_HOMES[name]}"), name)
