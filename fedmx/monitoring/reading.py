"""The status of a run folder, or of a live server by the address of its metrics."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmx.errors import FedmxError
from fedmx.experiment.reader import parse_text
from fedmx.monitoring.monitor import (
    FATES,
    FORMAT,
    RECENT_ROUNDS,
    ClientsNow,
    fates_of,
    of_clients,
    of_rounds,
    resident_bytes,
)
from fedmx.quantities import last_values, metrics_in
from fedmx.run import RunFolder
from fedmx.run.released import Released

PATIENCE_S = 10.0
MOST_BYTES = 16 << 20


def status_of_run(path: str | Path) -> dict[str, Any]:
    """Return the status of a run folder, during the run and afterwards.

    The numbers come from the records. Connections and waits come from the file that a server
    rewrites; after a kill, they are its last ones.

    Raises:
        RunError: it is not a run folder, or it is damaged.
    """
    folder = RunFolder.open(path)
    experiment, _ = parse_text(folder.experiment_yaml, str(folder.path / "experiment.yaml"), None)
    records = folder.rounds()
    state, pid = folder.status, folder.process
    live = _live(folder) if folder.facts.get("mode") == "server" else {}
    if state not in ("running", "interrupted"):
        live = {}
    unknown = {
        **of_clients(ClientsNow(folder.facts.get("address"))),
        **dict.fromkeys(("time", "round", "refused_connections", "reconnections")),
        "awaits": "",
        "received_bytes": sum(one["up_bytes"] for one in records),
        "sent_bytes": sum(one["down_bytes"] for one in records),
        "started": folder.facts.get("started"),
    }
    metrics = metrics_in(folder.facts)
    measured = {
        **last_values(records, metrics),
        "epsilon": max(_spent(folder, records), default=None),
    }
    updates = sum(map(fates_of, records), Counter(dict.fromkeys(FATES, 0)))
    return {
        "format": FORMAT,
        **unknown,
        **live,
        "run": str(folder.path),
        "state": state,
        "reason": folder.reason,
        "rounds": experiment["rounds"],
        "metrics": [one.fact() for one in metrics],
        **of_rounds(records[-RECENT_ROUNDS:], measured, {fate: updates[fate] for fate in FATES}),
        "memory_bytes": resident_bytes(pid) if pid is not None and state == "running" else None,
        "pid": pid if state == "running" else None,
    }


def status_of_address(address: str, token: bytes | None = None) -> dict[str, Any]:
    """Return the status of the live server whose metrics are at HOST:PORT.

    Args:
        address: HOST:PORT.
        token: the secret of `network.metrics_token_file`; None: the server has none.

    Raises:
        FedmxError: there is no answer, or it is not from a fedmx server.
    """
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=PATIENCE_S)
    hint = "give the address of network.metrics, from the machine of the server"
    try:
        sent = {} if token is None else {"Authorization": b"Bearer " + token}
        connection.request("GET", "/status", headers=sent)
        answer = connection.getresponse()
        if answer.status == 401:
            raise FedmxError(f"{address}: the server wants its token; give --token-file")
        content = answer.read(MOST_BYTES)
        found = json.loads(content) if answer.status == 200 else None
    except OSError as error:
        raise FedmxError(f"{address}: nobody answers ({error.strerror or error}); {hint}") from None
    except (http.client.HTTPException, ValueError):
        found = None
    finally:
        connection.close()
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FedmxError(f"{address}: this is not the status of a fedmx server; {hint}")
    return found


def _spent(folder: RunFolder, records: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return epsilon of the records, and of what was released in rounds that may have lost them."""
    known = [*(one.get("epsilon") for one in records[-1:]), Released(folder.path).epsilon]
    return [one for one in known if one is not None]


def _live(folder: RunFolder) -> dict[str, Any]:
    """Return the server's last written status; empty before the first one."""
    try:
        found = json.loads(folder.live_path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("format") == FORMAT else {}
