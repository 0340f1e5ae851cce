"""How often each client took part, and why it did not when it did not."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

STATUSES = ("accepted", "rejected", "lost", "declined")
_MOST_REASONS = 50


@dataclass
class ClientTally:
    """What one client did over the whole run."""

    client: str
    times: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATUSES, 0))
    samples: int | None = None
    up_bytes: int = 0
    down_bytes: int = 0

    @property
    def failures(self) -> int:
        """In how many rounds its update was refused or it was lost."""
        return self.times["rejected"] + self.times["lost"]


@dataclass
class Failure:
    """One way in which clients failed: how often, who last and when, and where it happened."""

    status: str
    reason: str
    times: int = 0
    client: str = ""
    round: str = ""
    traceback: str = ""


@dataclass
class Participation:
    """All clients of a run, those that failed most often first, and all ways of failing."""

    clients: list[ClientTally]
    failures: list[Failure]

    def spread(self) -> tuple[int, float, int]:
        """Least, median and most updates that a client had counted; of those that took part."""
        counted = [client.times["accepted"] for client in self.clients] or [0]
        return min(counted), statistics.median(counted), max(counted)


def tally(records: Iterable[Mapping[str, Any]]) -> Participation:
    """Add up the client records of a run; one pass, memory for each client and not each record."""
    clients: dict[str, ClientTally] = {}
    failures: dict[tuple[str, str], Failure] = {}
    for record in records:
        name = str(record.get("client", "?"))
        client = clients.setdefault(name, ClientTally(name))
        status = str(record.get("status", ""))
        if status in STATUSES:
            client.times[status] += 1
        client.samples = _whole(record.get("samples")) or client.samples
        client.up_bytes += _whole(record.get("up_bytes")) or 0
        client.down_bytes += _whole(record.get("down_bytes")) or 0
        if status in ("rejected", "lost"):
            reason = str(record.get("reason") or "no reason given")
            if (status, reason) not in failures and len(failures) >= _MOST_REASONS:
                reason = "other reasons"
            failure = failures.setdefault((status, reason), Failure(status, reason))
            failure.times += 1
            failure.client, failure.round = name, str(record.get("round", "?"))
            failure.traceback = str(record.get("traceback") or failure.traceback)
    return Participation(
        sorted(clients.values(), key=lambda c: (-c.failures, -c.times["accepted"])),
        sorted(failures.values(), key=lambda f: -f.times),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
