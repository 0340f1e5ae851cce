"""How often each client took part, and why updates were rejected or clients lost."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedmx.report.formats import NOTHING, finite, mebibytes, whole
from fedmx.report.html import Child, Html, element, join, table
from layers.arithmetic import sum_in_order

STATUSES = ("accepted", "rejected", "lost", "declined")
_MAX_REASONS = 50
_MAX_CLIENTS = 15
_MAX_FAILURES = 10


@dataclass
class ClientTally:
    """The totals of one client over the run.

    Attributes:
        client: its id.
        times: how often it had each status.
        samples: its number of samples; None: not recorded.
        up_bytes: from the client.
        down_bytes: to the client.
        malicious: whether an attack lets it lie.
        weighed: the number of its accepted updates with a share in the step of their round.
        left_out: how many of these have a share of zero.
        share: the sum of these shares.
    """

    client: str
    times: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATUSES, 0))
    samples: int | None = None
    up_bytes: int = 0
    down_bytes: int = 0
    malicious: bool = False
    weighed: int = 0
    left_out: int = 0
    share: float = 0.0

    @property
    def failures(self) -> int:
        """How often its update was rejected or it was lost."""
        return self.times["rejected"] + self.times["lost"]


@dataclass
class Failure:
    """One reason why clients failed.

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
    """The clients of a run, with most failures first, and the reasons of failures."""

    clients: list[ClientTally]
    failures: list[Failure]


def tally(records: Iterable[Mapping[str, Any]]) -> Participation:
    """Return the totals of client records in one pass, without holding the records."""
    clients: dict[str, ClientTally] = {}
    failures: dict[tuple[str, str], Failure] = {}
    for record in records:
        name = str(record.get("client", "?"))
        client = clients.setdefault(name, ClientTally(name))
        status = str(record.get("status", ""))
        if status in STATUSES:
            client.times[status] += 1
        client.samples = whole(record.get("samples")) or client.samples
        client.up_bytes += whole(record.get("up_bytes")) or 0
        client.down_bytes += whole(record.get("down_bytes")) or 0
        client.malicious |= record.get("liar") is True
        if (share := finite(record.get("share"))) is not None:
            client.weighed += 1
            client.left_out += share == 0
            client.share += share
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


def participation_section(
    participation: Participation, total: int | None, label: str | None
) -> Html | None:
    """Return totals, failures and a table of clients; None: the run has no client records."""
    if not participation.clients:
        return None
    total = len(participation.clients) if total is None else total
    updates = [times for one in participation.clients if (times := one.times["accepted"])]
    text = f"None of the {total} clients had an accepted update."
    if updates:
        least, most, middle = min(updates), max(updates), statistics.median(updates)
        each = f"{least}" if least == most else f"between {least} and {most}"
        text = (
            f"{len(updates)} of {total} clients had accepted updates, {each} each "
            f"(median {middle:g})."
        )
    failed = any(client.failures for client in participation.clients)
    if not participation.failures:
        text += " No update was rejected and no client was lost."
    text += _found(participation.clients)
    clients = participation.clients[:_MAX_CLIENTS]
    order = "those that failed most often first" if failed else "the most active first"
    words = f"{len(clients)} of {len(participation.clients)} clients, {order}"
    return element(
        "section",
        element("h2", "Clients" if label is None else f"Clients of {label}"),
        element("p", text),
        _failures(participation.failures),
        element(
            "details",
            element("summary", words),
            _clients(clients),
            open="" if failed and label is None else None,
        ),
    )


def _found(clients: Sequence[ClientTally]) -> str:
    """Return whether the aggregator found the clients that lie; empty if none lies."""
    malicious = [one for one in clients if one.malicious]
    if not malicious:
        return ""
    are = "is a liar" if len(malicious) == 1 else "are liars"
    text = f" {len(malicious)} of the clients that were asked {are}."
    weighed = [one for one in clients if one.weighed]
    if not weighed:
        return f"{text} The aggregator does not say which updates counted."
    sums = []
    for some in (
        [one for one in weighed if one.malicious],
        [one for one in weighed if not one.malicious],
    ):
        left_out, updates = sum(one.left_out for one in some), sum(one.weighed for one in some)
        sums.append(f"{left_out} of {updates}")
    lies = sum_in_order(one.share for one in weighed if one.malicious)
    every = sum_in_order(one.share for one in weighed)
    counted = f"{100 * lies / every:.1f} %" if every else "nothing"
    return (
        f"{text} The aggregator left out {sums[0]} updates of liars and {sums[1]} of honest "
        f"clients; the liars' updates made up {counted} of its steps."
    )


def _clients(clients: Sequence[ClientTally]) -> Html:
    head: list[Child] = ["client", *STATUSES, "samples", "up", "down"]
    rows: list[list[Child]] = [
        [
            client.client,
            *(client.times[status] for status in STATUSES),
            NOTHING if client.samples is None else f"{client.samples:,}",
            mebibytes(client.up_bytes),
            mebibytes(client.down_bytes),
        ]
        for client in clients
    ]
    return table(head, rows, class_="numbers")


def _failures(failures: Sequence[Failure]) -> Html | None:
    if not failures:
        return None
    rows: list[list[Child]] = []
    for failure in failures[:_MAX_FAILURES]:
        details = None
        if failure.traceback:
            details = element(
                "details", element("summary", "traceback"), element("pre", failure.traceback)
            )
        last = f"client {failure.client}, round {failure.round}"
        rows.append([failure.status, failure.times, last, join(failure.reason, details)])
    more = len(failures) - len(rows)
    return join(
        table(["", "times", "last", "reason"], rows, class_="reasons"),
        element("p", f"and {more} more reasons", class_="quiet") if more > 0 else None,
    )
