"""fedmx: federated learning for MXNet/Gluon, from an idea to machines that talk over TLS."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedmx.version import __version__

if TYPE_CHECKING:
    from fedmx.assembly import Assembly
    from fedmx.client import Client
    from fedmx.deployment import OwnPart, join, serve
    from fedmx.errors import ExperimentError, FedmxError
    from fedmx.experiment import Experiment
    from fedmx.record import recorded
    from fedmx.round import Round
    from fedmx.run import RunFolder
    from fedmx.server import Server, Stop
    from fedmx.simulated_clients import SimulatedClients
    from fedmx.simulation import simulate
    from fedmx.socket_clients import SocketClients

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
    "SocketClients",
    "Stop",
    "__version__",
    "join",
    "recorded",
    "serve",
    "simulate",
]

_HOMES = {
    "Assembly": "assembly",
    "Client": "client",
    "Experiment": "experiment",
    "ExperimentError": "errors",
    "FedmxError": "errors",
    "OwnPart": "deployment",
    "Round": "round",
    "RunFolder": "run",
    "Server": "server",
    "SimulatedClients": "simulated_clients",
    "SocketClients": "socket_clients",
    "Stop": "server",
    "join": "deployment",
    "recorded": "record",
    "serve": "deployment",
    "simulate": "simulation",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that `fedmx --help` need not wait for MXNet."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedmx' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedmx.{_HOMES[name]}"), name)
