"""The section about participants: who took part, who failed, and why."""

from __future__ import annotations

from fedmx.report.figures.html import Child, Html, element, join, table
from fedmx.report.records.participation import STATUSES, Participation
from fedmx.report.records.quantities import NOTHING, mebibytes
from fedmx.report.records.summary import RunSummary

_MAX_CLIENTS = 15
_MAX_FAILURES = 10


def participation_section(run: RunSummary, label: str | None) -> Html | None:
    """Return totals, failures and a table of clients, or None if the run has no client records."""
    participation = run.participation
    if not participation.clients:
        return None
    least, median, most = participation.spread()
    total = run.settings.get("clients", len(participation.clients))
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
