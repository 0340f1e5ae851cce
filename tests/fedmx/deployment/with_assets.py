"""An experiment with assets, and a client that makes its model while no other does."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from fedmx import Experiment, OwnPart, Server
from fedmx.deployment.names import identity
from fedmx.protocol.messages import Setup
from tests.network.conftest import Certificates

LOADING = threading.Lock()  # MXNet makes one model at a time


def experiment(
    certificates: Certificates,
    clients: int,
    rounds: int = 3,
    logic: dict[str, Any] | None = None,
    folder: Path | None = None,
) -> Experiment:
    tree: dict[str, Any] = {
        "seed": 4,
        "rounds": rounds,
        "clients": clients,
        "compute": {
            "model": "2nn",
            "data": "digits",
            "normalise": {"scale": 16},
            "evaluate": {"every": rounds},
            "train": {"steps": 2, "batch_size": 10, "learning_rate": 0.05},
        },
        "logic": logic or {"preset": {"name": "fedshare", "fraction": 0.5, "shared": 0.2}},
        "network": {"address": "127.0.0.1:0", "heartbeat_s": 30, "tls": certificates.files},
    }
    return Experiment.parse(json.dumps(tree), "assets.yaml", folder=folder, modules=None)


class Learning(OwnPart):
    """Clients of one process make their models one after the other."""

    def learn(self, setup: Setup) -> Any:
        with LOADING:
            return super().learn(setup)


def file_bytes(server: Server, client: int) -> int:
    """Return the bytes of files of all of a client's connections, in both directions."""
    traffic = server.network.listener.traffic(identity(client))
    return traffic.file_bytes_sent + traffic.file_bytes_received
