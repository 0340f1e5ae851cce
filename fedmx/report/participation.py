"""How often each client took part, and why updates were rejected or clients lost."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmx.report.html import Child, Html, element, join, table
from fedmx.report.quantities import NOTHING, mebibytes

STATUSES = ("accepted", "rejected", "lost", "declined")
_MAX_REASONS = 50


@dataclass
class ClientTally:
    """The totals of one client over the run.

    Attributes:
        client: its id.
        times: how often it had each status.
        samples: how many it has; None: not recorded.
        up_bytes: sent by it.
        down_bytes: sent to it.
    """

    client: str
    times: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATUSES, 0))
    samples: int | None = None
    up_bytes: int = 0
    down_bytes: int = 0

    @property
    def failures(self) -> int:
        """In how many rounds its update was rejected or it was lost."""
        return self.times["rejected"] + self.times["lost"]


@dataclass
class Failure:
    """One reason for which clients failed.

    Attributes:
        status: rejected or lost.
        reason: the reason.
        times: how often it occurred.
        client: the last client.
        round: the last round.
        traceback: the last traceback; empty if there was none.
    """

    status: str
    reason: str
    times: int = 0
    client: str = ""
    round: str = ""
    traceback: str = ""


@dataclass
class Participation:
    """The clients of a run, those with most failures first, and the reasons of failures."""

    clients: list[ClientTally]
    failures: list[Failure]

    def spread(self) -> tuple[int, float, int]:
        """Return the least, median and most accepted updates of a client that took part."""
        counted = [client.times["accepted"] for client in self.clients] or [0]
        return min(counted), statistics.median(counted), max(counted)


def tally(records: Iterable[Mapping[str, Any]]) -> Participation:
    """Return the totals of client records, in one pass and with memory for the clients only."""
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
            if (status, reason) not in failures and len(failures) >= _MAX_REASONS:
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


_MAX_CLIENTS = 15
_MAX_FAILURES = 10


def participation_section(
    participation: Participation, total: int | None, label: str | None
) -> Html | None:
    """Return totals, failures and a table of clients, or None if the run has no client records."""
    if not participation.clients:
        return None
    least, median, most = participation.spread()
    total = len(participation.clients) if total is None else total
    accepted = sum(1 for client in participation.clients if client.times["accepted"])
    text = f"None of the {total} clients had an accepted update."
    if accepted:
        text = f"{accepted} of {total} clients had accepted updates, "
        text += f"between {least} and {most} each (median {median:g})."
    failed = sum(1 for client in participation.clients if client.failures)
    if not participation.failures:
        text += " No update was rejected and no client was lost."
    heading = "Clients" if label is None else f"Clients of {label}"
    return element(
        "section",
        element("h2", heading),
        element("p", text),
        _failures(participation),
        element(
            "details",
            element("summary", _which_clients(participation, failed)),
            _clients(participation),
            open="" if failed and label is None else None,
        ),
    )


def _which_clients(participation: Participation, failed: int) -> str:
    shown = min(_MAX_CLIENTS, len(participation.clients))
    order = "those that failed most often first" if failed else "the most active first"
    return f"{shown} of {len(participation.clients)} clients, {order}"


def _clients(participation: Participation) -> Html:
    head: list[Child] = [
        "client",
        "accepted",
        "rejected",
        "lost",
        "declined",
        "samples",
        "up",
        "down",
    ]
    rows: list[list[Child]] = [
        [
            client.client,
            *(client.times[status] for status in STATUSES),
            NOTHING if client.samples is None else f"{client.samples:,}",
            mebibytes(client.up_bytes),
            mebibytes(client.down_bytes),
        ]
        for client in participation.clients[:_MAX_CLIENTS]
    ]
    return table(head, rows, class_="numbers")


def _failures(participation: Participation) -> Html | None:
    if not participation.failures:
        return None
    rows: list[list[Child]] = []
    for failure in participation.failures[:_MAX_FAILURES]:
        details = None
        if failure.traceback:
            details = element(
                "details", element("summary", "traceback"), element("pre", failure.traceback)
            )
        last = f"client {failure.client}, round {failure.round}"
        rows.append([failure.status, failure.times, last, join(failure.reason, details)])
    more = len(participation.failures) - len(rows)
    return join(
        table(["", "times", "last", "reason"], rows, class_="reasons"),
        element("p", f"and {more} more reasons", class_="quiet") if more > 0 else None,
    )
